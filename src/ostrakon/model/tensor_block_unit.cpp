// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/tensor_block_unit.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/gemm.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace ostrakon::model {

using math::Transpose;

namespace {

/// Of the MLP that all rows take; of a mixture that of its shared experts, which may be none.
std::int64_t ffn_width(const DecoderSettings& settings) {
  return settings.experts.exist() ? settings.experts.shared_width() : settings.ffn_width;
}

}  // namespace

// ---- forward ------------------------------------------------------------------------------------

template <class T>
void TensorBlockUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                                 RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  const auto [step, chunk] = forward_tasks_[static_cast<std::size_t>(buffers.phase)];
  switch (step) {
    case Step::vectors:
      return vectors_.hand<T>(exec, buffers, pieces_);
    case Step::norm:
      return normalize(exec, buffers, chunk);
    case Step::project:
    case Step::queries:
      return project(exec, buffers, step, chunk);
    case Step::attend:
      return attend(exec, buffers);
    case Step::out:
      return project_out(exec, buffers, chunk);
    case Step::mlp_norm:
      return normalize_middle(exec, buffers, chunk);
    case Step::route:
      return route(exec, buffers);
    case Step::mlp:
      return mlp(exec, buffers, chunk);
    case Step::output:
      return output(exec, buffers, chunk);
    default:
      throw std::logic_error("a block's forward has no such step");
  }
}

template <class T>
void TensorBlockUnit<T>::normalize(const Exec& exec, const UnitBuffers<T>& buffers,
                                   std::int64_t chunk) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, false);
  if (chunk == 0) vectors_.take<T>(exec, buffers, saved.vectors);
  norm_forward<T>(exec, attention_norm_, vectors_in(saved),
                  own_rows_of<const T>(buffers.input.matrix(sizes_.own_rows, sizes_.width), chunk),
                  own_rows_of(recompute_.norms ? work.statistics : saved.attention_norm, chunk),
                  view_as<T>(buffers.handed).matrix(sizes_.own_chunk_rows(), sizes_.width));
}

/// qkv = norm(x) Wqkv^T of its heads. With the last chunk they are rotated; where a sequence is in
/// parts, keys and values are handed over.
template <class T>
void TensorBlockUnit<T>::project(const Exec& exec, const UnitBuffers<T>& buffers, Step step,
                                 std::int64_t chunk) const {
  const Saved saved = saved_in(buffers);
  const auto normed = view_as<const T>(buffers.exchanged).matrix(sizes_.chunk_rows(), sizes_.width);
  const auto columns = [&](std::int64_t first, std::int64_t last) {
    const Linear layer = outputs_of(qkv_, first, last);
    for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
      for_each_run(chunk, [&](std::int64_t row, std::int64_t in_chunk, std::int64_t rows) {
        linear_forward<T>(exec, layer, own_piece<T>(buffers, pieces_, piece),
                          normed.row_range(in_chunk, in_chunk + rows),
                          piece_of(saved.qkv, piece, sizes_.qkv())
                              .row_range(row, row + rows)
                              .column_range(first, last));
      });
    if (chunk + 1 == sizes_.chunks) rotate(exec, math::Rotation::forward, buffers, first, last);
  };
  // Sequences that are cut have two products on any number of ranks: 16 bits may differ otherwise.
  if (!leaf_.is_cut()) return columns(0, sizes_.qkv());
  if (step == Step::project) columns(sizes_.queries, sizes_.qkv());
  if (step == Step::queries || leaf_.parts == 1) columns(0, sizes_.queries);
  if (buffers.handed) hand_keys_and_values(exec, buffers);
}

/// Attention of all its heads, and the first chunk of its part of the product with Wout.
template <class T>
void TensorBlockUnit<T>::attend(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.workspace);
  AttentionWork work = attention_work(arrays, false);
  work.gathered = buffers.exchanged;
  if (sizes_.chunks == 1) return multiply_out(exec, buffers, work, 0, true);
  // Later chunks need it, too.
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    attention_of_piece(exec, buffers, piece, work);
  multiply_out(exec, buffers, work, 0, false);
}

template <class T>
void TensorBlockUnit<T>::project_out(const Exec& exec, const UnitBuffers<T>& buffers,
                                     std::int64_t chunk) const {
  Arrays<T> arrays(buffers.workspace);
  AttentionWork work;
  if (recompute_.attention)
    work = attention_work(arrays, false);
  else
    work.tree = arrays.template take<Compute>(tree_elements(sizes_.chunk_rows()));
  multiply_out(exec, buffers, work, chunk, false);
}

/// A chunk of attention Wout^T, after the attention of each piece where `attends`.
template <class T>
void TensorBlockUnit<T>::multiply_out(const Exec& exec, const UnitBuffers<T>& buffers,
                                      const AttentionWork& work, std::int64_t chunk,
                                      bool attends) const {
  const Saved saved = saved_in(buffers);
  math::sum_products<T>(
      exec, leaf_.own_pieces(), out_.inputs,
      view_as<Compute>(buffers.handed).matrix(sizes_.chunk_rows(), sizes_.width), work.tree,
      [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        if (attends) attention_of_piece(exec, buffers, piece, work);
        const View<const T**> attention = attention_in(saved, work, piece);
        const View<const T**> weight =
            own_piece<T>(buffers, pieces_, piece).at(out_.weight).matrix(out_.outputs, out_.inputs);
        for_each_run(chunk, [&](std::int64_t row, std::int64_t in_chunk, std::int64_t rows) {
          math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1,
                                 attention.row_range(row, row + rows), weight, beta,
                                 to.row_range(in_chunk, in_chunk + rows));
        });
      });
}

/// middle = x + attention Wout^T, and its norm.
template <class T>
void TensorBlockUnit<T>::normalize_middle(const Exec& exec, const UnitBuffers<T>& buffers,
                                          std::int64_t chunk) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  if (keeps_attention(false)) attention_work(arrays, false);
  const NormWork work = norm_work(arrays, false);
  const std::int64_t rows = sizes_.own_chunk_rows();
  const View<T**> middle = own_rows_of(saved.middle, chunk);
  math::add_residual<T>(
      exec, own_rows_of<const T>(buffers.input.matrix(sizes_.own_rows, sizes_.width), chunk),
      view_as<const Compute>(buffers.exchanged).matrix(rows, sizes_.width),
      vectors_in(saved).at(out_bias_), middle);
  const bool only_saves = !buffers.handed;
  if (!has_mlp() || (only_saves && recompute_.norms)) return;
  norm_forward<T>(exec, mlp_norm_, vectors_in(saved), middle,
                  own_rows_of(recompute_.norms ? work.statistics : saved.mlp_norm, chunk),
                  only_saves ? own_rows_of(work.normed, chunk)
                             : view_as<T>(buffers.handed).matrix(rows, sizes_.width));
}

