// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace ostrakon::tests {

/// Whether OSTRAKON_TEST_EVERY is set: then all cases run. Otherwise long sweeps are sampled.
inline bool takes_every_case() { return std::getenv("OSTRAKON_TEST_EVERY") != nullptr; }

/// Returns the number of random trials for a test: a quarter of `count` where cases may be left
/// out, a tenth under the address sanitizer, which is about ten times slower.
inline int trials(int count) {
#if defined(__SANITIZE_ADDRESS__)
  return (count + 9) / 10;
#else
  return takes_every_case() ? count : (count + 3) / 4;
#endif
}

/// Returns the step between the cases of a long sweep.
inline int every_nth(int sampled) { return takes_every_case() ? 1 : sampled; }

}  // namespace ostrakon::tests
