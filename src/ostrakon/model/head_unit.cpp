// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/head_unit.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/linear_cross_entropy.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/packing.hpp>

namespace ostrakon::model {

std::vector<Parameter> head_parameters(const DecoderSettings& settings) {
  std::vector<Parameter> parameters;
  add_norm(parameters, "norm", settings.norm, settings.width, settings.bias);
  if (settings.tie_embeddings) return parameters;
  add_linear(parameters, "output", settings.vocabulary, settings.width, false,
             settings.initializer_deviation);
  parameters.back().orthogonalize = false;
  return parameters;
}

void require_table(const Parameter& table, std::int64_t vocabulary, std::int64_t width) {
  require(table.name == "token.weight" && table.offset == 0 &&
              table.shape == std::vector<std::int64_t>{vocabulary, width},
          "the head is tied to ", table.full_name(), ", with ", table.elements(), " elements at ",
          table.offset, "; expected token.weight (", vocabulary, ", ", width, ") at 0");
}

template <class T>
HeadUnit<T>::HeadUnit(const DecoderSettings& settings, LeafShape leaf, const Unit<T>* tied_to,
                      const Frozen& frozen)
    : leaf_(leaf),
      rows_(leaf.rows()),
      width_(settings.width),
      vocabulary_(settings.vocabulary),
      tied_(tied_to != nullptr) {
  description_.name = "head";
  parameters_ = head_parameters(settings);
  if (tied_) {
    require_table(tied_to->parameters().front(), vocabulary_, width_);
    weight_ = location_of(tied_to->parameters().front());
    tied_elements_ = tied_to->description().trained_elements();
    description_.tied_to = 0;
    description_.tied_gradients = weight_.trained();
  }
  const SegmentSizes sizes = lay_out_parameters(parameters_, description_.name, frozen);
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  norm_ = find_norm(parameters_, "norm", settings.norm, settings.norm_epsilon);
  if (!tied_) weight_ = find_linear(parameters_, "output").weight;

  Packing workspace(buffer_alignment<T>);
  workspace_.normed = workspace.place(bytes_of<T>(rows_ * width_));
  workspace_.mean = workspace.place(bytes_of<Compute>(norm_.mean_elements(rows_)));
  workspace_.rstd = workspace.place(bytes_of<Compute>(rows_));
  workspace_.logits = workspace.place(
      bytes_of<T>(math::linear_cross_entropy_workspace<T>(rows_, vocabulary_, leaf_.kernels)));

  description_.output_bytes = bytes_of<Compute>(rows_);
  plan::Phase& forward = description_.forward.front();
  plan::Phase& backward = description_.backward.front();
  forward.workspace_bytes = workspace.size();
  if (leaf.sums_by_leaf()) lay_out_sums(workspace);
  backward.workspace_bytes = workspace.size();
  forward.flops = 2.0 * static_cast<double>(rows_ * width_) * static_cast<double>(vocabulary_);
  // By both factors, unless the weight is frozen; and the logits.
  description_.gradient_flops = (weight_.trained() ? 2.0 : 1.0) * forward.flops;
  const double logits = leaf.sums_by_leaf() ? 2.0 : 1.0;  // how often they are computed
  backward.flops = description_.gradient_flops + logits * forward.flops;
  // Norm; logits are read for the loss, and read and written for their gradients.
  const auto rows = [&](std::int64_t bytes, double kernels) {
    return plan::row_work(static_cast<double>(rows_ * bytes), kernels);
  };
  const std::int64_t norm = 2 * bytes_of<T>(width_), loss = bytes_of<Compute>(vocabulary_);
  const plan::KernelWork product = plan::product_work(forward.flops, width_, vocabulary_);
  forward.work = product + rows(norm, 1.0) + rows(loss, 1.0);
  backward.work = (weight_.trained() ? 2.0 : 1.0) * product + logits * (product + rows(loss, 1.0)) +
                  rows(loss + bytes_of<T>(vocabulary_), 1.0) + rows(3 * norm, 3.0);
  description_.sums_tied_apart = leaf.sums_by_leaf() && description_.tied_gradients;
}

/// In place of the logits: what the backward by leaf takes, then the sums of the norm's gradients.
template <class T>
void HeadUnit<T>::lay_out_sums(Packing& workspace) {
  workspace.start_over(workspace_.logits);
  workspace_.logits = workspace.place(bytes_of<T>(by_leaf_elements()));
  workspace_.sums = workspace.place(bytes_of<Compute>(sum_elements()));
}

template <class T>
std::int64_t HeadUnit<T>::by_leaf_elements() const {
  return math::linear_cross_entropy_by_piece_workspace<T>(rows_, width_, vocabulary_,
                                                          leaf_.leaves(), leaf_.kernels);
}

template <class T>
std::int64_t HeadUnit<T>::sum_elements() const {
  return leaf_sums_workspace(width_, leaf_.leaves());
}

template <class T>
void HeadUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  if (!buffers.output) return;
  const std::int64_t count = rows.end - rows.begin;
  const View<T**> normed =
      array_in<T>(buffers.workspace, workspace_.normed, rows_ * width_).matrix(count, width_);
  norm_forward<T>(exec, norm_, own_parameters(buffers),
                  buffers.input.matrix(rows_, width_).row_range(0, count),
                  statistics_in(buffers.workspace).row_range(0, count), normed);
  math::linear_cross_entropy_forward<T>(
      exec, normed, weight(buffers), buffers.targets.range(0, count),
      array_in<Compute>(buffers.output, 0, rows_).range(0, count), logits_in(buffers.workspace));
}

