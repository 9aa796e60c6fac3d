// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <vector>

namespace ostrakon::math {

// Norms of the heads of queries and of keys, and rotary positions of both, in one kernel of a
// device: forward reads each value once and writes what comes of it and what is kept, backward
// reads the gradient and what was kept and writes the gradient of the norm's input. The bits are
// those of one kernel after the other, between which values are rounded to T.

/// Whether devices have such kernels for heads of this width and frequencies that rotate all of
/// their elements; of rows that begin at vectors.
template <class T>
bool can_norm_and_rotate(const HeadNorm& norm, const RotaryFrequencies& frequencies);

/// Rotary positions of rows, as rotate() takes them.
struct RotaryRows {
  const RotaryFrequencies& frequencies;
  std::int64_t tokens, first_position;
  View<const std::int32_t*> document_begins = {};
};

/// Queries, or keys: (rows, heads * head_width), with a weight as head_norm.hpp has it.
template <class T>
struct NormedHeads {
  View<const T*> weight;
  View<T**> x;     ///< is replaced by the norm, rotated
  View<T**> kept;  ///< becomes x
};

/// Does what head_norm_forward and then rotate() do for all of `heads`, one array or two. Returns
/// whether it has: a host has no such kernel, nor has a device where can_norm_and_rotate() says so.
/// The answer depends on no number of rows.
template <class T>
bool norm_and_rotate(const Exec& exec, const HeadNorm& norm, const RotaryRows& rows,
                     const std::vector<NormedHeads<T>>& heads);

template <class T>
struct NormedHeadGradients {
  View<const T*> weight;
  View<const T**> kept;
  View<T**> gradient;  ///< of what was rotated; is replaced by that of x
  /// The gradient of the weight, which all heads have, overwritten; none: it is not wanted.
  View<compute_t<T>*> dweight;
  View<compute_t<T>*> workspace;  ///< head_norm_sums_workspace()
};

/// Does what rotate() back, head_norm_backward_parameters and head_norm_backward_input do. Returns
/// whether it has, as norm_and_rotate does, and only for weights that all heads have.
template <class T>
bool rotate_and_norm_backward(const Exec& exec, const HeadNorm& norm, const RotaryRows& rows,
                              const std::vector<NormedHeadGradients<T>>& heads,
                              std::int64_t leaves);

}  // namespace ostrakon::math