/// y = middle, to which output adds shared experts; and what experts get besides.
template <class T>
void TensorBlockUnit<T>::route(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  FeedForwardCall<T> call;
  call.parameters = vectors_in(saved);
  call.x = saved.middle;
  call.saved = saved.router;
  call.workspace = router_work(arrays, false).workspace;
  call.counts = buffers.counts;
  if (buffers.output) {
    call.y = buffers.output.matrix(sizes_.own_rows, sizes_.width);
    call.border =
        border_in<T>(buffers.output, sizes_.own_rows, sizes_.width, router_->border_bytes());
  }
  router_->forward(exec, call);
}

template <class T>
void TensorBlockUnit<T>::mlp(const Exec& exec, const UnitBuffers<T>& buffers,
                             std::int64_t chunk) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const MlpWork work = mlp_work(arrays, false);
  const std::int64_t chunk_rows = sizes_.chunk_rows();
  const auto normed = view_as<const T>(buffers.exchanged).matrix(chunk_rows, sizes_.width);
  const auto project_up = [&](std::int64_t piece) {
    for_each_run(chunk, [&](std::int64_t row, std::int64_t in_chunk, std::int64_t rows) {
      const View<T**> up =
          recompute_.mlp
              ? work.up.matrix(chunk_rows, sizes_.up).row_range(in_chunk, in_chunk + rows)
              : piece_of(saved.up, piece, sizes_.up).row_range(row, row + rows);
      linear_forward<T>(exec, up_, own_piece<T>(buffers, pieces_, piece),
                        normed.row_range(in_chunk, in_chunk + rows), up);
      if (buffers.handed)
        activate<T>(exec, activation_, up, work.activated.row_range(in_chunk, in_chunk + rows));
    });
  };
  if (!buffers.handed) {
    for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece) project_up(piece);
    return;
  }
  math::sum_products<T>(exec, leaf_.own_pieces(), down_.inputs,
                        view_as<Compute>(buffers.handed).matrix(chunk_rows, sizes_.width),
                        work.tree, [&](std::int64_t piece, Compute beta, View<Compute**> to) {
                          project_up(piece);
                          const View<const T**> weight = own_piece<T>(buffers, pieces_, piece)
                                                             .at(down_.weight)
                                                             .matrix(down_.outputs, down_.inputs);
                          math::gemm<T, Compute>(exec, Transpose::no, Transpose::yes, 1,
                                                 work.activated, weight, beta, to);
                        });
}

template <class T>
void TensorBlockUnit<T>::output(const Exec& exec, const UnitBuffers<T>& buffers,
                                std::int64_t chunk) const {
  if (!buffers.output) return;
  const Saved saved = saved_in(buffers);
  math::add_residual<T>(
      exec, own_rows_of<const T>(saved.middle, chunk),
      view_as<const Compute>(buffers.exchanged).matrix(sizes_.own_chunk_rows(), sizes_.width),
      vectors_in(saved).at(down_bias_),
      own_rows_of(buffers.output.matrix(sizes_.own_rows, sizes_.width), chunk));
}

/// Columns [first, last) of all of the rank's queries and keys.
template <class T>
void TensorBlockUnit<T>::rotate(const Exec& exec, math::Rotation rotation,
                                const UnitBuffers<T>& buffers, std::int64_t first,
                                std::int64_t last) const {
  if (positions_ != Positions::rotary) return;
  const std::int64_t head_width = attention_.head_width,
                     end = (attention_.heads + attention_.kv_heads) * head_width;
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    rotate_heads<T>(exec, rotation, leaf_,
                    piece_of(saved_in(buffers).qkv, piece, sizes_.qkv())
                        .column_range(first, std::min(last, end)),
                    head_width, rotary_base_, 0, buffers.part);
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

/// Those of a piece's heads in the order of positions: gathered, which are `by_part`, or this
/// rank's.
template <class T>
View<T**> TensorBlockUnit<T>::keys_and_values(const Exec& exec, const UnitBuffers<T>& buffers,
                                              std::int64_t piece, View<const std::byte*> gathered,
                                              View<T**> in_order) const {
  const View<T**> own = piece_of(saved_in(buffers).qkv, piece, sizes_.qkv())
                            .column_range(sizes_.queries, sizes_.qkv());
  if (!leaf_.is_cut()) return own;
  const View<const T**> by_part =
      leaf_.parts > 1 ? view_as<const T>(gathered)
                            .matrix(sequence_rows(), leaf_.own_pieces() * sizes_.kv)
                            .column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv)
                      : View<const T**>(own);
  math::put_in_order<T>(exec, leaf_.sequence(), by_part, in_order);
  return in_order;
}

template <class T>
void TensorBlockUnit<T>::attention_of_piece(const Exec& exec, const UnitBuffers<T>& buffers,
                                            std::int64_t piece, const AttentionWork& work) const {
  const Saved saved = saved_in(buffers);
  const View<T**> qkv = piece_of(saved.qkv, piece, sizes_.qkv());
  const View<T**> attention = attention_in(saved, work, piece);
  const View<Compute*> log_sum_exp = log_sums_in(saved, work, piece);
  if (!leaf_.is_cut()) {
    math::attention_forward<T>(exec, attention_, qkv, 0, leaf_.tokens, attention, log_sum_exp,
                               work.scores);
    return;
  }
  math::attention_forward<T>(exec, attention_, {leaf_.sequence(), buffers.part}, qkv,
                             keys_and_values(exec, buffers, piece, work.gathered, work.kv),
                             attention, log_sum_exp, work.scores);
}

