// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/math/view.hpp>

namespace ostrakon::preflight {

/// Faults made on purpose, by tests only: no program sets them. Each function is called in place of
/// what it is given, which it has to call.
struct Faults {
  /// Around some products; `first` is the number of the first of them, and `results` (products,
  /// rows * columns) what they leave.
  std::function<void(const std::function<void()>& multiply, std::int64_t first,
                     View<float**> results)>
      products;
  /// Around an exchange with another rank.
  std::function<void(const std::function<void()>& exchange, int other)> exchange;
};

}  // namespace ostrakon::preflight
