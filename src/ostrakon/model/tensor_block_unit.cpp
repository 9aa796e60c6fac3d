// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/tensor_block_unit.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <string>

namespace ostrakon::model {

using math::Transpose;

// ---- forward ------------------------------------------------------------------------------------

template <class T>
void TensorBlockUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                                 RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  switch (forward_steps_[static_cast<std::size_t>(buffers.phase)]) {
    case Step::vectors:
      return vectors_.hand<T>(exec, buffers, pieces_);
    case Step::norm:
      return normalize(exec, buffers);
    case Step::project:
      project(exec, buffers);
      return hand_keys_and_values(exec, buffers);
    case Step::attend:
      if (leaf_.parts == 1) project(exec, buffers);
      return attend(exec, buffers);
    case Step::mlp_norm:
      return normalize_middle(exec, buffers);
    case Step::mlp:
      return mlp(exec, buffers);
    default:
      return output(exec, buffers);
  }
}

template <class T>
void TensorBlockUnit<T>::normalize(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, false);
  vectors_.take<T>(exec, buffers, saved.vectors);
  norm_forward<T>(exec, attention_norm_, vectors_in(saved),
                  buffers.input.matrix(sizes_.own_rows, sizes_.width),
                  recompute_.norms ? work.statistics : saved.attention_norm,
                  view_as<T>(buffers.handed).matrix(sizes_.own_rows, sizes_.width));
}

/// qkv = norm(x) Wqkv^T, rotated, of its heads.
template <class T>
void TensorBlockUnit<T>::project(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  const auto normed = view_as<const T>(buffers.exchanged).matrix(sizes_.rows, sizes_.width);
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece) {
    const View<T**> qkv = piece_of(saved.qkv, piece, sizes_.qkv());
    linear_forward<T>(exec, qkv_, own_piece<T>(buffers, pieces_, piece), normed, qkv);
    rotate(exec, math::Rotation::forward, qkv, buffers.part);
  }
}

template <class T>
void TensorBlockUnit<T>::attend(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const AttentionWork work = attention_work(arrays, false);
  const bool again = recompute_.attention;
  math::sum_products<T>(
      exec, leaf_.own_pieces(), out_.inputs,
      view_as<Compute>(buffers.handed).matrix(sizes_.rows, sizes_.width), work.tree,
      [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        const View<T**> attention =
            piece_of(again ? work.attention : saved.attention, again ? 0 : piece, sizes_.queries);
        attention_of_piece(
            exec, buffers, piece, work, attention,
            log_sums_of(again ? work.log_sum_exp : saved.log_sum_exp, again ? 0 : piece));
        const View<const T**> weight =
            own_piece<T>(buffers, pieces_, piece).at(out_.weight).matrix(out_.outputs, out_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1, attention, weight, beta, to);
      });
}

/// middle = x + attention Wout^T, and its norm.
template <class T>
void TensorBlockUnit<T>::normalize_middle(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, false);
  math::add_residual<T>(
      exec, buffers.input.matrix(sizes_.own_rows, sizes_.width),
      view_as<const Compute>(buffers.exchanged).matrix(sizes_.own_rows, sizes_.width),
      vectors_in(saved).at(out_bias_), saved.middle);
  const bool only_saves = !buffers.handed;
  if (only_saves && recompute_.norms) return;
  norm_forward<T>(
      exec, mlp_norm_, vectors_in(saved), saved.middle,
      recompute_.norms ? work.statistics : saved.mlp_norm,
      only_saves ? work.normed : view_as<T>(buffers.handed).matrix(sizes_.own_rows, sizes_.width));
}

template <class T>
void TensorBlockUnit<T>::mlp(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const MlpWork work = mlp_work(arrays, false);
  const auto normed = view_as<const T>(buffers.exchanged).matrix(sizes_.rows, sizes_.width);
  const auto up_of = [&](std::int64_t piece) {
    const View<T**> up = recompute_.mlp ? work.up : piece_of(saved.up, piece, sizes_.up);
    linear_forward<T>(exec, up_, own_piece<T>(buffers, pieces_, piece), normed, up);
    return up;
  };
  if (!buffers.handed) {
    for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece) up_of(piece);
    return;
  }
  math::sum_products<T>(exec, leaf_.own_pieces(), down_.inputs,
                        view_as<Compute>(buffers.handed).matrix(sizes_.rows, sizes_.width),
                        work.tree, [&](std::int64_t piece, Compute beta, View<Compute**> to) {
                          activate(exec, up_of(piece), work.activated);
                          const View<const T**> weight = own_piece<T>(buffers, pieces_, piece)
                                                             .at(down_.weight)
                                                             .matrix(down_.outputs, down_.inputs);
                          math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1,
                                                 work.activated, weight, beta, to);
                        });
}