/// The gradients of the piece's queries, keys and values: in work.dqkv, or in parts those of
/// queries there and the others', of all parts, in work.dkv.
template <class T>
void TensorBlockUnit<T>::attention_backward_of_piece(const Exec& exec,
                                                     const UnitBuffers<T>& buffers,
                                                     std::int64_t piece,
                                                     const AttentionWork& work) const {
  const Saved saved = saved_in(buffers);
  const View<T**> qkv = piece_of(saved.qkv, piece, sizes_.qkv());
  const View<T**> attention = attention_in(saved, work, piece);
  const View<Compute*> log_sum_exp = log_sums_in(saved, work, piece);
  if (recompute_.attention) attention_of_piece(exec, buffers, piece, work);
  linear_backward_input<T>(exec, out_, own_piece<T>(buffers, pieces_, piece), rows_read(buffers),
                           work.dattention);
  if (!leaf_.is_cut()) {
    math::attention_backward<T>(exec, attention_, qkv, attention, log_sum_exp, work.dattention,
                                work.dqkv, work.scores);
    return;
  }
  math::attention_backward<T>(exec, attention_, {leaf_.sequence(), buffers.part}, qkv,
                              keys_and_values(exec, buffers, piece, work.gathered, work.kv),
                              attention, log_sum_exp, work.dattention,
                              work.dqkv.column_range(0, sizes_.queries), work.dkv, work.scores);
  if (leaf_.parts == 1)
    math::put_by_part<Compute, T>(exec, leaf_.sequence(), View<const Compute**>(work.dkv),
                                  work.dqkv.column_range(sizes_.queries, sizes_.qkv()));
}

// ---- backward -----------------------------------------------------------------------------------

template <class T>
void TensorBlockUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                  compute_t<T> loss_scale, bool /*gradients_opened*/) const {
  const auto [step, half] = backward_tasks_[static_cast<std::size_t>(buffers.phase)];
  const std::int64_t own = leaf_.own_pieces();
  Arrays<T> arrays(buffers.workspace);
  switch (step) {
    case Step::gradient:
      math::copy<T>(exec, buffers.gradient.range(0, sizes_.own_rows * sizes_.width),
                    view_as<T>(buffers.handed));
      return;
    case Step::mlp_norm:
      return hand_normed_middle(exec, buffers);
    case Step::again:
      return project_up_again(exec, buffers);
    case Step::mlp:
      return mlp_backward(exec, buffers);
    case Step::up: {
      const MlpWork work = up_work(arrays);
      for (std::int64_t piece = 0; piece < own; ++piece)
        up_gradient(exec, buffers, work, piece, half, rows_read(buffers));
      return;
    }
    case Step::middle:
      return middle_backward(exec, buffers, loss_scale);
    case Step::norm:
      return hand_normed(exec, buffers);
    case Step::gather:
      return hand_keys_and_values(exec, buffers);
    case Step::attend:
      return attend_backward(exec, buffers);
    case Step::out: {
      const AttentionWork work = weights_work(arrays, step);
      for (std::int64_t piece = 0; piece < own; ++piece) out_gradient(exec, buffers, work, piece);
      return;
    }
    case Step::project:
      return project_backward(exec, buffers);
    case Step::qkv: {
      const AttentionWork work = weights_work(arrays, step);
      for (std::int64_t piece = 0; piece < own; ++piece) qkv_gradient(exec, buffers, work, piece);
      return;
    }
    case Step::input:
      return input_backward(exec, buffers);
    case Step::vectors:
      return vectors_.take_gradients<T>(exec, buffers, pieces_);
    default:
      throw std::logic_error("a block's backward has no such step");
  }
}

template <class T>
void TensorBlockUnit<T>::hand_normed_middle(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, true);
  norm_again(exec, mlp_norm_, buffers, saved.middle,
             recompute_.norms ? work.statistics : saved.mlp_norm,
             view_as<T>(buffers.handed).matrix(sizes_.own_rows, sizes_.width));
}

template <class T>
void TensorBlockUnit<T>::project_up_again(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.workspace);
  const MlpWork work = mlp_work(arrays, true);
  // In the products of forward: 16 bits may differ otherwise.
  for (std::int64_t piece = 0; piece < leaf_.own_pieces(); ++piece)
    for (std::int64_t chunk = 0; chunk < sizes_.chunks; ++chunk)
      for_each_run(chunk, [&](std::int64_t row, std::int64_t /*in_chunk*/, std::int64_t rows) {
        linear_forward<T>(exec, up_, own_piece<T>(buffers, pieces_, piece),
                          rows_read(buffers).row_range(row, row + rows),
                          up_in(saved_in(buffers), work, piece).row_range(row, row + rows));
      });
}

/// The gradient of Wdown, and the sum over pieces of dL/dnorm(middle). The gradient of the
/// activation's input replaces the input.
template <class T>
void TensorBlockUnit<T>::mlp_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const MlpWork work = mlp_work(arrays, true);
  const View<const T**> dy = rows_read(buffers);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  math::sum_products<T>(
      exec, leaf_.own_pieces(), up_.outputs,
      view_as<Compute>(buffers.handed).matrix(sizes_.rows, sizes_.width), work.tree,
      [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        const FlatParameter<T> parameters = own_piece<T>(buffers, pieces_, piece);
        const View<T**> up = up_in(saved, work, piece), dup = up;
        const View<T**> activated = work.activated, dactivated = work.activated;
        if (recompute_.mlp && !keeps_pieces_)
          linear_forward<T>(exec, up_, parameters, second_rows_read(buffers), up);
        if (down_.weight.trained()) activate<T>(exec, activation_, up, activated);
        linear_backward_parameters<T>(exec, down_, activated, dy,
                                      own_piece_gradients<T>(buffers, pieces_, piece), sums);
        bias_gradient(exec, buffers, down_bias_piece_, piece, dy, sums);
        linear_backward_input<T>(exec, down_, parameters, dy, dactivated);
        activate_backward<T>(exec, activation_, up, dactivated, dup);
        const View<const T**> weight = parameters.at(up_.weight).matrix(up_.outputs, up_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::no, 1, dup, weight, beta, to);
        if (keeps_pieces_) return;
        for (const std::int64_t which_half : {0, 1})
          up_gradient(exec, buffers, work, piece, which_half, second_rows_read(buffers));
      });
}

/// Of one half of Wup's rows, with any number of ranks: 16 bits may differ otherwise.
template <class T>
void TensorBlockUnit<T>::up_gradient(const Exec& exec, const UnitBuffers<T>& buffers,
                                     const MlpWork& work, std::int64_t piece, std::int64_t half,
                                     View<const T**> normed) const {
  const auto [first, last] = half_of_up(half);
  linear_backward_parameters<T>(exec, outputs_of(up_, first, last), normed,
                                up_in(saved_in(buffers), work, piece).column_range(first, last),
                                own_piece_gradients<T>(buffers, pieces_, piece),
                                {leaf_.leaves(), work.sums});
}

