// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/hipblaslt_names.hpp>

#include <algorithm>
#include <cstdlib>

namespace ostrakon::math {
namespace {

/// The number after `key` in "_<key><number>" of a name, or `missing`.
int number_of(const std::string& name, const std::string& key, int missing) {
  const std::string begin = "_" + key;
  for (std::size_t at = name.find(begin); at != std::string::npos; at = name.find(begin, at + 1)) {
    const std::size_t digits = at + begin.size();
    const std::size_t end = std::min(name.find('_', digits), name.size());
    if (end > digits && name.find_first_not_of("0123456789", digits) >= end)
      return std::atoi(name.c_str() + digits);
  }
  return missing;
}

}  // namespace

bool adds_alike_in_all_rows(const std::string& solution) {
  const bool splits = number_of(solution, "GSU", 1) > 1 || number_of(solution, "SK", 0) > 0;
  const bool staggers = number_of(solution, "SU", 0) > 0;
  const int mapping = number_of(solution, "SUM", 0);
  return !splits && (!staggers || mapping == 0);
}

}  // namespace ostrakon::math
