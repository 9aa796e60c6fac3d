// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::math {

/// While one exists, what the calling thread would run is counted and not run: kernels, products of
/// matrices, arrays that are cleared. Arrays are not looked at, so they need not be there.
class LaunchCount {
 public:
  LaunchCount() : outer_(current) { current = this; }
  ~LaunchCount() { current = outer_; }
  LaunchCount(const LaunchCount&) = delete;
  LaunchCount& operator=(const LaunchCount&) = delete;

  std::int64_t launches() const { return launches_; }

  /// For what runs kernels: whether this one has been counted and is not to run.
  static bool takes_one() {
    if (current == nullptr) return false;
    ++current->launches_;
    return true;
  }

 private:
  static inline thread_local LaunchCount* current = nullptr;

  LaunchCount* outer_;
  std::int64_t launches_ = 0;
};

}  // namespace ostrakon::math
