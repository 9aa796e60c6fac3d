// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/policy.hpp>

namespace ostrakon::plan {

// If the text after the last * does not match, that * takes one character more. This is linear in
// practice, and never worse than the product of both lengths.
bool matches(const std::string& pattern, const std::string& name) {
  std::size_t p = 0, n = 0;
  std::size_t star = std::string::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ostrakon::plan
