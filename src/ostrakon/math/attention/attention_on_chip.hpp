// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attention whose scores stay in registers (FlashAttention-2, Dao 2023): a team has a tile of
// queries, or of keys in the backward of keys and values, and loops over tiles of the others. The
// order of sums depends only on positions, and there are no atomics: the bits of a query depend on
// it and on the keys that it sees, not on other queries.

#include <ostrakon/math/attention/attention_blocks.hpp>
#include <ostrakon/math/products/matrix_tile.hpp>

namespace ostrakon::math {

/// Whether attention of this shape is computed on chip; otherwise by products (attention.cpp), as
/// are scores that are capped or less a slope: the kernels on chip have scaled products alone.
template <class T>
constexpr bool attention_on_chip(const AttentionShape& shape, KernelForm form = kernel_form) {
  return form == KernelForm::device_on_chip && is_16bit<T> &&
         (shape.head_width == 64 || shape.head_width == 128) &&
         shape.width_of_values() == shape.head_width && !shape.values_in_keys &&
         !shape.scores.change();
}

#if OSTRAKON_MATRIX_TILES

/// Inputs of the kernels: arrays as in attention_forward, of all sequences.
template <class T>
struct AttentionInputs {
  AttentionShape shape;
  QueryRuns runs;
  View<const T**> q, kv;
};

/// Writes the rows of `out` and `log_sum_exp` of the queries.
template <class T>
void attend_on_chip(const Exec& exec, const AttentionInputs<T>& in, View<const T*> sinks,
                    View<T**> out, View<float*> log_sum_exp);

/// Further inputs of backward.
template <class T>
struct AttentionGradients {
  View<const float*> log_sum_exp;
  View<const T**> dout;
};

/// Writes dq, and `delta` (batch, heads, rows) = the sum of out * dout over a head's columns.
template <class T>
void attend_backward_queries(const Exec& exec, const AttentionInputs<T>& in,
                             const AttentionGradients<T>& gradients, View<const T**> out,
                             View<T**> dq, View<float*> delta);

/// Destination of the gradients of keys and values: token t of head h of sequence s is in row s *
/// sequence_rows + h * head_rows + t, from column h * head_columns on.
template <class K>
struct KvGradients {
  View<K**> keys, values;
  std::int64_t sequence_rows, head_rows, head_columns;
};

/// Adjacent sequences, and adjacent runs of their queries.
struct AttentionRange {
  std::int64_t first_sequence, sequences;
  std::int64_t first_run, runs;  ///< one run or two
};

/// Writes the gradients of all keys and values of these sequences (`to` begins with the first of
/// them) from these queries; zero for keys that none of them sees. `delta`: from
/// attend_backward_queries.
template <class T, class K>
void attend_backward_kv(const Exec& exec, const AttentionInputs<T>& in,
                        const AttentionGradients<T>& gradients, View<const float*> delta,
                        const AttentionRange& range, const KvGradients<K>& to);

#endif

}  // namespace ostrakon::math
