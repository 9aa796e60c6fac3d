// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

// RMS norm (Zhang & Sennrich 2019) of each head of queries or of keys separately, with one weight
// for all heads: y = x rstd gain, rstd = 1 / sqrt(mean of x^2 + epsilon); the gain is 1, the weight
// or 1 + the weight. Heads are adjacent columns: x, y and their gradients are (rows, heads *
// head_width), with gaps between rows if they are columns of a wider matrix. weight (head_width),
// empty for NormWeight::none; rstd (rows * heads).

/// Replaces x by y, and stores the input.
template <class T>
void head_norm_forward(const Exec& exec, NormWeight gain, double epsilon, std::int64_t head_width,
                       View<const T*> weight, View<T**> x, View<T**> kept);

/// Computes rstd from the input of the norm.
template <class T>
void head_norm_statistics(const Exec& exec, double epsilon, std::int64_t head_width,
                          View<const T**> x, View<compute_t<T>*> rstd);

/// Replaces dL/dy by dL/dx.
template <class T>
void head_norm_backward_input(const Exec& exec, NormWeight gain, std::int64_t head_width,
                              View<const T*> weight, View<const T**> x,
                              View<const compute_t<T>*> rstd, View<T**> gradient);

/// dweight (head_width), overwritten: the sum over rows and heads, in a fixed order.
template <class T>
void head_norm_backward_parameters(const Exec& exec, View<const T**> x,
                                   View<const compute_t<T>*> rstd, View<const T**> dy,
                                   View<compute_t<T>*> dweight);

}  // namespace ostrakon::math
