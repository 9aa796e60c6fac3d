// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages about sizes that have to divide others, or whose product is limited.

#include <algorithm>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

/// A size, and the key that sets it.
struct Factor {
  const char* name;
  std::int64_t value;
};

/// Returns a division with rest as text: "256 = 3 x 85 + 1".
inline std::string division(std::int64_t dividend, std::int64_t divisor) {
  const std::int64_t rest = dividend % divisor;
  return text(dividend, " = ", divisor, " x ", dividend / divisor, " + ", rest);
}

inline void require_divides(const std::string& name, const Factor& divisor, const Factor& dividend,
                            const char* why = "") {
  if (dividend.value % divisor.value == 0) return;
  throw Error(text(name, ": ", divisor.name, " = ", divisor.value, " does not divide ",
                   dividend.name, " = ", dividend.value, " (",
                   division(dividend.value, divisor.value), ")", why));
}

/// Throws Error if the product is above `most`; avoids overflow.
inline void require_product(const std::string& name, std::int64_t most, const char* what,
                            const std::vector<Factor>& factors) {
  std::int64_t product = 1;
  bool fits = true;
  for (const Factor& factor : factors) {
    fits = fits && factor.value <= most / product;
    if (fits) product *= std::max<std::int64_t>(factor.value, 1);
  }
  if (fits) return;
  std::string names, values;
  for (const Factor& factor : factors) {
    names += text(names.empty() ? "" : " x ", factor.name);
    values += text(values.empty() ? "" : " x ", factor.value);
  }
  throw Error(text(name, ": ", names, " = ", values, " ", what, ", more than the limit of ",
                   format_count(most)));
}

}  // namespace ostrakon::config