template <class T>
void HeadUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers, compute_t<T> loss_scale,
                           bool /*gradients_opened*/) const {
  const View<const T**> x = buffers.input.matrix(rows_, width_);
  const View<T**> gradient = buffers.gradient.matrix(rows_, width_);
  const View<T**> dnormed =
      array_in<T>(buffers.workspace, workspace_.normed, rows_ * width_).matrix(rows_, width_);
  const NormStatistics<T> norm_statistics = statistics_in(buffers.workspace);

  const View<T**> normed = gradient;
  norm_forward<T>(exec, norm_, own_parameters(buffers), x, norm_statistics, normed);
  const View<const std::int32_t*> targets = buffers.targets.range(0, rows_);
  const View<Compute*> losses = array_in<Compute>(buffers.output, 0, rows_);
  LeafSums<T> sums;
  if (leaf_.sums_by_leaf()) {
    sums = {leaf_.leaves(), array_in<Compute>(buffers.workspace, workspace_.sums, sum_elements())};
    math::linear_cross_entropy_backward_by_piece<T>(
        exec, normed, weight(buffers), targets, loss_scale, losses, dnormed,
        weight_gradient(buffers), sums.leaves,
        array_in<T>(buffers.workspace, workspace_.logits, by_leaf_elements()));
  } else {
    math::linear_cross_entropy_backward<T>(exec, normed, weight(buffers), targets, loss_scale,
                                           losses, dnormed, weight_gradient(buffers),
                                           logits_in(buffers.workspace));
  }
  if (tied_ && weight_.trained()) {  // the rest of that unit's parameters has no part in this
    const std::int64_t written = vocabulary_ * width_;
    math::fill<Compute>(exec, buffers.tied_gradients.range(written, tied_elements_), Compute(0));
  }

  // The head's gradient is the first one of the activations: it overwrites.
  norm_backward<T>(exec, norm_, own_parameters(buffers), x, norm_statistics, dnormed,
                   buffers.parameter_gradients, gradient, math::GradientUpdate::overwrite, sums);
}

template <class T>
void HeadUnit<T>::logits(const Exec& exec, View<const T**> x, const UnitBuffers<T>& buffers,
                         View<compute_t<T>**> out) const {
  using math::Transpose;
  require(x.columns() == width_ && out.columns() == vocabulary_ && out.rows() == x.rows(),
          "logits of x (", x.rows(), ", ", x.columns(), ") into (", out.rows(), ", ", out.columns(),
          "), expected (rows, ", width_, ") into (rows, ", vocabulary_, ")");
  const View<T**> normed =
      array_in<T>(buffers.workspace, 0, x.rows() * width_).matrix(x.rows(), width_);
  const View<Compute*> sums =
      array_in<Compute>(buffers.workspace, logits_normed_bytes(x.rows()), 2 * x.rows());
  NormStatistics<T> statistics{{}, sums.range(x.rows(), 2 * x.rows())};
  if (norm_.mean_elements(x.rows()) > 0) statistics.mean = sums.range(0, x.rows());
  norm_forward<T>(exec, norm_, own_parameters(buffers), x, statistics, normed);
  math::gemm<T>(exec, Transpose::no, Transpose::yes, 1, normed, weight(buffers), 0, out);
}

template <class T>
std::int64_t HeadUnit<T>::logits_workspace_bytes(std::int64_t rows) const {
  return logits_normed_bytes(rows) + bytes_of<Compute>(2 * rows);  // then mean and rstd
}

template <class T>
std::int64_t HeadUnit<T>::logits_normed_bytes(std::int64_t rows) const {
  return round_up(bytes_of<T>(rows * width_), sizeof(Compute));
}

template <class T>
View<const T**> HeadUnit<T>::weight(const UnitBuffers<T>& buffers) const {
  const FlatParameter<T> flat = tied_ ? tied_parameters(buffers) : own_parameters(buffers);
  return flat.at(weight_).matrix(vocabulary_, width_);
}

template <class T>
View<compute_t<T>**> HeadUnit<T>::weight_gradient(const UnitBuffers<T>& buffers) const {
  const View<Compute*> flat = tied_ ? buffers.tied_gradients : buffers.parameter_gradients;
  return gradient_at(flat, weight_).matrix(vocabulary_, width_);
}

template <class T>
NormStatistics<T> HeadUnit<T>::statistics_in(View<std::byte*> workspace) const {
  NormStatistics<T> statistics{{}, array_in<Compute>(workspace, workspace_.rstd, rows_)};
  if (norm_.mean_elements(rows_) > 0)
    statistics.mean = array_in<Compute>(workspace, workspace_.mean, rows_);
  return statistics;
}

template <class T>
View<T*> HeadUnit<T>::logits_in(View<std::byte*> workspace) const {
  return array_in<T>(workspace, workspace_.logits,
                     math::linear_cross_entropy_workspace<T>(rows_, vocabulary_, leaf_.kernels));
}

template class HeadUnit<float>;
template class HeadUnit<double>;
template class HeadUnit<bf16>;
template class HeadUnit<fp16>;

}  // namespace ostrakon::model
