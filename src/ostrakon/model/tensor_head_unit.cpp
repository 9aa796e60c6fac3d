// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/tensor_head_unit.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/linear_cross_entropy.hpp>
#include <ostrakon/model/head.hpp>

namespace ostrakon::model {

template <class T>
TensorHeadUnit<T>::TensorHeadUnit(const DecoderSettings& settings, LeafShape leaf,
                                  const Unit<T>* tied_to, const Frozen& frozen)
    : leaf_(leaf),
      width_(settings.width),
      vocabulary_(settings.vocabulary),
      vectors_(leaf, settings.width),
      tied_(tied_to != nullptr) {
  description_.name = "head";
  parameters_ = head_parameters(settings);
  const SegmentSizes sizes =
      lay_out_parameters(parameters_, description_.name, frozen, leaf.tensor_pieces());
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  pieces_ = piece_sizes(parameters_);
  norm_ = vectors_.add_norm(parameters_, "norm", settings.norm, settings.norm_epsilon);
  const Parameter& table = tied_ ? tied_to->parameters().front() : parameters_.back();
  if (tied_) require_table(table, vocabulary_, width_);
  weight_ = piece_location(table);
  piece_words_ = table.piece_rows(leaf.tensor_pieces());
  if (tied_) {
    tied_pieces_ = piece_sizes(tied_to->parameters());
    description_.tied_to = 0;
    description_.tied_gradients = weight_.trained();
  }

  Arrays<T> saved;
  saved_in(saved);
  description_.saved_bytes = saved.size();
  description_.output_bytes = bytes_of<Compute>(leaf.own_rows());
  const std::int64_t t = bytes_of<T>(1), c = bytes_of<Compute>(1);
  const plan::Exchange of_statistics{plan::ExchangeKind::gather,
                                     {plan::Axis::tensor, static_cast<int>(leaf.tensor_ranks)},
                                     leaf.tensor_pieces() * math::piece_statistics * leaf.rows(),
                                     c};
  description_.forward = {{}, {}, {}, {}};
  description_.backward = {{}, {}, {}, {}, {}, {}};
  for (plan::Phases* phases : {&description_.forward, &description_.backward}) {
    (*phases)[vectors].then = vectors_.gather(t);
    (*phases)[norm].then = gather_rows(leaf, width_, t);
    (*phases)[statistics].then = of_statistics;
    (*phases)[norm].reads = {vectors};
    (*phases)[statistics].reads = {norm};
    (*phases)[gradients].reads = {statistics};
    for (std::size_t p = 0; p < phases->size(); ++p) {
      Arrays<T> arrays;
      work_in(arrays, static_cast<int>(p));
      (*phases)[p].workspace_bytes = arrays.size();
    }
  }
  description_.backward[gradients].then = sum_rows(leaf, width_, c);
  description_.backward[input].reads = {gradients};
  description_.backward[input].then = vectors_.sum(c);
  description_.backward.back().reads = {input};
  const double flops = 2.0 * static_cast<double>(leaf.rows() * width_) *
                       static_cast<double>(leaf.own_pieces() * piece_words_);
  description_.forward[statistics].flops = flops;
  description_.gradient_flops = (weight_.trained() ? 2.0 : 1.0) * flops;
  description_.backward[statistics].flops = flops;
  description_.backward[gradients].flops = flops + description_.gradient_flops;
  const auto rows = static_cast<double>(leaf.rows());
  const double words = rows * static_cast<double>(leaf.own_pieces() * piece_words_);
  const double of_norm = rows * static_cast<double>(2 * bytes_of<T>(width_));
  const plan::KernelWork product =
      plan::product_work(flops, width_, leaf.own_pieces() * piece_words_);
  const plan::KernelWork of_logits =
      product + plan::row_work(words * static_cast<double>(bytes_of<compute_t<T>>(1))) +
      plan::row_work(of_norm);
  description_.forward[statistics].work = of_logits;
  description_.backward[statistics].work = of_logits;
  description_.backward[gradients].work =
      of_logits + (weight_.trained() ? 2.0 : 1.0) * product +
      plan::row_work(words * static_cast<double>(bytes_of<T>(1)));
  description_.backward.back().work = plan::row_work(2.0 * of_norm, 2.0);
  description_.sums_tied_apart = leaf.sums_by_leaf() && description_.tied_gradients;
}

template <class T>
typename TensorHeadUnit<T>::Saved TensorHeadUnit<T>::saved_in(Arrays<T>& arrays) const {
  Saved saved;
  saved.vectors = arrays.template take<T>(vectors_.elements());
  saved.norm.mean = arrays.template take<Compute>(norm_.mean_elements(leaf_.own_rows()));
  saved.norm.rstd = arrays.template take<Compute>(leaf_.own_rows());
  saved.normed = arrays.matrix(leaf_.rows(), width_);
  saved.norms = arrays.template take<Compute>(vectors_.summed_elements());
  return saved;
}

template <class T>
typename TensorHeadUnit<T>::Work TensorHeadUnit<T>::work_in(Arrays<T>& arrays, int phase) const {
  Work work;
  const std::int64_t rows = leaf_.rows();
  if (phase == gradients) {
    work.losses = arrays.template take<Compute>(rows);
    work.log_sums = arrays.template take<Compute>(rows);
    work.tree =
        arrays.template take<Compute>((math::tree_slots(leaf_.own_pieces()) - 1) * rows * width_);
  }
  if (phase == statistics || phase == gradients)
    work.logits = arrays.template take<T>(math::cross_entropy_piece_workspace<T>(
        rows, width_, piece_words_, leaf_.leaves(), leaf_.kernels));
  if (phase == input) {
    work.sums = arrays.template take<Compute>(norm_sums_workspace(width_, leaf_.own_row_leaves()));
    if (!std::is_same<T, Compute>::value) work.dnormed = arrays.matrix(leaf_.own_rows(), width_);
  }
  return work;
}

template <class T>
std::int64_t TensorHeadUnit<T>::first_word(std::int64_t tensor_rank, std::int64_t piece) const {
  return leaf_.piece_of(tensor_rank, piece) * piece_words_;
}

template <class T>
View<const T**> TensorHeadUnit<T>::weight(const UnitBuffers<T>& buffers, std::int64_t piece) const {
  const std::int64_t first = first_word(buffers.tensor_rank, piece);
  const FlatParameter<T> flat =
      tied_ ? tied_piece<T>(buffers, tied_pieces_, piece) : own_piece<T>(buffers, pieces_, piece);
  return flat.at(weight_).matrix(std::min(piece_words_, vocabulary_ - first), width_);
}

/// Does not exist where the weight is frozen. All else of the other unit's gradients is zero: it
/// has no part in this.
template <class T>
View<compute_t<T>**> TensorHeadUnit<T>::weight_gradient(const Exec& exec,
                                                        const UnitBuffers<T>& buffers,
                                                        std::int64_t piece) const {
  if (!weight_.trained()) return {};
  const std::int64_t first = first_word(buffers.tensor_rank, piece);
  const std::int64_t words = std::min(piece_words_, vocabulary_ - first);
  const View<Compute*> flat = tied_ ? tied_piece_gradients<T>(buffers, tied_pieces_, piece)
                                    : own_piece_gradients<T>(buffers, pieces_, piece);
  if (tied_) math::fill<Compute>(exec, flat.range(words * width_, flat.size()), Compute(0));
  return gradient_at(flat, weight_).matrix(words, width_);
}

template <class T>
void TensorHeadUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                                RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  switch (buffers.phase) {
    case vectors:
      return vectors_.hand<T>(exec, buffers, pieces_);
    case norm:
      return normalize(exec, buffers);
    case statistics:
      return find_statistics(exec, buffers,
                             view_as<const T>(buffers.exchanged).matrix(leaf_.rows(), width_));
    default:
      find_losses(exec, buffers);
  }
}

