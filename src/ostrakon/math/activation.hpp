// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// y = gelu(x), tanh form (Hendrycks & Gimpel 2016, eq. 2), as GPT-2 uses it. x, y (rows, n).
template <class T>
void gelu_forward(const Exec& exec, View<const T**> x, View<T**> y);

/// dx = dy * gelu'(x), overwritten; dx and dy may be the same matrix.
template <class T>
void gelu_backward(const Exec& exec, View<const T**> x, View<const T**> dy, View<T**> dx);

/// y = silu(gate) * up (Shazeer 2020). gate_up (rows, 2n): gate in columns [0, n), up in [n, 2n).
template <class T>
void swiglu_forward(const Exec& exec, View<const T**> gate_up, View<T**> y);

/// dgate_up (rows, 2n) = gradient of gate and up, overwritten, from dy (rows, n); dgate_up and
/// gate_up may be the same matrix.
template <class T>
void swiglu_backward(const Exec& exec, View<const T**> gate_up, View<const T**> dy,
                     View<T**> dgate_up);

/// y = cap * tanh(x / cap) (Gemma Team 2024, "logit soft-capping"). x, y (rows, n).
template <class T>
void soft_cap_forward(const Exec& exec, compute_t<T> cap, View<const T**> x, View<T**> y);
/// dx = gradient from dy, overwritten; dx and dy may be the same matrix.
template <class T>
void soft_cap_backward(const Exec& exec, compute_t<T> cap, View<const T**> y, View<const T**> dy,
                       View<T**> dx);

}  // namespace ostrakon::math
