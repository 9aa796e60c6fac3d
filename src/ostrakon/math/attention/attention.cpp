// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/attention/attention_in_tiles.hpp>
#include <ostrakon/math/attention/attention_library.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/attention/attention_softmax.hpp>
#include <ostrakon/math/attention/attention_tiles.hpp>
#include <ostrakon/math/attention/kv_sums.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

std::int64_t score_elements(const AttentionShape& shape, KernelForm form = kernel_form) {
  return attention_heads_at_once(shape, form) *
         std::min(attention_query_block_of(form), shape.tokens) *
         attention_keys_at_once(shape, form);
}

/// Whether some processors compute this attention in the tiles of attention_tiles.hpp.
template <class T>
bool attention_fits_tiles(const AttentionShape& shape, KernelForm form = kernel_form) {
  return !std::is_same<T, double>::value && !is_of_device(form) &&
         std::max(shape.head_width, shape.width_of_values()) <= attention_tile_width;
}

/// Whether all processors do so. Otherwise the workspace fits both ways, so that its size does not
/// depend on the processor.
template <class T>
bool has_tiles_only(const AttentionShape& shape, KernelForm form) {
  return attention_fits_tiles<T>(shape, form) && !is_16bit<T>;
}

/// Whether this processor does so: one with units for 16-bit matrices multiplies faster than tiles
/// of float.
template <class T>
bool attention_in_tiles(const AttentionShape& shape) {
  if (!attention_fits_tiles<T>(shape)) return false;
  if constexpr (is_16bit<T>) return half_products<T>() == HalfProducts::in_float;
  return true;
}

/// Returns the second of two matrices of (rows, columns) that follow each other.
template <class T>
View<T**> second_half(View<T*> all, std::int64_t rows, std::int64_t columns) {
  return all.matrix(2 * rows, columns).row_range(rows, 2 * rows);
}

template <class T>
void check_shapes(const AttentionShape& shape, const QueryRuns& queries, const View<const T**>& q,
                  const View<const T**>& kv, const View<const T**>& out, std::int64_t log_sum_exp) {
  require(shape.batch >= 0 && shape.tokens >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
              shape.head_width >= 1 && shape.value_width >= 0 &&
              shape.heads % shape.kv_heads == 0 &&
              (!shape.values_in_keys || shape.width_of_values() <= shape.head_width),
          "attention: batch ", shape.batch, ", tokens ", shape.tokens, ", heads ", shape.heads,
          ", kv_heads ", shape.kv_heads, ", head width ", shape.head_width, ", value width ",
          shape.value_width, ": expected positive sizes, and kv_heads a divisor of heads");
  queries.check(shape);
  const std::int64_t rows = shape.batch * queries.rows();
  const std::int64_t columns = shape.query_columns(), kv_columns = shape.kv_columns();
  const std::int64_t out_columns = shape.out_columns();
  require(q.rows() == rows && q.columns() >= columns && out.rows() == rows &&
              out.columns() >= out_columns && kv.rows() == shape.batch * shape.tokens &&
              kv.columns() == kv_columns,
          "attention: queries (", q.rows(), ", ", q.columns(), "), keys and values (", kv.rows(),
          ", ", kv.columns(), ") and out (", out.rows(), ", ", out.columns(), "), expected (", rows,
          ", ", columns, "), (", shape.batch * shape.tokens, ", ", kv_columns, ") and (", rows,
          ", ", out_columns, ")");
  require(log_sum_exp == rows * shape.heads, "attention: log_sum_exp has ", log_sum_exp,
          " elements, expected ", rows * shape.heads);
}

template <class T>
void check_sinks(const AttentionShape& shape, const View<const T*>& sinks) {
  require(!sinks || sinks.size() == shape.heads, "attention: ", sinks.size(), " sinks of ",
          shape.heads, " heads; expected as many, or none");
}

