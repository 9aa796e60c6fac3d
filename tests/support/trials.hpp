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

/// Whether no case may be left out: OSTRAKON_TEST_EVERY is set. Elsewhere long sweeps are sampled.
inline bool takes_every_case() { return std::getenv("OSTRAKON_TEST_EVERY") != nullptr; }

/// How far apart the cases of a long sweep are.
inline int every_nth(int sampled) { return takes_every_case() ? 1 : sampled; }

}  // namespace ostrakon::tests