template <class T>
void TensorBlockUnit<T>::output(const Exec& exec, const UnitBuffers<T>& buffers) const {
  if (!buffers.output) return;
  const Saved saved = saved_in(buffers);
  math::add_residual<T>(
      exec, saved.middle,
      view_as<const Compute>(buffers.exchanged).matrix(sizes_.own_rows, sizes_.width),
      vectors_in(saved).at(down_bias_), buffers.output.matrix(sizes_.own_rows, sizes_.width));
}

template <class T>
void TensorBlockUnit<T>::rotate(const Exec& exec, math::Rotation rotation, View<T**> qkv,
                                std::int64_t part) const {
  if (positions_ != Positions::rotary) return;
  const std::int64_t head_width = attention_.head_width;
  const View<T**> rotated =
      qkv.column_range(0, (attention_.heads + attention_.kv_heads) * head_width);
  if (!leaf_.is_cut()) {
    math::rotate<T>(exec, rotation, rotated, head_width, rotary_base_, leaf_.tokens, 0);
    return;
  }
  leaf_.for_each_run(part, [&](std::int64_t first, const math::TokenRun& run) {
    math::rotate<T>(exec, rotation, rotated.row_range(first, first + run.count), head_width,
                    rotary_base_, run.count, run.position);
  });
}

template <class T>
void TensorBlockUnit<T>::activate(const Exec& exec, View<const T**> up, View<T**> activated) const {
  if (activation_ == Activation::gelu)
    math::gelu_forward<T>(exec, up, activated);
  else
    math::swiglu_forward<T>(exec, up, activated);
}

// ---- attention ----------------------------------------------------------------------------------

/// Keys and values of all its heads, row by row.
template <class T>
void TensorBlockUnit<T>::hand_keys_and_values(const Exec& exec,
                                              const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  const View<T**> all =
      view_as<T>(buffers.handed).matrix(sizes_.rows, leaf_.own_pieces() * sizes_.kv);
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    math::copy_rows<T, T>(
        exec, piece_of(saved.qkv, piece, sizes_.qkv()).column_range(sizes_.queries, sizes_.qkv()),
        all.column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv));
}

/// Those of a piece's heads in the order of positions: gathered, or this rank's.
template <class T>
View<T**> TensorBlockUnit<T>::keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers,
                                              std::int64_t piece, View<T**> in_order) const {
  const View<T**> own = piece_of(saved_in(buffers).qkv, piece, sizes_.qkv())
                            .column_range(sizes_.queries, sizes_.qkv());
  if (!leaf_.is_cut()) return own;
  const View<const T**> by_part =
      leaf_.parts > 1 ? view_as<const T>(buffers.exchanged)
                            .matrix(sequence_rows(), leaf_.own_pieces() * sizes_.kv)
                            .column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv)
                      : View<const T**>(own);
  math::put_in_order<T>(exec, leaf_.sequence(), by_part, in_order);
  return in_order;
}

template <class T>
void TensorBlockUnit<T>::attention_of_piece(const Exec& exec, const UnitBuffers<T>& buffers,
                                            std::int64_t piece, const AttentionWork& work,
                                            View<T**> attention, View<Compute*> log_sum_exp) const {
  const View<T**> qkv = piece_of(saved_in(buffers).qkv, piece, sizes_.qkv());
  if (!leaf_.is_cut()) {
    math::attention_forward<T>(exec, attention_, qkv, 0, leaf_.tokens, attention, log_sum_exp,
                               work.scores);
    return;
  }
  math::attention_forward<T>(exec, attention_, {leaf_.sequence(), buffers.part}, qkv,
                             keys_and_values(exec, buffers, piece, work.kv), attention, log_sum_exp,
                             work.scores);
}

