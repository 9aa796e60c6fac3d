// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Causal self-attention with grouped queries (Ainslie et al. 2023), scaled by 1/sqrt(head_width).
/// Query head h reads key/value head h / (heads / kv_heads).
///
/// `qkv` is (batch * tokens, (heads + 2 * kv_heads) * head_width): a row holds its query heads,
/// then its key heads, then its value heads. `out` is (batch * tokens, heads * head_width).
///
/// No tokens x tokens matrix is kept: scores exist for one block of queries at a time in
/// `workspace`, in tiles (attention_tiles.hpp) or on chip (attention_on_chip.hpp). Forward saves
/// the log of each row's sum of exponentials, from which backward recomputes the probabilities
/// (after Dao et al. 2022).
struct AttentionShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_width = 1;
};

/// Elements of T (not bytes) of `workspace` for attention_forward and attention_backward, with
/// kernels of `form`.
template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape,
                                         KernelForm form = kernel_form);
template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape, std::int64_t pieces = 1,
                                          KernelForm form = kernel_form);

/// Computes attention of queries [query_begin, query_end) of every sequence to keys [0, query].
/// Writes those rows of `out`, and log_sum_exp (batch, heads, tokens) at those tokens.
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                       std::int64_t query_begin, std::int64_t query_end, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// Queries in an array of their own: those of a part of each sequence, which has
/// sequence.part_tokens() rows per sequence.
struct AttentionQueries {
  SequenceParts sequence;
  std::int64_t part = 0;
};

/// Computes attention of the queries of a part: `q` (batch * part_tokens, heads * head_width or
/// more columns), `kv` (batch * tokens, 2 * kv_heads * head_width) ordered by position: key heads,
/// then value heads. out (batch * part_tokens, heads * head_width), log_sum_exp (batch, heads,
/// part_tokens).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape,
                       const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                       View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// Computes attention of the queries at positions [begin, begin + q.rows()) of a single sequence: q
/// (rows, heads * head_width or more columns), kv (tokens, 2 * kv_heads * head_width), out (rows,
/// heads * head_width), log_sum_exp (heads, rows).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, std::int64_t begin,
                       View<const T**> q, View<const T**> kv, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace);

/// Backward of attention_forward of a part: dq, shape of `out`, and dkv, shape of `kv`, are
/// overwritten. dkv has the sums over these queries alone, zero for keys that none of them sees:
/// the queries of each piece are summed, then the pieces by the tree of piece_tree.hpp. The
/// workspace is that for `pieces`.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape,
                        const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dq, View<compute_t<T>**> dkv,
                        View<T*> workspace);

/// Backward of attention_forward over all queries: dqkv, shape of `qkv`, is overwritten, from the
/// inputs and outputs of forward and `dout`, shape of `out`.
template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                        View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                        View<const T**> dout, View<T**> dqkv, View<T*> workspace);

}  // namespace ostrakon::math