template <class T>
void TensorHeadUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                 compute_t<T> loss_scale, bool /*gradients_opened*/) const {
  switch (buffers.phase) {
    case vectors:
      return vectors_.hand<T>(exec, buffers, pieces_);
    case norm:
      return normalize(exec, buffers);
    case statistics: {
      Arrays<T> arrays(buffers.saved);
      const View<T**> normed = saved_in(arrays).normed;
      math::copy<T>(exec, view_as<const T>(buffers.exchanged), normed.flat());
      return find_statistics(exec, buffers, normed);
    }
    case gradients:
      return find_gradients(exec, buffers, loss_scale);
    case input:
      return input_backward(exec, buffers);
    default:
      return vectors_.take_gradients<T>(exec, buffers, pieces_);
  }
}

template <class T>
void TensorHeadUnit<T>::normalize(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.saved);
  const Saved saved = saved_in(arrays);
  vectors_.take<T>(exec, buffers, saved.vectors);
  norm_forward<T>(exec, norm_, {saved.vectors, saved.vectors},
                  buffers.input.matrix(leaf_.own_rows(), width_), saved.norm,
                  view_as<T>(buffers.handed).matrix(leaf_.own_rows(), width_));
}

template <class T>
void TensorHeadUnit<T>::find_statistics(const Exec& exec, const UnitBuffers<T>& buffers,
                                        View<const T**> normed) const {
  Arrays<T> arrays(buffers.workspace);
  const Work work = work_in(arrays, statistics);
  const View<Compute**> all =
      view_as<Compute>(buffers.handed)
          .matrix(leaf_.own_pieces() * math::piece_statistics, leaf_.rows());
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    math::cross_entropy_statistics<T>(
        exec, normed, weight(buffers, piece), first_word(buffers.tensor_rank, piece),
        buffers.targets.range(0, leaf_.rows()),
        all.row_range(piece * math::piece_statistics, (piece + 1) * math::piece_statistics),
        work.logits);
}

