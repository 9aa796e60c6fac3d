// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon {

/// Whether a number is a power of two; true for 0.
constexpr bool is_power_of_two(std::int64_t number) { return (number & (number - 1)) == 0; }

}  // namespace ostrakon