/// The gradient of Wout, and those of the piece's queries, keys and values: in work.dqkv, or with
/// context queries' there and the others', of all parts, in work.dkv.
template <class T>
void TensorBlockUnit<T>::attention_backward_of_piece(const Exec& exec,
                                                     const UnitBuffers<T>& buffers,
                                                     std::int64_t piece, const AttentionWork& work,
                                                     View<const T**> dmiddle) const {
  const Saved saved = saved_in(buffers);
  const bool again = recompute_.attention;
  const View<T**> qkv = piece_of(saved.qkv, piece, sizes_.qkv());
  const View<T**> attention =
      piece_of(again ? work.attention : saved.attention, again ? 0 : piece, sizes_.queries);
  const View<Compute*> log_sum_exp =
      log_sums_of(again ? work.log_sum_exp : saved.log_sum_exp, again ? 0 : piece);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  const Gradients gradients = own_piece_gradients<T>(buffers, pieces_, piece);
  if (again) attention_of_piece(exec, buffers, piece, work, attention, log_sum_exp);
  linear_backward_parameters<T>(exec, out_, attention, dmiddle, gradients, sums);
  bias_gradient(exec, buffers, out_bias_piece_, piece, dmiddle, sums);
  linear_backward_input<T>(exec, out_, own_piece<T>(buffers, pieces_, piece), dmiddle,
                           work.dattention);
  if (!leaf_.is_cut()) {
    math::attention_backward<T>(exec, attention_, qkv, attention, log_sum_exp, work.dattention,
                                work.dqkv, work.scores);
    return;
  }
  math::attention_backward<T>(exec, attention_, {leaf_.sequence(), buffers.part}, qkv,
                              keys_and_values(exec, buffers, piece, work.kv), attention,
                              log_sum_exp, work.dattention,
                              work.dqkv.column_range(0, sizes_.queries), work.dkv, work.scores);
  if (leaf_.parts == 1)
    math::put_by_part<Compute, T>(exec, leaf_.sequence(), View<const Compute**>(work.dkv),
                                  work.dqkv.column_range(sizes_.queries, sizes_.qkv()));
}

// ---- backward -----------------------------------------------------------------------------------

template <class T>
void TensorBlockUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                  compute_t<T> /*loss_scale*/, bool /*gradients_opened*/) const {
  switch (backward_steps_[static_cast<std::size_t>(buffers.phase)]) {
    case Step::mlp_norm:
      return hand_mlp_inputs(exec, buffers);
    case Step::mlp:
      return mlp_backward(exec, buffers);
    case Step::norm:
      return hand_attention_inputs(exec, buffers);
    case Step::gather:
      return hand_keys_and_values(exec, buffers);
    case Step::attend:
      return attend_backward(exec, buffers);
    case Step::project:
      return project_backward(exec, buffers);
    case Step::input:
      return input_backward(exec, buffers);
    default:
      return vectors_.take_gradients<T>(exec, buffers, pieces_);
  }
}

/// dL/dy and norm(middle), row by row.
template <class T>
void TensorBlockUnit<T>::hand_mlp_inputs(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, true);
  const std::int64_t width = sizes_.width;
  const View<T**> both = view_as<T>(buffers.handed).matrix(sizes_.own_rows, 2 * width);
  math::copy_rows<T, T>(exec, buffers.gradient.matrix(sizes_.own_rows, width),
                        both.column_range(0, width));
  norm_again(exec, mlp_norm_, buffers, saved.middle,
             recompute_.norms ? work.statistics : saved.mlp_norm,
             both.column_range(width, 2 * width));
}

template <class T>
void TensorBlockUnit<T>::mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const MlpWork work = mlp_work(arrays, true);
  const std::int64_t width = sizes_.width;
  const auto both = view_as<const T>(buffers.exchanged).matrix(sizes_.rows, 2 * width);
  const View<const T**> dy = both.column_range(0, width),
                        normed = both.column_range(width, 2 * width);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  const bool gelu = activation_ == Activation::gelu;
  math::sum_products<T>(
      exec, leaf_.own_pieces(), up_.outputs,
      view_as<Compute>(buffers.handed).matrix(sizes_.rows, width), work.tree,
      [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        const FlatParameter<T> parameters = own_piece<T>(buffers, pieces_, piece);
        const Gradients gradients = own_piece_gradients<T>(buffers, pieces_, piece);
        const View<T**> up = recompute_.mlp ? work.up : piece_of(saved.up, piece, sizes_.up);
        const View<T**> activated = work.activated, dactivated = work.activated;
        if (recompute_.mlp) linear_forward<T>(exec, up_, parameters, normed, up);
        if (down_.weight.trained()) activate(exec, up, activated);
        linear_backward_parameters<T>(exec, down_, activated, dy, gradients, sums);
        bias_gradient(exec, buffers, down_bias_piece_, piece, dy, sums);
        linear_backward_input<T>(exec, down_, parameters, dy, dactivated);
        const View<T**> dup = gelu ? dactivated : up;
        if (gelu)
          math::gelu_backward<T>(exec, up, dactivated, dup);
        else
          math::swiglu_backward<T>(exec, up, dactivated, dup);
        linear_backward_parameters<T>(exec, up_, normed, dup, gradients, sums);
        const View<const T**> weight = parameters.at(up_.weight).matrix(up_.outputs, up_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::no, 1, dup, weight, beta, to);
      });
}