/// Of all rows; outputs those of its own.
template <class T>
typename TensorHeadUnit<T>::Work TensorHeadUnit<T>::find_losses(
    const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.workspace);
  const Work work = work_in(arrays, gradients);
  const std::int64_t first = buffers.tensor_rank * leaf_.own_rows();
  math::combine_statistics<Compute>(
      exec,
      view_as<const Compute>(buffers.exchanged)
          .matrix(leaf_.tensor_pieces() * math::piece_statistics, leaf_.rows()),
      piece_words_, buffers.targets.range(0, leaf_.rows()), work.losses, work.log_sums);
  if (buffers.output)
    math::copy<Compute>(exec, work.losses.range(first, first + leaf_.own_rows()),
                        array_in<Compute>(buffers.output, 0, leaf_.own_rows()));
  return work;
}

template <class T>
void TensorHeadUnit<T>::find_gradients(const Exec& exec, const UnitBuffers<T>& buffers,
                                       Compute loss_scale) const {
  Arrays<T> arrays(buffers.saved);
  const View<T**> normed = saved_in(arrays).normed;
  const Work work = find_losses(exec, buffers);
  // A piece's words are summed some at a time: no sum is added to another before it is complete.
  constexpr std::int64_t not_at_once = std::numeric_limits<std::int64_t>::max();
  math::sum_products<T>(exec, leaf_.own_pieces(), not_at_once,
                        view_as<Compute>(buffers.handed).matrix(leaf_.rows(), width_), work.tree,
                        [&](std::int64_t piece, Compute /*beta*/, View<Compute**> to) {
                          math::cross_entropy_gradients<T>(
                              exec, normed, weight(buffers, piece),
                              first_word(buffers.tensor_rank, piece),
                              buffers.targets.range(0, leaf_.rows()), work.log_sums, loss_scale, to,
                              weight_gradient(exec, buffers, piece), leaf_.leaves(), work.logits);
                        });
}

template <class T>
void TensorHeadUnit<T>::input_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> of_saved(buffers.saved), of_work(buffers.workspace);
  const Saved saved = saved_in(of_saved);
  const Work work = work_in(of_work, input);
  const View<const T**> dnormed =
      summed_rows<T>(exec, buffers.exchanged, leaf_.own_rows(), width_, work.dnormed);
  math::fill<Compute>(exec, saved.norms, Compute(0));
  norm_backward<T>(exec, norm_, {saved.vectors, saved.vectors},
                   buffers.input.matrix(leaf_.own_rows(), width_), saved.norm, dnormed, saved.norms,
                   buffers.gradient.matrix(leaf_.own_rows(), width_),
                   math::GradientUpdate::overwrite, {leaf_.own_row_leaves(), work.sums});
  vectors_.hand_gradients<T>(exec, saved.norms, buffers);
}

template class TensorHeadUnit<float>;
template class TensorHeadUnit<double>;
template class TensorHeadUnit<bf16>;
template class TensorHeadUnit<fp16>;

}  // namespace ostrakon::model
