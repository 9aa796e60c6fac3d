// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/rows/norm.hpp>

#include "support/device_array.hpp"

namespace ostrakon::math {

/// Calls sum_norm_gradients with a workspace of its own.
template <class T>
void norm_parameters(const Exec& exec, NormKind kind, View<const T**> x,
                     View<const compute_t<T>*> mean, View<const compute_t<T>*> rstd,
                     View<const T**> dy, View<compute_t<T>*> dweight, View<compute_t<T>*> dbias,
                     std::int64_t leaves = 1) {
  const test::DeviceArray<compute_t<T>> room(norm_sums_workspace(x.rows(), x.columns(), leaves));
  sum_norm_gradients<T>(exec, kind, x, mean, rstd, dy, dweight, dbias, {leaves, room});
}

}  // namespace ostrakon::math
