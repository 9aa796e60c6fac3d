// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/sequence_parts.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Causal self-attention with grouped queries (Ainslie et al. 2023), scaled by 1/sqrt(head_width).
/// Query head h reads key/value head h / (heads / kv_heads).
///
/// `qkv` is (batch * tokens, (heads + 2 * kv_heads) * head_width): a row holds its query heads,
/// then its key heads, then its value heads. `out` is (batch * tokens, heads * head_width).
///
/// No tokens x tokens matrix is kept: scores exist for one block of queries at a time in
/// `workspace`, in tiles (attention_tiles.hpp) or on chip (attention_on_chip.hpp), forward saves
/// the log of each row's sum of exponentials, backward builds the probabilities again (after Dao et
/// al. 2022).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_width = 1;
};

/// Elements of T (not bytes) of `workspace` that the calls below need, or would in another form.
template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape,
                                         KernelForm form = kernel_form);
template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape, std::int64_t pieces = 1,
                                          KernelForm form = kernel_form);

/// Attends from queries [query_begin, query_end) of every sequence to keys [0, query].
/// Writes those rows of `out`, and log_sum_exp (batch, heads, tokens) at those tokens.
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                       std::int64_t query_begin, std::int64_t query_end, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// Queries that attend to keys and values of an array of their own: those of a part of each
/// sequence, which has sequence.part_tokens() rows of it.
struct AttentionQueries {
  SequenceParts sequence;
  std::int64_t part = 0;
};

/// Attends with such queries: `q` (batch * part_tokens, heads * head_width or more columns), `kv`
/// (batch * tokens, 2 * kv_heads * head_width) in the order of positions: key heads, then value
/// heads. out (batch * part_tokens, heads * head_width), log_sum_exp (batch, heads, part_tokens).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape,
                       const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                       View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// Attends with the queries at positions [begin, begin + q.rows()) of the only sequence: q (rows,
/// heads * head_width or more columns), kv (tokens, 2 * kv_heads * head_width), out (rows, heads *
/// head_width), log_sum_exp (heads, rows).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, std::int64_t begin,
                       View<const T**> q, View<const T**> kv, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// The backward of attention_forward of a part: dq, as out, and dkv, as kv, overwritten. dkv has
/// the sums over these queries alone, zero for keys that none of them sees: each piece's queries
/// are summed by themselves, and the pieces by the tree of piece_tree.hpp. The workspace is that of
/// `pieces`.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape,
                        const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dq, View<compute_t<T>**> dkv,
                        View<T*> workspace);

/// dqkv, shape of qkv, overwritten; from what attention_forward over all queries read and wrote and
/// `dout`, shape of `out`.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dqkv, View<T*> workspace);

}  // namespace ostrakon::math
