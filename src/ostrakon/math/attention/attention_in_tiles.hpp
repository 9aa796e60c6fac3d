// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention/attention_blocks.hpp>

// Attention on the host by the kernels of attention_tiles.hpp, for all sequences and heads. T:
// float, bf16 or fp16.

namespace ostrakon::math {

/// Bytes of workspace for backward in tiles.
template <class T>
std::int64_t tile_workspace(const AttentionShape& shape, std::int64_t pieces);

#if !OSTRAKON_ON_DEVICE
/// Launches a kernel for each head of each sequence.
template <class T>
void forward_in_tiles(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                      const View<const T**>& q, const View<const T**>& kv,
                      const View<const T*>& sinks, const View<T**>& out,
                      const View<float*>& log_sum_exp);

/// Inputs and outputs of backward in tiles.
template <class T, class K>
struct TileGradients {
  View<const T**> q, kv, dout;
  View<const float*> log_sum_exp, delta;
  View<T**> dq;
  View<K**> dkv;
};

/// Launches a kernel for some key/value heads at a time.
template <class T, class K>
void backward_in_tiles(const Exec& exec, const AttentionShape& shape, const QueryRuns& runs,
                       TileGradients<T, K> arrays, const View<const T**>& out,
                       const View<T*>& workspace);
#endif

}  // namespace ostrakon::math
