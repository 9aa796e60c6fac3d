// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention/attention_scores.hpp>
#include <ostrakon/math/attention/library_use.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Causal self-attention with grouped queries (Ainslie et al. 2023). Query head h reads key/value
/// head h / (heads / kv_heads). `scores` says what scores are. With a window, time grows with the
/// tokens times the window.
///
/// `qkv` is (batch * tokens, query_columns() + kv_columns()): a row holds its query heads, then its
/// key heads, then its value heads, unless these are columns of its keys. `out` is (batch * tokens,
/// out_columns()).
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
  AttentionScores scores = {};
  std::int64_t value_width = 0;  ///< of a head's values, and of its columns of `out`; 0: head_width
  /// A head's values are the last columns of its keys: latents (DeepSeek-AI 2024, V2, section 2.1),
  /// which have no backward.
  bool values_in_keys = false;
  LibraryUse library = LibraryUse::never;

  KOKKOS_INLINE_FUNCTION std::int64_t width_of_values() const {
    return value_width > 0 ? value_width : head_width;
  }
  std::int64_t query_columns() const { return heads * head_width; }
  std::int64_t kv_columns() const {
    return kv_heads * (head_width + (values_in_keys ? 0 : width_of_values()));
  }
  /// The first column of a head's values among those of keys and values, and how many columns
  /// behind it the next head's begin.
  std::int64_t value_column(std::int64_t kv_head) const {
    return (values_in_keys ? head_width - width_of_values() : kv_heads * head_width) +
           kv_head * value_stride();
  }
  std::int64_t value_stride() const { return values_in_keys ? head_width : width_of_values(); }
  std::int64_t out_columns() const { return heads * width_of_values(); }
};

/// Returns how many keys a query sees on average: half of the tokens, or what the window leaves.
inline double attention_keys_of_query(const AttentionShape& shape) {
  const auto tokens = static_cast<double>(shape.tokens);
  const auto window = static_cast<double>(shape.scores.window);
  return window > 0.0 && window < tokens ? window * (1.0 - window / (2.0 * tokens)) : tokens / 2.0;
}

/// Elements of T (not bytes) of `workspace` for attention_forward and attention_backward, with
/// kernels of `form`.
template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape,
                                         KernelForm form = kernel_form);
template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape, std::int64_t pieces = 1,
                                          KernelForm form = kernel_form);

/// Computes attention of queries [query_begin, query_end) of every sequence to keys [0, query].
/// Writes those rows of `out`, and log_sum_exp (batch, heads, tokens) at those tokens. With `sinks`
/// (heads), each head has that logit among the scores of every query, as of a key whose value is 0
/// (OpenAI 2025, gpt-oss): log_sum_exp includes it. With `document_begins` (batch * tokens) queries
/// see no key of another document, see AttentionQueries.
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, View<const T**> qkv,
                       std::int64_t query_begin, std::int64_t query_end, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace,
                       View<const T*> sinks = {}, View<const std::int32_t*> document_begins = {});

/// Queries in an array of their own: those of a part of each sequence, which has
/// sequence.part_tokens() rows per sequence.
struct AttentionQueries {
  SequenceParts sequence;
  std::int64_t part = 0;
  /// (batch * part_tokens) Of each query the position in its sequence of the first token of its
  /// document, in [0, position of the query], whose successors in a sequence have the same or a
  /// later one. Null: a sequence is one document. Time grows with the tokens times the documents'
  /// length where keys of other documents fill whole tiles, but not in products on a device, whose
  /// host does not know where documents begin.
  View<const std::int32_t*> document_begins = {};
};

/// Computes attention of the queries of a part: `q` (batch * part_tokens, query_columns() or more
/// columns), `kv` (batch * tokens, kv_columns()) ordered by position: key heads, then value heads.
/// out (batch * part_tokens, out_columns()), log_sum_exp (batch, heads, part_tokens).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape,
                       const AttentionQueries& queries, View<const T**> q, View<const T**> kv,
                       View<T**> out, View<compute_t<T>*> log_sum_exp, View<T*> workspace,
                       View<const T*> sinks = {});

/// Computes attention of the queries at positions [begin, begin + q.rows()) of a single sequence: q
/// (rows, query_columns() or more columns), kv (tokens, kv_columns()), out (rows, out_columns()),
/// log_sum_exp (heads, rows).
template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, std::int64_t begin,
                       View<const T**> q, View<const T**> kv, View<T**> out,
                       View<compute_t<T>*> log_sum_exp, View<T*> workspace,
                       View<const T*> sinks = {});

/// Backward of attention_forward of a part: dq, shape of `q`, and dkv, shape of `kv`, are
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
                        View<const T**> dout, View<T**> dqkv, View<T*> workspace,
                        View<const std::int32_t*> document_begins = {});

/// dsinks (heads) = the gradient of the sinks by rows [first_row, first_row + out.rows()) alone:
/// the negative sum of the probability of the sink times the sum of dout * out. `log_sum_exp` is
/// that of all rows, (batch, heads, rows of a sequence); out and dout (rows, out_columns()).
template <class T>
void attention_backward_sinks(const Exec& exec, const AttentionShape& shape, View<const T*> sinks,
                              View<const T**> out, View<const compute_t<T>*> log_sum_exp,
                              View<const T**> dout, std::int64_t first_row,
                              View<compute_t<T>*> dsinks);

}  // namespace ostrakon::math
