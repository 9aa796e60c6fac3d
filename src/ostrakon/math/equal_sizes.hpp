// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>

namespace ostrakon::math {

/// Throws Error unless the two arrays that `function` was given have as many elements.
inline void require_equal_sizes(const char* function, std::int64_t x, std::int64_t y) {
  require(x == y, function, ": arrays of ", x, " and ", y, " elements, expected equal sizes");
}

}  // namespace ostrakon::math