/// dL/dmiddle, which replaces dL/dy.
template <class T>
void TensorBlockUnit<T>::middle_backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                         Compute loss_scale) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  if (keeps_up()) mlp_work(arrays, true);
  const NormWork work = norm_work(arrays, true);
  const View<T**> handed = view_as<T>(buffers.handed).matrix(sizes_.own_rows, sizes_.width);
  math::fill<Compute>(exec, saved.norms, Compute(0));
  if (router_) {
    const View<const T**> dnormed =
        has_mlp()
            ? summed_rows<T>(exec, buffers.exchanged, sizes_.own_rows, sizes_.width, work.dnormed)
            : View<const T**>();
    route_backward(exec, buffers, saved, router_work(arrays, true), dnormed, loss_scale);
  } else {
    // Only its statistics are wanted.
    if (recompute_.norms)
      norm_again(exec, mlp_norm_, buffers, saved.middle, work.statistics, handed);
    add_norm_gradient(exec, mlp_norm_, buffers, saved.middle,
                      recompute_.norms ? work.statistics : saved.mlp_norm, work);
  }
  math::copy_rows<T, T>(exec, buffers.gradient.matrix(sizes_.own_rows, sizes_.width), handed);
}

/// Adds to dL/dy what came for norm(middle) from router, experts and shared ones, through the norm.
template <class T>
void TensorBlockUnit<T>::route_backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                        const Saved& saved, const RouterWork& work,
                                        View<const T**> dnormed, Compute loss_scale) const {
  FeedForwardCall<T> call;
  call.parameters = vectors_in(saved);
  call.x = saved.middle;
  call.saved = saved.router;
  call.workspace = work.workspace;
  call.gradient = buffers.gradient.matrix(sizes_.own_rows, sizes_.width);
  call.dnormed = dnormed;
  call.border = border_in<T>(buffers.gradient, sizes_.own_rows, sizes_.width,
                             router_->border_gradient_bytes());
  call.parameter_gradients = saved.norms;
  call.sums = work.sums;
  call.loss_scale = loss_scale;
  router_->backward(exec, call);
}

template <class T>
void TensorBlockUnit<T>::hand_normed(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Arrays<T> arrays(buffers.workspace);
  const NormWork work = norm_work(arrays, true);
  norm_again(exec, attention_norm_, buffers, buffers.input.matrix(sizes_.own_rows, sizes_.width),
             recompute_.norms ? work.statistics : saved_in(buffers).attention_norm,
             view_as<T>(buffers.handed).matrix(sizes_.own_rows, sizes_.width));
}

/// The gradients of queries, keys and values, which replace them; in parts those of keys and values
/// are handed over, to be summed.
template <class T>
void TensorBlockUnit<T>::attend_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  AttentionWork work = attention_work(arrays, true);
  work.gathered = buffers.second_exchanged;
  const std::int64_t own = leaf_.own_pieces();
  const std::int64_t columns = leaf_.parts > 1 ? sizes_.queries : sizes_.qkv();
  for (std::int64_t piece = 0; piece < own; ++piece) {
    attention_backward_of_piece(exec, buffers, piece, work);
    if (!keeps_pieces_) out_gradient(exec, buffers, work, piece);
    if (leaf_.parts > 1)
      math::put_by_part<Compute, Compute>(
          exec, leaf_.sequence(), View<const Compute**>(work.dkv),
          view_as<Compute>(buffers.handed)
              .matrix(sequence_rows(), own * sizes_.kv)
              .column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv));
    math::copy_rows<T, T>(exec, work.dqkv.column_range(0, columns),
                          piece_of(saved.qkv, piece, sizes_.qkv()).column_range(0, columns));
  }
}

template <class T>
void TensorBlockUnit<T>::out_gradient(const Exec& exec, const UnitBuffers<T>& buffers,
                                      const AttentionWork& work, std::int64_t piece) const {
  const View<const T**> dmiddle = rows_read(buffers);
  const LeafSums<T> sums{leaf_.leaves(), work.sums};
  linear_backward_parameters<T>(exec, out_, attention_in(saved_in(buffers), work, piece), dmiddle,
                                own_piece_gradients<T>(buffers, pieces_, piece), sums);
  bias_gradient(exec, buffers, out_bias_piece_, piece, dmiddle, sums);
}

/// The sum over pieces of dL/dnorm(x).
template <class T>
void TensorBlockUnit<T>::project_backward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  const Saved saved = saved_in(buffers);
  Arrays<T> arrays(buffers.workspace);
  const AttentionWork work = weights_work(arrays, Step::project);
  const std::int64_t own = leaf_.own_pieces();
  if (leaf_.parts > 1) {
    const auto summed =
        view_as<const Compute>(buffers.exchanged).matrix(sizes_.rows, own * sizes_.kv);
    for (std::int64_t piece = 0; piece < own; ++piece)
      math::copy_rows<Compute, T>(
          exec, summed.column_range(piece * sizes_.kv, (piece + 1) * sizes_.kv),
          piece_of(saved.qkv, piece, sizes_.qkv()).column_range(sizes_.queries, sizes_.qkv()));
  }
  rotate(exec, math::Rotation::inverse, buffers, 0, sizes_.qkv());
  math::sum_products<T>(
      exec, own, qkv_.outputs, view_as<Compute>(buffers.handed).matrix(sizes_.rows, sizes_.width),
      work.tree, [&](std::int64_t piece, Compute beta, View<Compute**> to) {
        const View<const T**> weight =
            own_piece<T>(buffers, pieces_, piece).at(qkv_.weight).matrix(qkv_.outputs, qkv_.inputs);
        math::gemm<T, Compute>(exec, Transpose::no, Transpose::no, 1,
                               piece_of(saved.qkv, piece, sizes_.qkv()), weight, beta, to);
        if (!keeps_pieces_) qkv_gradient(exec, buffers, work, piece);
      });
}