/// dL/dmiddle, which replaces dL/dy, and norm(x), row by row.
template <class T>
void TensorBlockUnit<T>::hand_attention_inputs(const Exec& exec,
                                               const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, true);
  const std::int64_t width = sizes_.width;
  const View<T**> both = view_as<T>(buffers.handed).matrix(sizes_.own_rows, 2 * width);
  const View<T**> normed = both.column_range(width, 2 * width);
  math::fill<Compute>(exec, saved.norms, Compute(0));
  // Only its statistics are wanted.
  if (recompute_.norms) norm_again(exec, mlp_norm_, buffers, saved.middle, work.statistics, normed);
  add_norm_gradient(exec, mlp_norm_, buffers, saved.middle,
                    recompute_.norms ? work.statistics : saved.mlp_norm, work);
  math::copy_rows<T, T>(exec, buffers.gradient.matrix(sizes_.own_rows, width),
                        both.column_range(0, width));
  norm_again(exec, attention_norm_, buffers, buffers.input.matrix(sizes_.own_rows, width),
             recompute_.norms ? work.statistics : saved.attention_norm, normed);
}

template <class T>
void TensorBlockUnit<T>::attend_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const AttentionWork work = attention_work(arrays, true);
  const std::int64_t width = sizes_.width, own = leaf_.own_pieces();
  const View<const T**> both =
      view_as<const T>(leaf_.parts > 1 ? buffers.exchanged_before : buffers.exchanged)
          .matrix(sizes_.rows, 2 * width);
  const View<const T**> dmiddle = both.column_range(0, width);
  if (leaf_.parts > 1) {
    const View<Compute**> handed =
        view_as<Compute>(buffers.handed).matrix(sequence_rows(), own * sizes_.kv);
    for (std::int64_t piece = 0; piece < own; ++piece) {
      attention_backward_of_piece(exec, buffers, piece, work, dmiddle);
      math::put_by_part<Compute, Compute>(
          exec, leaf_.sequence(), View<const Compute**>(work.dkv),
          handed.column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv));
      // Those of queries wait where the queries were, which have served.
      math::copy_rows<T, T>(
          exec, work.dqkv.column_range(0, sizes_.queries),
          piece_of(saved.qkv, piece, sizes_.qkv()).column_range(0, sizes_.queries));
    }
    return;
  }
  const View<const T**> normed = both.column_range(width, 2 * width);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  math::sum_products<T>(
      exec, own, qkv_.outputs, view_as<Compute>(buffers.handed).matrix(sizes_.rows, width),
      work.tree, [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        attention_backward_of_piece(exec, buffers, piece, work, dmiddle);
        rotate(exec, math::Rotation::inverse, work.dqkv, buffers.part);
        linear_backward_parameters<T>(exec, qkv_, normed, work.dqkv,
                                      own_piece_gradients<T>(buffers, pieces_, piece), sums);
        const View<const T**> weight =
            own_piece<T>(buffers, pieces_, piece).at(qkv_.weight).matrix(qkv_.outputs, qkv_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::no, 1, work.dqkv, weight, beta, to);
      });
}

