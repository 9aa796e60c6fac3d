// SPDX-License-Identifier: Apache-2.0
#pragma once

// Norms of heads that lanes of a device's warps hold (held_heads_kernels.hpp), for other kernels of
// norms: all that these functions write has the same bits, whichever of them writes it.

#include <ostrakon/math/attention/head_norm.hpp>
#include <ostrakon/math/attention/rotary_rows.hpp>
#include <ostrakon/math/rows/row_blocks.hpp>
#include <ostrakon/math/vectors.hpp>

namespace ostrakon::math {

/// Whether lanes can hold heads of this width, in arrays whose rows begin at vectors.
template <class T>
constexpr bool can_hold_heads(std::int64_t width) {
  constexpr std::int64_t pair_of_vectors = 2 * vector_elements<T>();
  return !std::is_same_v<T, double> && width % pair_of_vectors == 0 && width <= 2 * most_pairs;
}

/// Whether lanes that hold heads sum the gradient of a weight of `of_weight` elements: one that all
/// heads have.
template <class T>
constexpr bool sums_held_heads(std::int64_t width, std::int64_t of_weight) {
  return can_hold_heads<T>(width) && of_weight == width;
}

#if OSTRAKON_ON_DEVICE

/// Whether lanes can hold heads of this width in these arrays.
template <class T, class... A>
bool hold_heads(std::int64_t width, const View<A**>&... arrays) {
  return can_hold_heads<T>(width) && are_whole<vector_elements<T>()>(arrays...);
}

/// Heads of queries, or of keys, in rows.
template <class T>
struct HeldHeads {
  using C = compute_t<T>;
  View<const T*> weight = {};             ///< of all heads, or of each
  View<const T**> in = {};                ///< the norm's input
  View<const T**> dout = {};              ///< backward: the gradient of the norm, rotated
  View<T**> out = {};                     ///< backward: null: not wanted
  View<T**> kept = {};                    ///< forward: becomes `in`
  View<const C**> rstd = {}, mean = {};   ///< backward: found from `in` where they are empty
  View<C*> dweight = {}, workspace = {};  ///< backward: null: not wanted; see head_norm.hpp
};
/// The heads of one array, or those of two: queries and keys.
template <class T>
using HeldArrays = Kokkos::Array<HeldHeads<T>, 2>;

template <class T>
void held_heads_forward(const Exec& exec, const char* name, const HeadNorm& norm,
                        const HeldArrays<T>& arrays, int count,
                        const RowRotation* rotation = nullptr);

/// `leaves`: of the sums for weights, which all heads share.
template <class T>
void held_heads_backward(const Exec& exec, const char* name, const HeadNorm& norm,
                         const HeldArrays<T>& arrays, int count, std::int64_t leaves = 1,
                         const RowRotation* rotation = nullptr);

template <class T>
void held_heads_statistics(const Exec& exec, const char* name, const HeadNorm& norm,
                           View<const T**> x, View<compute_t<T>**> rstd, View<compute_t<T>**> mean);

#endif

}  // namespace ostrakon::math