template <class T>
void forward_of(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                View<const T**> q, View<const T**> kv, View<T**> out,
                View<compute_t<T>*> log_sum_exp, View<T*> workspace, View<const T*> sinks) {
  using C = compute_t<T>;
  check_shapes<T>(shape, runs, q, kv, out, log_sum_exp.size());
  check_sinks<T>(shape, sinks);
#if OSTRAKON_MATRIX_TILES
  if constexpr (is_16bit<T>)
    if (attention_on_chip<T>(shape))
      return attend_on_chip<T>(exec, {shape, runs, q, kv}, sinks, out, log_sum_exp);
#endif
#if !OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same<T, double>::value)
    if (attention_in_tiles<T>(shape))
      return forward_in_tiles<T>(exec, shape, runs, q, kv, sinks, out, log_sum_exp);
#endif
  const AttentionOperands operands(shape, runs.rows());
  const C scale = score_scale<C>(shape);
  Scratch<T> scratch(workspace, "attention");
  const std::int64_t size = score_elements(shape);
  const View<C*> all_scores = scratch.template take<C>(size);
  const View<T*> all_stored =
      stored_at(all_scores, scratch.template take<T>(is_16bit<T> ? size : 0));
  const auto attend = [&](const AttentionBlock& block) {
    const std::int64_t rows = block.rows();
    const View<C**> scores = all_scores.matrix(block.count * rows, block.keys());
    const View<T**> probabilities = all_stored.matrix(block.count * rows, block.keys());
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, operands.queries(q, block),
                    operands.keys(kv, block), C(0),
                    Batch<C>::of_rows(scores, rows, rows, block.count));
    softmax_rows<T>(exec, block, BlockScores(shape, runs, block), scores, sinks, probabilities,
                    operands.log_sum_exp(log_sum_exp, block), operands.log_sum_exp_stride(block));
    gemm_batched<T>(exec, Transpose::no, Transpose::no, C(1),
                    Batch<const T>::of_rows(probabilities, rows, rows, block.count),
                    operands.values(kv, block), C(0), operands.outputs(out, block));
  };
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    for_each_attention_block(shape, heads, runs, 0, runs.runs(), attend,
                             std::min(attention_query_block, shape.tokens));
  });
}

#if OSTRAKON_MATRIX_TILES
/// Launches one kernel for queries and one for keys and values; with pieces, one of the latter for
/// each piece and sequence.
template <class T, class K>
void backward_on_chip(const Exec& exec, const AttentionInputs<T>& in,
                      const AttentionGradients<T>& gradients, View<const T**> out, View<T**> dq,
                      View<K**> dkv, View<T*> workspace) {
  const AttentionShape& shape = in.shape;
  const QueryRuns& runs = in.runs;
  Scratch<T> scratch(workspace, "attention");
  const View<float*> delta = scratch.template take<float>(delta_elements(shape));
  attend_backward_queries<T>(exec, in, gradients, out, dq, delta);
  const std::int64_t width = shape.kv_heads * shape.head_width;
  if (runs.pieces() == 1)
    return attend_backward_kv<T, K>(exec, in, gradients, delta, {0, shape.batch, 0, runs.runs()},
                                    {dkv.column_range(0, width), dkv.column_range(width, 2 * width),
                                     shape.tokens, 0, shape.head_width});
  const KvSums<T, true> sums(shape, runs.pieces(), scratch);
  const AttentionOperands operands(shape, runs.rows());
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          attend_backward_kv<T, float>(
              exec, in, gradients, delta,
              {heads.sequence, 1, piece * runs.runs_of_piece(), runs.runs_of_piece()},
              {sums.key_rows(slot), sums.value_rows(slot), 0, shape.tokens, 0});
        },
        [&](std::int64_t from, std::int64_t to) { sums.add(exec, from, to); });
    sums.store(exec, operands.all_keys(dkv, heads), operands.all_values(dkv, heads), heads.count);
  });
}
#endif