/// With context, once keys' and values' gradients are summed over the parts.
template <class T>
void TensorBlockUnit<T>::project_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const AttentionWork work = attention_work(arrays, true);
  const std::int64_t width = sizes_.width, own = leaf_.own_pieces();
  const auto summed =
      view_as<const Compute>(buffers.exchanged).matrix(sizes_.rows, own * sizes_.kv);
  const View<const T**> normed = view_as<const T>(buffers.exchanged_before)
                                     .matrix(sizes_.rows, 2 * width)
                                     .column_range(width, 2 * width);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  math::sum_products<T>(
      exec, own, qkv_.outputs, view_as<Compute>(buffers.handed).matrix(sizes_.rows, width),
      work.tree, [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        const View<T**> dqkv = piece_of(saved.qkv, piece, sizes_.qkv());
        math::copy_rows<Compute, T>(exec,
                                    summed.column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv),
                                    dqkv.column_range(sizes_.queries, sizes_.qkv()));
        rotate(exec, math::Rotation::inverse, dqkv, buffers.part);
        linear_backward_parameters<T>(exec, qkv_, normed, dqkv,
                                      own_piece_gradients<T>(buffers, pieces_, piece), sums);
        const View<const T**> weight =
            own_piece<T>(buffers, pieces_, piece).at(qkv_.weight).matrix(qkv_.outputs, qkv_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::no, 1, dqkv, weight, beta, to);
      });
}

template <class T>
void TensorBlockUnit<T>::input_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, true);
  const View<const T**> x = buffers.input.matrix(sizes_.own_rows, sizes_.width);
  if (recompute_.norms) norm_again(exec, attention_norm_, buffers, x, work.statistics, work.normed);
  add_norm_gradient(exec, attention_norm_, buffers, x,
                    recompute_.norms ? work.statistics : saved.attention_norm, work);
  vectors_.hand_gradients<T>(exec, saved.norms, buffers);
}

/// What norm_forward wrote, bit for bit: the output from the statistics, or both.
template <class T>
void TensorBlockUnit<T>::norm_again(const Exec& exec, const Norm& norm,
                                    const UnitBuffers<T>& buffers, View<const T**> x,
                                    NormStatistics<T> statistics, View<T**> normed) const {
  const FlatParameter<T> vectors = vectors_in(saved_in(buffers));
  if (recompute_.norms)
    norm_forward<T>(exec, norm, vectors, x, statistics, normed);
  else
    norm_apply<T>(exec, norm, vectors, x, statistics, normed);
}

/// Adds to `gradient` what came for the norm's output, through it, and keeps its weights' sums.
template <class T>
void TensorBlockUnit<T>::add_norm_gradient(const Exec& exec, const Norm& norm,
                                           const UnitBuffers<T>& buffers, View<const T**> x,
                                           const NormStatistics<T>& statistics,
                                           const NormWork& work) const {
  const Saved saved = saved_in(buffers);
  const auto came = view_as<const Compute>(buffers.exchanged).matrix(sizes_.own_rows, sizes_.width);
  View<const T**> dnormed;
  if constexpr (std::is_same<T, Compute>::value) {
    dnormed = came;
  } else {
    math::copy_rows<Compute, T>(exec, came, work.dnormed);
    dnormed = work.dnormed;
  }
  norm_backward<T>(exec, norm, vectors_in(saved), x, statistics, dnormed, saved.norms,
                   buffers.gradient.matrix(sizes_.own_rows, sizes_.width),
                   math::GradientUpdate::add, {own_row_leaves(leaf_), work.sums});
}

/// Of a bias that is added to whole rows, the piece's columns.
template <class T>
void TensorBlockUnit<T>::bias_gradient(const Exec& exec, const UnitBuffers<T>& buffers,
                                       const ParameterLocation& bias, std::int64_t piece,
                                       View<const T**> dy, const LeafSums<T>& sums) const {
  if (!bias.trained()) return;
  Linear layer;
  layer.bias = bias;
  const std::int64_t first = vectors_.first_column(buffers.tensor_rank, piece);
  linear_backward_parameters<T>(exec, layer, {},
                                dy.column_range(first, first + vectors_.columns_of_piece()),
                                own_piece_gradients<T>(buffers, pieces_, piece), sums);
}

// ---- parameters, buffers, sizes -----------------------------------------------------------------

