// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/error.hpp>

namespace ostrakon::math {

/// Throws Error unless two arguments of `function` have equally many elements.
inline void require_equal_sizes(const char* function, std::int64_t x, std::int64_t y) {
  require(x == y, function, ": arrays of ", x, " and ", y, " elements, expected equal sizes");
}

/// Throws Error unless `array`, the argument `name` of `function`, has `expected` elements.
template <class Array>
void require_size(const char* function, const char* name, const Array& array,
                  std::int64_t expected) {
  require(array.size() == expected, function, ": ", name, " has ", array.size(),
          " elements, expected ", expected);
}

/// Checks the size of an array unless it is empty.
template <class Array>
void require_size_if_any(const char* function, const char* name, const Array& array,
                         std::int64_t expected) {
  if (array) require_size(function, name, array, expected);
}

/// Throws Error unless `matrix`, the argument `name` of `function`, is (rows, columns).
template <class Matrix>
void require_shape(const char* function, const char* name, const Matrix& matrix, std::int64_t rows,
                   std::int64_t columns) {
  require(matrix.rows() == rows && matrix.columns() == columns, function, ": ", name, " is (",
          matrix.rows(), ", ", matrix.columns(), "), expected (", rows, ", ", columns, ")");
}

}  // namespace ostrakon::math
