// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention whose scores stay in registers (FlashAttention-2, Dao 2023): a team has a tile of
// queries, or of keys in the backward of keys and values, and walks over tiles of the others. What
// it adds up comes in an order that positions alone fix, no atomics: a query's bits depend on it
// and on the keys that it sees, not on the queries beside it.

#include <ostrakon/math/attention_blocks.hpp>
#include <ostrakon/math/matrix_tile.hpp>

namespace ostrakon::math {

/// Whether attention of this shape has that form. Else it goes through products (attention.cpp).
template <class T>
constexpr bool attention_on_chip(const AttentionShape& shape, KernelForm form = kernel_form) {
  return form == KernelForm::device_on_chip && is_16bit<T> &&
         (shape.head_width == 64 || shape.head_width == 128);
}

#if OSTRAKON_MATRIX_TILES

/// What the kernels read: arrays as attention_forward takes them, of all sequences.
template <class T>
struct AttentionInputs {
  AttentionShape shape;
  QueryRuns runs;
  View<const T**> q, kv;
};

/// Writes the rows of `out` and `log_sum_exp` of these queries.
template <class T>
void attend_on_chip(const Exec& exec, const AttentionInputs<T>& in, View<T**> out,
                    View<float*> log_sum_exp);

/// What the backward reads besides.
template <class T>
struct AttentionGradients {
  View<const float*> log_sum_exp;
  View<const T**> dout;
};

/// Writes dq, and `delta` (batch, heads, rows) = the sum of out dout over a head's columns.
template <class T>
void attend_backward_queries(const Exec& exec, const AttentionInputs<T>& in,
                             const AttentionGradients<T>& gradients, View<const T**> out,
                             View<T**> dq, View<float*> delta);

/// Where gradients of keys and values go: token t of head h of sequence s is in row
/// s * sequence_rows + h * head_rows + t, from column h * head_columns on.
template <class K>
struct KvGradients {
  View<K**> keys, values;
  std::int64_t sequence_rows, head_rows, head_columns;
};

/// Some neighbouring sequences and runs of their queries.
struct AttentionRange {
  std::int64_t first_sequence, sequences;
  std::int64_t first_run, runs;  ///< one run or two
};

/// Writes the gradients of all keys and values of these sequences (`to` begins with the first of
/// them) from these queries, zero where none of them sees a key. `delta` as written for them.
template <class T, class K>
void attend_backward_kv(const Exec& exec, const AttentionInputs<T>& in,
                        const AttentionGradients<T>& gradients, View<const float*> delta,
                        const AttentionRange& range, const KvGradients<K>& to);

#endif

}  // namespace ostrakon::math