template <class T>
TensorBlockUnit<T>::TensorBlockUnit(const DecoderSettings& settings, LeafShape leaf,
                                    std::int64_t index, Recompute recompute, const Frozen& frozen)
    : leaf_(leaf),
      recompute_(recompute),
      attention_{leaf.batch, leaf.tokens, settings.heads / leaf.tensor_pieces(),
                 settings.kv_heads / leaf.tensor_pieces(), settings.head_width()},
      activation_(settings.activation),
      positions_(settings.positions),
      rotary_base_(settings.rotary_base),
      vectors_(leaf, settings.width) {
  const std::int64_t head_width = settings.head_width(), pieces = leaf.tensor_pieces();
  sizes_ = {leaf.rows(),
            leaf.own_rows(),
            settings.width,
            attention_.heads * head_width,
            2 * attention_.kv_heads * head_width,
            settings.ffn_width / pieces,
            (settings.activation == Activation::gelu ? 1 : 2) * settings.ffn_width / pieces};
  description_.name = "block." + std::to_string(index);
  add_parameters(settings, frozen);
  add_phases();
  describe();
}

template <class T>
void TensorBlockUnit<T>::add_parameters(const DecoderSettings& settings, const Frozen& frozen) {
  parameters_ = block_parameters(settings);
  const std::string up = name_of_up(settings);
  const std::int64_t head_width = settings.head_width(), kv = settings.kv_heads * head_width;
  cut_rows(parameters_, "attention.qkv", {settings.width, kv, kv});
  cut_columns(parameters_, "attention.out");
  if (settings.activation == Activation::gelu)
    cut_rows(parameters_, up, {settings.ffn_width});
  else
    cut_rows(parameters_, up, {settings.ffn_width, settings.ffn_width});
  cut_columns(parameters_, "mlp.down");
  const SegmentSizes sizes =
      lay_out_parameters(parameters_, description_.name, frozen, leaf_.tensor_pieces());
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;

  pieces_ = piece_sizes(parameters_);
  attention_norm_ =
      vectors_.add_norm(parameters_, "attention.norm", settings.norm, settings.norm_epsilon);
  mlp_norm_ = vectors_.add_norm(parameters_, "mlp.norm", settings.norm, settings.norm_epsilon);
  out_bias_ = vectors_.add(parameters_, "attention.out.bias", false);
  down_bias_ = vectors_.add(parameters_, "mlp.down.bias", false);
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == "attention.out.bias") out_bias_piece_ = piece_location(parameter);
    if (parameter.name == "mlp.down.bias") down_bias_piece_ = piece_location(parameter);
  }
  qkv_ = find_piece_of_linear(parameters_, "attention.qkv");
  out_ = find_piece_of_linear(parameters_, "attention.out");
  up_ = find_piece_of_linear(parameters_, up);
  down_ = find_piece_of_linear(parameters_, "mlp.down");
}

template <class T>
typename TensorBlockUnit<T>::Saved TensorBlockUnit<T>::saved_in(Arrays<T>& arrays) const {
  const std::int64_t own = leaf_.own_pieces();
  Saved saved;
  saved.vectors = arrays.template take<T>(vectors_.elements());
  const auto statistics = [&](const Norm& norm) {
    NormStatistics<T> made;
    if (recompute_.norms) return made;
    made.mean = arrays.template take<Compute>(norm.mean_elements(sizes_.own_rows));
    made.rstd = arrays.template take<Compute>(sizes_.own_rows);
    return made;
  };
  saved.attention_norm = statistics(attention_norm_);
  saved.mlp_norm = statistics(mlp_norm_);
  saved.qkv = arrays.template take<T>(own * sizes_.rows * sizes_.qkv());
  if (!recompute_.attention) {
    saved.attention = arrays.template take<T>(own * sizes_.rows * sizes_.queries);
    saved.log_sum_exp = arrays.template take<Compute>(own * sizes_.rows * attention_.heads);
  }
  saved.middle = arrays.matrix(sizes_.own_rows, sizes_.width);
  if (!recompute_.mlp) saved.up = arrays.template take<T>(own * sizes_.rows * sizes_.up);
  saved.norms = arrays.template take<Compute>(vectors_.summed_elements());
  return saved;
}

template <class T>
typename TensorBlockUnit<T>::Saved TensorBlockUnit<T>::saved_in(
    const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.saved);
  return saved_in(arrays);
}

