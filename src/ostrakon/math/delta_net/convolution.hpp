// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

// A causal convolution of each channel by itself, with SiLU behind it: y = silu(p), p(t, c) = the
// sum over j < taps of weight(c, j) x(t - taps + 1 + j, c); there is nothing before the first token
// of a sequence. Sequences are `tokens` neighbouring rows each; weight (channels, taps).

/// The most taps of a convolution.
constexpr std::int64_t most_taps = 16;

/// x and y (rows, channels). Where x goes on with a sequence, its only one, `before` (taps - 1,
/// channels) has the rows before it; else it is empty.
template <class T>
void convolution_forward(const Exec& exec, std::int64_t tokens, View<const T**> before,
                         View<const T**> x, View<const T**> weight, View<T**> y);
/// before = the last rows of `before` and x together.
template <class T>
void keep_last_rows(const Exec& exec, View<const T**> x, View<T**> before);

/// dp = dL/dp from dy, each (rows, channels).
template <class T>
void convolution_backward_sums(const Exec& exec, std::int64_t tokens, View<const T**> x,
                               View<const T**> weight, View<const T**> dy, View<T**> dp);
/// dx from dp, overwritten.
template <class T>
void convolution_backward_input(const Exec& exec, std::int64_t tokens, View<const T**> weight,
                                View<const T**> dp, View<T**> dx);
/// dweight (channels, taps) from dp, overwritten: the sum over rows of whole sequences, in a fixed
/// order.
template <class T>
void convolution_backward_weight(const Exec& exec, std::int64_t tokens, View<const T**> x,
                                 View<const T**> dp, View<compute_t<T>**> dweight);

}  // namespace ostrakon::math