template <class T>
void TensorBlockUnit<T>::qkv_gradient(const Exec& exec, const UnitBuffers<T>& buffers,
                                      const AttentionWork& work, std::int64_t piece) const {
  linear_backward_parameters<T>(
      exec, qkv_, rows_read(buffers), piece_of(saved_in(buffers).qkv, piece, sizes_.qkv()),
      own_piece_gradients<T>(buffers, pieces_, piece), {leaf_.leaves(), work.sums});
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
  const View<const T**> dnormed =
      summed_rows<T>(exec, buffers.exchanged, sizes_.own_rows, sizes_.width, work.dnormed);
  norm_backward<T>(exec, norm, vectors_in(saved), x, statistics, dnormed, saved.norms,
                   buffers.gradient.matrix(sizes_.own_rows, sizes_.width),
                   math::GradientUpdate::add, {leaf_.own_row_leaves(), work.sums});
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
      keeps_pieces_(leaf.tensor_ranks * leaf.parts > 1),
      attention_{leaf.batch, leaf.tokens, settings.heads / leaf.tensor_pieces(),
                 settings.kv_heads / leaf.tensor_pieces(), settings.head_width()},
      activation_(settings.activation),
      positions_(settings.positions),
      rotary_base_(settings.rotary_base),
      vectors_(leaf, settings.width) {
  const std::int64_t head_width = settings.head_width(), pieces = leaf.tensor_pieces();
  sizes_ = {leaf.rows(),
            leaf.own_rows(),
            leaf.tensor_chunks,
            settings.width,
            attention_.heads * head_width,
            2 * attention_.kv_heads * head_width,
            ffn_width(settings) / pieces,
            (settings.activation == Activation::gelu ? 1 : 2) * ffn_width(settings) / pieces};
  description_.name = "block." + std::to_string(index);
  add_parameters(settings, frozen);
  add_phases();
  describe();
}

template <class T>
void TensorBlockUnit<T>::add_parameters(const DecoderSettings& settings, const Frozen& frozen) {
  parameters_ = block_parameters(settings, false);
  const std::string mlp = settings.experts.exist() ? "mlp.shared" : "mlp";
  const std::string up = name_of_up(settings, mlp), down = mlp + ".down";
  const std::int64_t head_width = settings.head_width(), kv = settings.kv_heads * head_width;
  cut_rows(parameters_, "attention.qkv", {settings.width, kv, kv});
  cut_columns(parameters_, "attention.out");
  const std::int64_t ffn = ffn_width(settings);
  if (has_mlp()) {
    const bool has_gate = settings.activation != Activation::gelu;
    cut_rows(parameters_, up, has_gate ? std::vector{ffn, ffn} : std::vector{ffn});
    cut_columns(parameters_, down);
  }
  const SegmentSizes sizes =
      lay_out_parameters(parameters_, description_.name, frozen, leaf_.tensor_pieces());
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;

  pieces_ = piece_sizes(parameters_);
  attention_norm_ =
      vectors_.add_norm(parameters_, "attention.norm", settings.norm, settings.norm_epsilon);
  mlp_norm_ = vectors_.add_norm(parameters_, "mlp.norm", settings.norm, settings.norm_epsilon);
  if (settings.experts.exist()) add_router(settings);
  out_bias_ = vectors_.add(parameters_, "attention.out.bias", false);
  down_bias_ = vectors_.add(parameters_, down + ".bias", false);
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == "attention.out.bias") out_bias_piece_ = piece_location(parameter);
    if (parameter.name == down + ".bias") down_bias_piece_ = piece_location(parameter);
  }
  qkv_ = find_piece_of_linear(parameters_, "attention.qkv");
  out_ = find_piece_of_linear(parameters_, "attention.out");
  if (!has_mlp()) return;
  up_ = find_piece_of_linear(parameters_, up);
  down_ = find_piece_of_linear(parameters_, down);
}

/// All of a mixture but its experts, with the gathered arrays as parameters.
template <class T>
void TensorBlockUnit<T>::add_router(const DecoderSettings& settings) {
  const ParameterLocation weight = vectors_.add(parameters_, "mlp.router.weight", true);
  const ParameterLocation balance = vectors_.add(parameters_, "mlp.router.balance", true);
  std::vector<Parameter> gathered;
  for (Parameter parameter : parameters_)
    for (const auto& [name, location] :
         {std::pair{"mlp.norm.weight", mlp_norm_.weight},
          std::pair{"mlp.norm.bias", mlp_norm_.bias}, std::pair{"mlp.router.weight", weight},
          std::pair{"mlp.router.balance", balance}}) {
      if (parameter.name != name) continue;
      parameter.offset = location.offset;
      gathered.push_back(parameter);
    }
  DecoderSettings routed = settings;
  routed.experts.shared = 0;
  LeafShape leaf = leaf_;
  leaf.defers_gradients = false;
  router_ = std::make_unique<ExpertFeedForward<T>>(
      routed, leaf, Recompute{false, recompute_.norms, false}, gathered);
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
  if (has_mlp()) saved.mlp_norm = statistics(mlp_norm_);
  saved.qkv = arrays.template take<T>(own * sizes_.rows * sizes_.qkv());
  if (!recompute_.attention) {
    saved.attention = arrays.template take<T>(own * sizes_.rows * sizes_.queries);
    saved.log_sum_exp = arrays.template take<Compute>(own * sizes_.rows * attention_.heads);
  }
  saved.middle = arrays.matrix(sizes_.own_rows, sizes_.width);
  if (!recompute_.mlp) saved.up = arrays.template take<T>(own * sizes_.rows * sizes_.up);
  saved.norms = arrays.template take<Compute>(vectors_.summed_elements());
  if (router_) saved.router = arrays.template take<std::byte>(router_->saved_bytes());
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
      arrays.template take<Compute>(norm_sums_workspace(sizes_.width, leaf_.own_row_leaves()));
  return work;
}

template <class T>
typename TensorBlockUnit<T>::AttentionWork TensorBlockUnit<T>::attention_work(
    Arrays<T>& arrays, bool is_backward) const {
  AttentionWork work;
  std::int64_t scores = math::attention_forward_workspace<T>(attention_, leaf_.kernels);
  if (is_backward) {
    const std::int64_t backward =
        math::attention_backward_workspace<T>(attention_, leaf_.pieces(), leaf_.kernels);
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
    work.has_all_pieces = keeps_attention(is_backward);
    const std::int64_t rows = (work.has_all_pieces ? leaf_.own_pieces() : 1) * sizes_.rows;
    work.attention = arrays.template take<T>(rows * sizes_.queries);
    work.log_sum_exp = arrays.template take<Compute>(rows * attention_.heads);
  }
  work.tree =
      arrays.template take<Compute>(tree_elements(is_backward ? sizes_.rows : sizes_.chunk_rows()));
  return work;
}

