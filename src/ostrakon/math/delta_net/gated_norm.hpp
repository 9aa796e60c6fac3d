// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

// RMS norm of each head with a gate: y = x rstd weight silu(gate), rstd = 1 / sqrt(mean of the
// head's x^2 + epsilon). x, gate, y and their gradients are (rows, heads * head_width), weight
// (head_width) for all heads, rstd (rows * heads); see head_norm_statistics.

template <class T>
void gated_norm_forward(const Exec& exec, double epsilon, View<const T**> x, View<const T**> gate,
                        View<const T*> weight, View<T**> y);

/// dx and dgate from dy, overwritten; dx may be dy.
template <class T>
void gated_norm_backward_input(const Exec& exec, View<const T**> x, View<const T**> gate,
                               View<const T*> weight, View<const compute_t<T>*> rstd,
                               View<const T**> dy, View<T**> dx, View<T**> dgate);

/// dweight (head_width), overwritten: the sum over rows and heads, in a fixed order.
template <class T>
void gated_norm_backward_parameters(const Exec& exec, View<const T**> x, View<const T**> gate,
                                    View<const compute_t<T>*> rstd, View<const T**> dy,
                                    View<compute_t<T>*> dweight);

}  // namespace ostrakon::math