/// K: dtype of the gradients of keys and values. `apart`: whether they are summed in separate
/// slots.
template <class T, class K, bool apart>
void backward_of(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                 View<const T**> q, View<const T**> kv, View<const T**> out,
                 View<const compute_t<T>*> log_sum_exp, View<const T**> dout, View<T**> dq,
                 View<K**> dkv, View<T*> workspace) {
  using C = compute_t<T>;
  check_shapes<T>(shape, runs, q, kv, out, log_sum_exp.size());
  check_shapes<K>(shape, runs, View<const K**>(nullptr, dq.rows(), dq.columns(), dq.stride()), dkv,
                  View<const K**>(nullptr, dout.rows(), dout.columns(), dout.stride()),
                  log_sum_exp.size());
  require(!shape.values_in_keys, "attention: values are columns of keys, which have no backward");
#if OSTRAKON_MATRIX_TILES
  if constexpr (is_16bit<T>)
    if (attention_on_chip<T>(shape))
      return backward_on_chip<T, K>(exec, {shape, runs, q, kv}, {log_sum_exp, dout}, out, dq, dkv,
                                    workspace);
#endif
#if !OSTRAKON_ON_DEVICE
  if constexpr (!std::is_same<T, double>::value)
    if (attention_in_tiles<T>(shape))
      return backward_in_tiles<T, K>(exec, shape, runs, {q, kv, dout, log_sum_exp, {}, dq, dkv},
                                     out, workspace);
#endif
  const AttentionOperands operands(shape, runs.rows());
  const C scale = score_scale<C>(shape);
  const std::int64_t value_width = shape.width_of_values();
  Scratch<T> scratch(workspace, "attention");
  const std::int64_t size = score_elements(shape);
  const View<C*> all_scores = scratch.template take<C>(2 * size);
  const KvSums<T, apart> sums(shape, runs.pieces(), scratch);
  const View<T*> all_stored =
      stored_at(all_scores, scratch.template take<T>(is_16bit<T> ? 2 * size : 0));
  const auto add_block = [&](const AttentionBlock& block, std::int64_t slot) {
    const std::int64_t all_rows = block.count * block.queries();
    const View<C**> scores = all_scores.matrix(all_rows, block.keys());
    const View<C**> dprobabilities = second_half(all_scores, all_rows, block.keys());
    const View<T**> probabilities = all_stored.matrix(all_rows, block.keys());
    const View<T**> dscores = second_half(all_stored, all_rows, block.keys());
    const auto heads = [&](const auto& all) {
      using Element = typename std::decay_t<decltype(all)>::Element;
      return Batch<Element>::of_rows(all, block.queries(), block.queries(), block.count);
    };
    const Batch<const T> dblock = operands.outputs(dout, block);
    const Batch<const T> queries = operands.queries(q, block);
    const Batch<const T> keys = operands.keys(kv, block);
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, queries, keys, C(0), heads(scores));
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, C(1), dblock, operands.values(kv, block),
                    C(0), heads(dprobabilities));
    softmax_backward_rows<T>(
        exec, block, BlockScores(shape, runs, block),
        {operands.log_sum_exp(log_sum_exp, block), operands.log_sum_exp_stride(block),
         operands.query_rows(out, block), operands.query_rows(dout, block), value_width,
         operands.query_head(block) * value_width, operands.output_stride()},
        scale, scores, dprobabilities, probabilities, dscores);
    gemm_batched<T>(exec, Transpose::no, Transpose::no, C(1), heads(dscores), keys, C(0),
                    operands.queries(dq, block));
    // The first block overwrites, and others add. With a window, or in documents, it may see later
    // keys alone: then all are cleared before, and it adds, too.
    const bool overwrites = block.is_first && shape.scores.window == 0 && block.first_key == 0;
    if (block.is_first)
      sums.clear(exec, operands.all_keys(dkv, block), operands.all_values(dkv, block), slot,
                 overwrites ? block.end : 0);
    const C beta = overwrites ? C(0) : C(1);
    gemm_batched<T>(exec, Transpose::yes, Transpose::no, C(1), heads(dscores), queries, beta,
                    sums.keys(operands.keys(dkv, block), slot, block.first_key));
    gemm_batched<T>(exec, Transpose::yes, Transpose::no, C(1), heads(probabilities), dblock, beta,
                    sums.values(operands.values(dkv, block), slot, block.first_key));
  };
  for_each_attention_heads(shape, [&](const AttentionHeads& heads) {
    sum_pieces(
        runs.pieces(),
        [&](std::int64_t slot, std::int64_t piece) {
          for_each_attention_block(shape, heads, runs, piece * runs.runs_of_piece(),
                                   runs.runs_of_piece(),
                                   [&](const AttentionBlock& block) { add_block(block, slot); });
        },
        [&](std::int64_t from, std::int64_t to) { sums.add(exec, from, to); });
    sums.store(exec, operands.all_keys(dkv, heads), operands.all_values(dkv, heads), heads.count);
  });
}

}  // namespace

