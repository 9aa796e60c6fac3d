// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/runtime/arena.hpp>

namespace ostrakon::train {

/// Best rate of products of `number` that this rank reaches within `memory`, in floating-point
/// operations per second. Takes about `seconds`. Overwrites the memory, which is the device's.
double measure_product_rate(DType dtype, const runtime::Arena& memory, double seconds);

}  // namespace ostrakon::train
