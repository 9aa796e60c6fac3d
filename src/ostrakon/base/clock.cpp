// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/clock.hpp>

#include <chrono>

namespace ostrakon {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ostrakon