namespace {

/// Elements for a library that may compute attention; 0 if it may not.
template <class T>
std::int64_t library_elements(const AttentionShape& shape, KernelForm form, AttentionPass pass) {
  if constexpr (is_16bit<T>)
    if (is_for_library(shape, library_dtype<T>, form, pass))
      return library_workspace_bytes(shape, pass) / static_cast<std::int64_t>(sizeof(T));
  return 0;
}

template <class T>
std::int64_t own_forward_workspace(const AttentionShape& shape, KernelForm form) {
  if (attention_on_chip<T>(shape, form) || has_tiles_only<T>(shape, form)) return 0;
  const std::int64_t scores = score_elements(shape, form);
  return scratch_elements<T, compute_t<T>>(scores) + (is_16bit<T> ? scores : 0);
}

template <class T>
std::int64_t own_backward_workspace(const AttentionShape& shape, std::int64_t pieces,
                                    KernelForm form) {
  std::int64_t in_tiles = 0;
  if constexpr (!std::is_same<T, double>::value)
    if (attention_fits_tiles<T>(shape, form)) in_tiles = tile_workspace<T>(shape, pieces);
  if (has_tiles_only<T>(shape, form)) return in_tiles;
  const std::int64_t sums =
      kv_sum_elements<T>(shape, shape.head_width + shape.width_of_values(), pieces, form);
  if (attention_on_chip<T>(shape, form))
    return scratch_elements<T, compute_t<T>>(delta_elements(shape) + sums);
  const std::int64_t scores = 2 * score_elements(shape, form);
  return std::max(in_tiles,
                  scratch_elements<T, compute_t<T>>(scores + sums) + (is_16bit<T> ? scores : 0));
}

}  // namespace

template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape, KernelForm form) {
  return std::max(own_forward_workspace<T>(shape, form),
                  library_elements<T>(shape, form, AttentionPass::forward));
}

template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape, std::int64_t pieces,
                                          KernelForm form) {
  return std::max(own_backward_workspace<T>(shape, pieces, form),
                  library_elements<T>(shape, form, AttentionPass::backward));
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape,
                       const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                       View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace,
                       View<const T*> sinks) {
  forward_of<T>(exec, shape, QueryRuns(queries), q, kv, out, log_sum_exp, workspace, sinks);
}

