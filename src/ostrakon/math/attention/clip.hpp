// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// y = x clamped to [-limit, limit]; NaN stays. Both have the same shape.
template <class T>
void clip_forward(const Exec& exec, compute_t<T> limit, View<const T**> x, View<T**> y);

/// dx = dy where x is in [-limit, limit], else 0; `dx` may be `dy`.
template <class T>
void clip_backward(const Exec& exec, compute_t<T> limit, View<const T**> x, View<const T**> dy,
                   View<T**> dx);

}  // namespace ostrakon::math