/// Of backward's `out`, `project` and `qkv`.
template <class T>
typename TensorBlockUnit<T>::AttentionWork TensorBlockUnit<T>::weights_work(Arrays<T>& arrays,
                                                                            Step step) const {
  AttentionWork work;
  if (keeps_attention(true) && step == Step::out) return attention_work(arrays, true);
  if (step == Step::project) work.tree = arrays.template take<Compute>(tree_elements(sizes_.rows));
  if (step != Step::project || !keeps_pieces_)
    work.sums = arrays.template take<Compute>(sum_elements());
  return work;
}

template <class T>
typename TensorBlockUnit<T>::MlpWork TensorBlockUnit<T>::mlp_work(Arrays<T>& arrays,
                                                                  bool is_backward) const {
  MlpWork work;
  const std::int64_t rows = is_backward ? sizes_.rows : sizes_.chunk_rows();
  if (recompute_.mlp)
    work.up = arrays.template take<T>((is_backward && keeps_pieces_ ? leaf_.own_pieces() : 1) *
                                      rows * sizes_.up);
  work.activated = arrays.matrix(rows, sizes_.ffn);
  if (is_backward) work.sums = arrays.template take<Compute>(sum_elements());
  work.tree = arrays.template take<Compute>(tree_elements(rows));
  return work;
}

/// Of backward's `up`.
template <class T>
typename TensorBlockUnit<T>::MlpWork TensorBlockUnit<T>::up_work(Arrays<T>& arrays) const {
  if (keeps_up()) return mlp_work(arrays, true);
  MlpWork work;
  work.sums = arrays.template take<Compute>(sum_elements());
  return work;
}

template <class T>
typename TensorBlockUnit<T>::RouterWork TensorBlockUnit<T>::router_work(Arrays<T>& arrays,
                                                                        bool is_backward) const {
  RouterWork work;
  work.workspace = arrays.template take<std::byte>(
      is_backward ? router_->backward_workspace_bytes() : router_->forward_workspace_bytes());
  if (is_backward)
    work.sums = arrays.template take<Compute>(std::max(
        router_->sum_elements(), norm_sums_workspace(sizes_.width, leaf_.own_row_leaves())));
  return work;
}

/// For gradients of a piece's layers, as sums over leaves.
template <class T>
std::int64_t TensorBlockUnit<T>::sum_elements() const {
  std::int64_t most = norm_sums_workspace(vectors_.columns_of_piece(), leaf_.leaves());
  for (const Linear& layer : {qkv_, out_, up_, down_})
    most = std::max(most, leaf_sums_workspace(layer, leaf_.leaves()));
  return most;
}

/// For sums over pieces into that many rows.
template <class T>
std::int64_t TensorBlockUnit<T>::tree_elements(std::int64_t rows) const {
  return (math::tree_slots(leaf_.own_pieces()) - 1) * rows * sizes_.width;
}

/// Rows of Wup: multiples of 16.
template <class T>
std::pair<std::int64_t, std::int64_t> TensorBlockUnit<T>::half_of_up(std::int64_t half) const {
  const std::int64_t middle = std::min(round_up(up_.outputs / 2, 16), up_.outputs);
  return half == 0 ? std::pair{std::int64_t{0}, middle} : std::pair{middle, up_.outputs};
}

// ---- phases -------------------------------------------------------------------------------------

template <class T>
std::int64_t TensorBlockUnit<T>::workspace_bytes(Step step, bool is_backward) const {
  Arrays<T> arrays;
  switch (step) {
    case Step::middle:
    case Step::norm:
    case Step::mlp_norm:
    case Step::input:
      if (is_backward && keeps_up() && step == Step::middle) mlp_work(arrays, true);
      if (!is_backward && keeps_attention(false) && step == Step::mlp_norm)
        attention_work(arrays, false);
      norm_work(arrays, is_backward);
      if (is_backward && router_ && step == Step::middle) router_work(arrays, true);
      break;
    case Step::attend:
      attention_work(arrays, is_backward);
      break;
    case Step::out:
      if (is_backward)
        weights_work(arrays, step);
      else if (recompute_.attention)
        attention_work(arrays, false);
      else
        arrays.template take<Compute>(tree_elements(sizes_.chunk_rows()));
      break;
    case Step::project:
    case Step::qkv:
      if (is_backward) weights_work(arrays, step);
      break;
    case Step::route:
      router_work(arrays, is_backward);
      break;
    case Step::again:
    case Step::mlp:
      mlp_work(arrays, is_backward);
      break;
    case Step::up:
      up_work(arrays);
      break;
    default:
      break;
  }
  return arrays.size();
}

template <class T>
void TensorBlockUnit<T>::add_phases() {
  description_.forward.clear();
  description_.backward.clear();
  add_forward_phases();
  add_backward_phases();
}

/// Appends one; returns its number.
template <class T>
int TensorBlockUnit<T>::add_phase(bool is_backward, Task task, std::vector<int> reads,
                                  std::optional<plan::Exchange> then) {
  plan::Phases& phases = is_backward ? description_.backward : description_.forward;
  plan::Phase phase;
  phase.workspace_bytes = workspace_bytes(task.step, is_backward);
  phase.reads = std::move(reads);
  phase.then = then;
  phases.push_back(std::move(phase));
  (is_backward ? backward_tasks_ : forward_tasks_).push_back(task);
  return static_cast<int>(phases.size()) - 1;
}