template <class T>
typename TensorBlockUnit<T>::NormWork TensorBlockUnit<T>::norm_work(Arrays<T>& arrays,
                                                                    bool is_backward) const {
  NormWork work;
  if (recompute_.norms) {
    work.statistics.mean =
        arrays.template take<Compute>(attention_norm_.mean_elements(sizes_.own_rows));
    work.statistics.rstd = arrays.template take<Compute>(sizes_.own_rows);
  }
  if (is_backward ? recompute_.norms : recompute_.mlp)
    work.normed = arrays.matrix(sizes_.own_rows, sizes_.width);
  if (!is_backward) return work;
  if (!std::is_same<T, Compute>::value) work.dnormed = arrays.matrix(sizes_.own_rows, sizes_.width);
  work.sums =
      arrays.template take<Compute>(leaf_sums_workspace(sizes_.width, own_row_leaves(leaf_)));
  return work;
}

template <class T>
typename TensorBlockUnit<T>::AttentionWork TensorBlockUnit<T>::attention_work(
    Arrays<T>& arrays, bool is_backward) const {
  AttentionWork work;
  std::int64_t scores = math::attention_forward_workspace<T>(attention_);
  if (is_backward) {
    const std::int64_t backward = math::attention_backward_workspace<T>(attention_, leaf_.pieces());
    scores = recompute_.attention ? std::max(scores, backward) : backward;
    work.dattention = arrays.matrix(sizes_.rows, sizes_.queries);
    work.dqkv = arrays.matrix(sizes_.rows, sizes_.qkv());
    work.sums = arrays.template take<Compute>(sum_elements());
  }
  work.scores = arrays.template take<T>(scores);
  if (leaf_.is_cut()) {
    work.kv = arrays.matrix(sequence_rows(), sizes_.kv);
    if (is_backward)
      work.dkv = arrays.template take<Compute>(sequence_rows() * sizes_.kv)
                     .matrix(sequence_rows(), sizes_.kv);
  }
  if (recompute_.attention) {
    work.attention = arrays.template take<T>(sizes_.rows * sizes_.queries);
    work.log_sum_exp = arrays.template take<Compute>(sizes_.rows * attention_.heads);
  }
  work.tree = arrays.template take<Compute>(tree_elements());
  return work;
}

template <class T>
typename TensorBlockUnit<T>::MlpWork TensorBlockUnit<T>::mlp_work(Arrays<T>& arrays,
                                                                  bool is_backward) const {
  MlpWork work;
  if (recompute_.mlp) work.up = arrays.matrix(sizes_.rows, sizes_.up);
  work.activated = arrays.matrix(sizes_.rows, sizes_.ffn);
  if (is_backward) work.sums = arrays.template take<Compute>(sum_elements());
  work.tree = arrays.template take<Compute>(tree_elements());
  return work;
}

/// For gradients of a piece's layers, as sums over leaves.
template <class T>
std::int64_t TensorBlockUnit<T>::sum_elements() const {
  std::int64_t most = leaf_sums_workspace(vectors_.columns_of_piece(), leaf_.leaves());
  for (const Linear& layer : {qkv_, out_, up_, down_})
    most = std::max(most, leaf_sums_workspace(layer, leaf_.leaves()));
  return most;
}

/// For sums over pieces into rows.
template <class T>
std::int64_t TensorBlockUnit<T>::tree_elements() const {
  return (math::tree_slots(leaf_.own_pieces()) - 1) * sizes_.rows * sizes_.width;
}