namespace {

/// Returns the columns of keys and values in rows of queries, keys and values.
template <class T>
View<T**> kv_columns(const AttentionShape& shape, const View<T**>& qkv) {
  const std::int64_t first = shape.query_columns(), columns = first + shape.kv_columns();
  require(qkv.columns() == columns, "attention: qkv (", qkv.rows(), ", ", qkv.columns(),
          "), expected ", columns, " columns");
  return qkv.column_range(first, columns);
}

}  // namespace

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape,
                        const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dq, View<compute_t<T>**> dkv,
                        View<T*> workspace) {
  const QueryRuns runs(queries);
  if (runs.pieces() > 1)
    backward_of<T, compute_t<T>, true>(exec, shape, runs, q, kv, out, log_sum_exp, dout, dq, dkv,
                                       workspace);
  else
    backward_of<T, compute_t<T>, is_16bit<T>>(exec, shape, runs, q, kv, out, log_sum_exp, dout, dq,
                                              dkv, workspace);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                       std::int64_t query_begin, std::int64_t query_end, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace, View<const T*> sinks,
                       View<const std::int32_t*> document_begins) {
  const bool is_whole = query_begin == 0 && query_end == shape.tokens && !document_begins && !sinks;
  if (is_whole && forward_by_library<T>(exec, shape, qkv, out, log_sum_exp, workspace)) return;
  forward_of<T>(exec, shape, QueryRuns(shape.tokens, query_begin, query_end, document_begins), qkv,
                kv_columns(shape, qkv), out, log_sum_exp, workspace, sinks);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, std::int64_t begin,
                       View<const T**> q, View<const T**> kv, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace, View<const T*> sinks) {
  forward_of<T>(exec, shape, QueryRuns::from(shape.tokens, begin, q.rows(), q.rows()), q, kv, out,
                log_sum_exp, workspace, sinks);
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dqkv, View<T*> workspace,
                        View<const std::int32_t*> document_begins) {
  if (!document_begins &&
      backward_by_library<T>(exec, shape, qkv, out, log_sum_exp, dout, dqkv, workspace))
    return;
  backward_of<T, T, is_16bit<T>>(
      exec, shape, QueryRuns(shape.tokens, 0, shape.tokens, document_begins), qkv,
      kv_columns(shape, qkv), out, log_sum_exp, dout, dqkv, kv_columns(shape, dqkv), workspace);
}

template <class T>
void attention_backward_sinks(const Exec& exec, const AttentionShape& shape, View<const T*> sinks,
                              View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                              View<const T**> dout, std::int64_t first_row,
                              View<compute_t<T>*> dsinks) {
  check_sinks<T>(shape, sinks);
  const std::int64_t of_sequence =
      log_sum_exp.size() / std::max(shape.batch * shape.heads, std::int64_t{1});
  require(dsinks.size() == shape.heads && sinks && first_row >= 0 &&
              first_row + out.rows() <= shape.batch * of_sequence && dout.rows() == out.rows(),
          "attention: rows [", first_row, ", ", first_row + out.rows(), ") of ",
          shape.batch * of_sequence, " for the gradient of ", dsinks.size(), " sinks");
  sum_sink_gradients<T>(exec, shape, sinks, out, log_sum_exp, dout, first_row, of_sequence, dsinks);
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template std::int64_t attention_forward_workspace<T>(const AttentionShape&, KernelForm);         \
  template std::int64_t attention_backward_workspace<T>(const AttentionShape&, std::int64_t,       \
                                                        KernelForm);                               \
  template void attention_forward<T>(const Exec&, const AttentionShape&, const AttentionQueries&,  \
                                     View<const T**>, View<const T**>, View<T**>,                  \
                                     View<compute_t<T>*>, View<T*>, View<const T*>);               \
  template void attention_backward<T>(const Exec&, const AttentionShape&, const AttentionQueries&, \
                                      View<const T**>, View<const T**>, View<const T**>,           \
                                      View<const compute_t<T>*>, View<const T**>, View<T**>,       \
                                      View<compute_t<T>**>, View<T*>);                             \
  template void attention_forward<T>(const Exec&, const AttentionShape&, View<const T**>,          \
                                     std::int64_t, std::int64_t, View<T**>, View<compute_t<T>*>,   \
                                     View<T*>, View<const T*>, View<const std::int32_t*>);         \
  template void attention_forward<T>(const Exec&, const AttentionShape&, std::int64_t,             \
                                     View<const T**>, View<const T**>, View<T**>,                  \
                                     View<compute_t<T>*>, View<T*>, View<const T*>);               \
  template void attention_backward<T>(const Exec&, const AttentionShape&, View<const T**>,         \
                                      View<const T**>, View<const compute_t<T>*>, View<const T**>, \
                                      View<T**>, View<T*>, View<const std::int32_t*>);             \
  template void attention_backward_sinks<T>(const Exec&, const AttentionShape&, View<const T*>,    \
                                            View<const T**>, View<const compute_t<T>*>,            \
                                            View<const T**>, std::int64_t, View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
