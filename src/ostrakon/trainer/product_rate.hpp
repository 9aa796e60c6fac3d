// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/runtime/arena.hpp>

namespace ostrakon::train {

/// Measures the best rate of matrix products in `dtype` that this rank reaches within `memory`, in
/// floating-point operations per second. Takes about `seconds`. Overwrites `memory`, which is the
/// device's.
double measure_product_rate(DType dtype, const runtime::Arena& memory, double seconds);

}  // namespace ostrakon::train