template <class T>
void TensorBlockUnit<T>::add_forward_phases() {
  const std::int64_t t = bytes_of<T>(1), c = bytes_of<Compute>(1), chunks = sizes_.chunks;
  const auto of_chunk = [&](plan::Exchange exchange) {
    exchange.elements /= chunks;
    return exchange;
  };
  const plan::Exchange gather = of_chunk(gather_rows(leaf_, sizes_.width, t));
  const plan::Exchange sum = of_chunk(sum_rows(leaf_, sizes_.width, c));
  const auto add = [this](Step step, std::size_t chunk, std::vector<int> reads,
                          std::optional<plan::Exchange> then) {
    return add_phase(false, {step, static_cast<std::int64_t>(chunk)}, std::move(reads), then);
  };
  const auto keep_attention = [this] {
    if (keeps_attention(false)) description_.forward.back().keeps_workspace = true;
  };
  const bool in_parts = leaf_.parts > 1;
  const auto count = static_cast<std::size_t>(chunks);
  std::vector<int> normed(count), summed(count), middle(count), outputs(count);

  const int vectors = add(Step::vectors, 0, {}, vectors_.gather(t));
  for (std::size_t j = 0; j < count; ++j)
    normed[j] = add(Step::norm, j, j == 0 ? std::vector<int>{vectors} : std::vector<int>{}, gather);
  std::vector<int> keys;
  for (std::size_t j = 0; j < count; ++j) {
    const bool hands = in_parts && j + 1 == count;
    const int last =
        add(Step::project, j, {normed[j]}, hands ? std::optional(gather_parts(t)) : std::nullopt);
    if (hands) keys = {last};
  }
  for (std::size_t j = 0; in_parts && j < count; ++j) add(Step::queries, j, {normed[j]}, {});

  // The norm of a chunk's rows comes after the product of the next chunk, with which its sum
  // overlaps; the output of a chunk's after the MLP of the next.
  summed[0] = add(Step::attend, 0, keys, sum);
  for (std::size_t j = 0; j < count; ++j) {
    if (j + 1 < count) {
      keep_attention();
      summed[j + 1] = add(Step::out, j + 1, {}, sum);
      keep_attention();
    }
    middle[j] =
        add(Step::mlp_norm, j, {summed[j]}, has_mlp() ? std::optional(gather) : std::nullopt);
  }
  const auto recomputes = [this](bool does) { description_.forward.back().recomputes = does; };
  if (router_) {
    add(Step::route, 0, {}, {});
    description_.forward.back().writes_output = true;
  }
  for (std::size_t j = 0; has_mlp() && j <= count; ++j) {
    if (j < count) {
      outputs[j] = add(Step::mlp, j, {middle[j]}, sum);
      recomputes(!recompute_.mlp);
    }
    if (j == 0) continue;
    add(Step::output, j - 1, {outputs[j - 1]}, {});
    recomputes(false);
    description_.forward.back().writes_output = true;
  }
}

template <class T>
void TensorBlockUnit<T>::add_backward_phases() {
  const std::int64_t t = bytes_of<T>(1), c = bytes_of<Compute>(1);
  const plan::Exchange gather = gather_rows(leaf_, sizes_.width, t),
                       sum = sum_rows(leaf_, sizes_.width, c);
  const bool in_parts = leaf_.parts > 1;
  using Reads = std::vector<int>;
  const auto add = [this](Step step, Reads reads, std::optional<plan::Exchange> then,
                          std::int64_t which_half = 0) {
    return add_phase(true, {step, which_half}, std::move(reads), then);
  };
  const auto keep_from = [this](int first) {
    for (auto p = static_cast<std::size_t>(first); p < description_.backward.size(); ++p)
      description_.backward[p].keeps_workspace = true;
  };

  // Gathers are in the order in which later phases read them.
  int gradient = -1, normed_middle = -1, again = -1, mlp = -1;
  if (has_mlp() && !keeps_up()) gradient = add(Step::gradient, {}, gather);
  if (has_mlp()) normed_middle = add(Step::mlp_norm, {}, gather);
  if (keeps_up()) gradient = add(Step::gradient, {}, gather);
  if (keeps_up()) again = add(Step::again, {normed_middle}, {});
  if (has_mlp())
    mlp = add(Step::mlp, keeps_pieces_ ? Reads{gradient} : Reads{gradient, normed_middle}, sum);
  const int keys = in_parts ? add(Step::gather, {}, gather_parts(t)) : -1;
  if (has_mlp() && keeps_pieces_) add(Step::up, {normed_middle}, {}, 0);
  const int middle = add(Step::middle, has_mlp() ? Reads{mlp} : Reads{}, gather);
  if (again >= 0) keep_from(again);
  if (has_mlp() && keeps_pieces_) add(Step::up, {normed_middle}, {}, 1);

  const int normed = add(Step::norm, {}, gather);
  const int attend = add(Step::attend, in_parts ? Reads{middle, keys} : Reads{middle},
                         in_parts ? std::optional(sum_parts(c)) : std::nullopt);
  if (keeps_attention(true)) keep_from(attend);
  // Before `project`: the gathered dL/dmiddle is not needed while its sum, the largest exchange,
  // runs.
  if (keeps_pieces_) add(Step::out, {middle}, {});
  const int project = add(Step::project,
                          in_parts        ? Reads{attend}
                          : keeps_pieces_ ? Reads{}
                                          : Reads{normed},
                          sum);
  if (keeps_pieces_) add(Step::qkv, {normed}, {});
  const int input = add(Step::input, {project}, vectors_.sum(c));
  add(Step::vectors, {input}, {});
}

template <class T>
plan::Exchange TensorBlockUnit<T>::gather_parts(std::int64_t element_bytes) const {
  return {plan::ExchangeKind::gather,
          {plan::Axis::shard, static_cast<int>(leaf_.parts)},
          sequence_rows() * leaf_.own_pieces() * sizes_.kv,
          element_bytes};
}

template <class T>
plan::Exchange TensorBlockUnit<T>::sum_parts(std::int64_t element_bytes) const {
  plan::Exchange exchange = gather_parts(element_bytes);
  exchange.kind = plan::ExchangeKind::reduce_scatter;
  return exchange;
}

