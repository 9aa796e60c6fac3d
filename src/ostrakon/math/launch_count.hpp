// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace ostrakon::math {

/// While one exists, work of the calling thread is counted and not run: kernels, matrix products,
/// clearing of arrays. Arrays are not accessed, so they may be null.
class LaunchCount {
 public:
  LaunchCount() : outer_(current) { current = this; }
  ~LaunchCount() { current = outer_; }
  LaunchCount(const LaunchCount&) = delete;
  LaunchCount& operator=(const LaunchCount&) = delete;

  std::int64_t launches() const { return static_cast<std::int64_t>(names_.size()); }
  /// The name of each launch, in order. They are literals.
  const std::vector<const char*>& names() const { return names_; }

  /// Whether the calling thread's kernels are counted.
  static bool is_counting() { return current != nullptr; }

  /// For code that runs kernels: whether this kernel has been counted and must not run.
  static bool takes_one(const char* name = "unnamed") {
    if (current == nullptr) return false;
    current->names_.push_back(name);
    return true;
  }

 private:
  static inline thread_local LaunchCount* current = nullptr;

  LaunchCount* outer_;
  std::vector<const char*> names_;
};

}  // namespace ostrakon::math
