// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace ostrakon::tests {

/// How many of `count` random trials a test makes: a tenth under the address sanitizer, which takes
/// about ten times as long for each.
constexpr int trials(int count) {
#if defined(__SANITIZE_ADDRESS__)
  return (count + 9) / 10;
#else
  return count;
#endif
}

/// How far apart the cases of a long sweep are: `sampled`, or 1 where OSTRAKON_TEST_EVERY is set,
/// so that none is missing.
inline int every_nth(int sampled) {
  return std::getenv("OSTRAKON_TEST_EVERY") == nullptr ? sampled : 1;
}

}  // namespace ostrakon::tests
