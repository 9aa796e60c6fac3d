// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace ostrakon::tests