template <class T>
void TensorBlockUnit<T>::describe() {
  Arrays<T> arrays;
  saved_in(arrays);
  description_.saved_bytes = arrays.size();
  description_.output_bytes = bytes_of<T>(sizes_.own_rows * sizes_.width);
  if (router_) {
    description_.output_bytes =
        behind_y<T>(sizes_.own_rows, sizes_.width) + router_->border_bytes();
    description_.counts = {router_->counted()};
  }
  description_.recomputes = true;

  // As BlockUnit: a product of (m, k) and (k, n) takes 2 m n k, and queries look at half of the
  // keys on average.
  const auto rows = static_cast<double>(sizes_.rows * leaf_.own_pieces());
  const auto product = [&](const Linear& layer) {
    return 2.0 * rows * static_cast<double>(layer.inputs * layer.outputs);
  };
  const auto gradient = [&](const Linear& layer) {
    return layer.weight.trained() ? product(layer) : 0.0;
  };
  const double scores = rows * static_cast<double>(leaf_.tokens * sizes_.queries);
  const auto chunks = static_cast<double>(sizes_.chunks);
  const bool in_parts = leaf_.parts > 1;
  const double to_queries = product(outputs_of(qkv_, 0, sizes_.queries));
  // A phase with attention has that of its operations, and rotary embedding; others have products
  // of as many rows as a chunk. Norms and activations belong to the phase that reads them.
  const auto bytes = [&](double columns) {
    return rows * columns * static_cast<double>(bytes_of<T>(1));
  };
  const auto width = static_cast<double>(sizes_.width);
  // Norms, and sums with what blocks read, are of the rows that this rank has between products.
  const auto of_own_rows = [&](double columns) {
    const auto own = static_cast<double>(leaf_.own_rows());
    return plan::row_work(own * columns * static_cast<double>(bytes_of<T>(1)) / chunks);
  };
  const plan::KernelWork of_norm = of_own_rows(2.0 * width), residual = of_own_rows(3.0 * width);
  const plan::KernelWork activate =
      plan::activation_work(rows * static_cast<double>(down_.inputs) / chunks,
                            bytes(static_cast<double>(up_.outputs + down_.inputs)) / chunks);
  const plan::KernelWork rotary = plan::row_work(bytes(2.0 * static_cast<double>(qkv_.outputs)));
  // A product of a chunk's rows.
  const auto work_of = [&](const Linear& layer) {
    return linear_forward_work<T>(layer, rows / chunks);
  };
  const auto gradient_work = [&](const Linear& layer) {
    return linear_parameters_work<T>(layer, rows);
  };
  const plan::KernelWork queries_work = work_of(outputs_of(qkv_, 0, sizes_.queries));
  const auto attend = [&](double times) {
    return plan::attention_work(times * scores, attention_.head_width);
  };
  const auto set = [](plan::Phase& phase, double flops, double recompute,
                      const plan::KernelWork& work) {
    phase.flops = flops;
    phase.recompute_flops = recompute;
    phase.work = work;
    if (recompute > 0.0) phase.recompute_work = work;
  };
  for (std::size_t p = 0; p < forward_tasks_.size(); ++p) {
    plan::Phase& phase = description_.forward[p];
    const double project = in_parts ? product(qkv_) - to_queries : product(qkv_);
    const double out = product(out_) / chunks;
    switch (forward_tasks_[p].step) {
      case Step::project:
        set(phase, project / chunks, project / chunks,
            work_of(qkv_) + (in_parts ? -1.0 * queries_work : plan::KernelWork()) + of_norm);
        break;
      case Step::queries:
        set(phase, to_queries / chunks, to_queries / chunks, queries_work);
        break;
      case Step::attend:
        set(phase, 2.0 * scores + out, 2.0 * scores + out, work_of(out_) + rotary + attend(2.0));
        break;
      case Step::out:
        set(phase, out, out, work_of(out_));
        break;
      case Step::route:
        set(phase, router_->forward_flops(), router_->recompute_flops(), router_->forward_work());
        phase.recompute_work = router_->recompute_work();
        break;
      case Step::mlp:
        set(phase, (product(up_) + product(down_)) / chunks,
            recompute_.mlp ? 0.0 : product(up_) / chunks,
            work_of(up_) + work_of(down_) + activate + of_norm);
        if (!recompute_.mlp) phase.recompute_work = work_of(up_) + of_norm;
        break;
      case Step::mlp_norm:
        phase.work = phase.recompute_work = residual;
        break;
      case Step::output:
        phase.work = residual;
        break;
      default:
        break;
    }
  }
  description_.gradient_flops = 4.0 * scores;
  for (const Linear& layer : {qkv_, out_, up_, down_})
    description_.gradient_flops += product(layer) + gradient(layer);
  if (router_) description_.gradient_flops += router_->gradient_flops();
  for (std::size_t p = 0; p < backward_tasks_.size(); ++p) {
    double& flops = description_.backward[p].flops;
    const auto [step, half] = backward_tasks_[p];
    const auto [first, last] = half_of_up(half);
    const bool in_one = !keeps_pieces_;
    if (step == Step::middle && router_) flops = router_->gradient_flops() + router_->again_flops();
    if (step == Step::again) flops = product(up_);
    if (step == Step::mlp)
      flops = product(up_) * (recompute_.mlp && in_one ? 2.0 : 1.0) + product(down_) +
              gradient(down_) + (in_one ? gradient(up_) : 0.0);
    if (step == Step::up) flops = gradient(outputs_of(up_, first, last));
    if (step == Step::attend)
      flops = product(out_) + 5.0 * scores + (recompute_.attention ? 2.0 * scores : 0.0) +
              (in_one ? gradient(out_) : 0.0);
    if (step == Step::out) flops = gradient(out_);
    if (step == Step::project) flops = product(qkv_) + (in_one ? gradient(qkv_) : 0.0);
    if (step == Step::qkv) flops = gradient(qkv_);
    plan::KernelWork& work = description_.backward[p].work;
    const auto all = [&](const Linear& layer) {
      return chunks * linear_input_work(layer, rows / chunks);
    };
    const plan::KernelWork up_again = chunks * work_of(up_), all_norms = chunks * of_norm;
    if (step == Step::middle && router_) work = router_->backward_work();
    if (step == Step::again) work = up_again + all_norms;
    if (step == Step::mlp)
      work = all(up_) + (recompute_.mlp && in_one ? up_again : plan::KernelWork()) + all(down_) +
             gradient_work(down_) + (in_one ? gradient_work(up_) : plan::KernelWork()) +
             2.0 * chunks * activate + all_norms;
    if (step == Step::up) work = gradient_work(outputs_of(up_, first, last));
    if (step == Step::attend)
      work = all(out_) + rotary + attend(recompute_.attention ? 7.0 : 5.0) +
             (in_one ? gradient_work(out_) : plan::KernelWork());
    if (step == Step::out) work = gradient_work(out_);
    if (step == Step::project)
      work = all(qkv_) + (in_one ? gradient_work(qkv_) : plan::KernelWork()) + 3.0 * all_norms;
    if (step == Step::qkv) work = gradient_work(qkv_);
  }
}

template class TensorBlockUnit<float>;
template class TensorBlockUnit<double>;
template class TensorBlockUnit<bf16>;
template class TensorBlockUnit<fp16>;

}  // namespace ostrakon::model