template <class T>
void TensorBlockUnit<T>::add_phases() {
  const std::int64_t width = sizes_.width, t = bytes_of<T>(1), c = bytes_of<Compute>(1);
  const plan::Span parts{plan::Axis::shard, static_cast<int>(leaf_.parts)};
  const std::int64_t kv = sequence_rows() * leaf_.own_pieces() * sizes_.kv;
  const plan::Exchange gather_kv{plan::ExchangeKind::gather, parts, kv, t};
  const plan::Exchange sum_dkv{plan::ExchangeKind::reduce_scatter, parts, kv, c};
  const plan::Exchange gather = gather_rows(leaf_, width, t), sum = sum_rows(leaf_, width, c);
  const plan::Exchange gather_both = gather_rows(leaf_, 2 * width, t);
  const bool in_parts = leaf_.parts > 1;

  const auto bytes_of_work = [this](Step step, bool is_backward) {
    Arrays<T> arrays;
    switch (step) {
      case Step::norm:
      case Step::mlp_norm:
      case Step::input:
        norm_work(arrays, is_backward);
        break;
      case Step::attend:
        attention_work(arrays, is_backward);
        break;
      case Step::project:
        if (is_backward) attention_work(arrays, true);
        break;
      case Step::mlp:
        mlp_work(arrays, is_backward);
        break;
      default:
        break;
    }
    return arrays.size();
  };
  const auto add = [&](bool is_backward, Step step, std::optional<plan::Exchange> then) {
    plan::Phase phase;
    phase.workspace_bytes = bytes_of_work(step, is_backward);
    phase.then = then;
    (is_backward ? description_.backward : description_.forward).push_back(phase);
    (is_backward ? backward_steps_ : forward_steps_).push_back(step);
  };
  description_.forward.clear();
  description_.backward.clear();
  add(false, Step::vectors, vectors_.gather(t));
  add(false, Step::norm, gather);
  if (in_parts) add(false, Step::project, gather_kv);
  add(false, Step::attend, sum);
  add(false, Step::mlp_norm, gather);
  add(false, Step::mlp, sum);
  add(false, Step::output, {});
  description_.forward.back().recomputes = false;
  if (recompute_.mlp) description_.forward[description_.forward.size() - 2].recomputes = false;

  add(true, Step::mlp_norm, gather_both);
  add(true, Step::mlp, sum);
  add(true, Step::norm, gather_both);
  const auto of_both = static_cast<int>(description_.backward.size()) - 1;
  if (in_parts) add(true, Step::gather, gather_kv);
  add(true, Step::attend, in_parts ? sum_dkv : sum);
  if (in_parts) {
    description_.backward.back().reads_again = of_both;
    add(true, Step::project, sum);
    description_.backward.back().reads_again = of_both;
  }
  add(true, Step::input, vectors_.sum(c));
  add(true, Step::vectors, {});
}

template <class T>
void TensorBlockUnit<T>::describe() {
  Arrays<T> arrays;
  saved_in(arrays);
  description_.saved_bytes = arrays.size();
  description_.output_bytes = bytes_of<T>(sizes_.own_rows * sizes_.width);
  description_.recomputes = true;

  // As BlockUnit: a product of (m, k) and (k, n) takes 2 m n k, and queries look at half of the
  // keys on average.
  const auto rows = static_cast<double>(sizes_.rows * leaf_.own_pieces());
  const auto product = [&](const Linear& layer) {
    return 2.0 * rows * static_cast<double>(layer.inputs * layer.outputs);
  };
  const double scores = rows * static_cast<double>(leaf_.tokens * sizes_.queries);
  double attend = 2.0 * scores + product(out_), mlp = product(up_) + product(down_);
  const auto gradients = [&](const Linear& layer) {
    return (layer.weight.trained() ? 2.0 : 1.0) * product(layer);
  };
  description_.gradient_flops = 4.0 * scores;
  for (const Linear& layer : {qkv_, out_, up_, down_})
    description_.gradient_flops += gradients(layer);

  const bool in_parts = leaf_.parts > 1;
  const auto set = [](plan::Phase& phase, double flops, double recompute) {
    phase.flops = flops;
    phase.recompute_flops = recompute;
  };
  for (std::size_t p = 0; p < forward_steps_.size(); ++p) {
    plan::Phase& phase = description_.forward[p];
    if (forward_steps_[p] == Step::project) set(phase, product(qkv_), product(qkv_));
    if (forward_steps_[p] == Step::attend) {
      const double all = attend + (in_parts ? 0.0 : product(qkv_));
      set(phase, all, all);
    }
    if (forward_steps_[p] == Step::mlp) set(phase, mlp, recompute_.mlp ? 0.0 : product(up_));
  }
  for (std::size_t p = 0; p < backward_steps_.size(); ++p) {
    double& flops = description_.backward[p].flops;
    if (backward_steps_[p] == Step::mlp)
      flops = gradients(up_) + gradients(down_) + (recompute_.mlp ? product(up_) : 0.0);
    if (backward_steps_[p] == Step::project) flops = gradients(qkv_);
    if (backward_steps_[p] == Step::attend)
      flops = gradients(out_) + 5.0 * scores + (recompute_.attention ? 2.0 * scores : 0.0) +
              (in_parts ? 0.0 : gradients(qkv_));
  }
}

template class TensorBlockUnit<float>;
template class TensorBlockUnit<double>;
template class TensorBlockUnit<bf16>;
template class TensorBlockUnit<fp16>;

}  // namespace ostrakon::model
