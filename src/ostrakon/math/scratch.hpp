// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// How many T are as large as a U.
template <class T, class U>
constexpr std::int64_t size_ratio() {
  return static_cast<std::int64_t>(sizeof(U) / sizeof(T));  // NOLINT(bugprone-sizeof-expression)
}

/// Elements of T in a workspace that can hold `count` of U, wherever it begins. U is T or what T is
/// computed in.
template <class T, class U>
constexpr std::int64_t scratch_elements(std::int64_t count) {
  constexpr std::int64_t ratio = size_ratio<T, U>();
  return count * ratio + (ratio - 1);
}

/// Hands out a workspace of T piece by piece, each counted as above. `kernel` is for messages, and
/// must outlive it.
template <class T>
class Scratch {
 public:
  Scratch(View<T*> workspace, const char* kernel) : workspace_(workspace), kernel_(kernel) {}

  /// Throws Error where the workspace is too small, or does not exist.
  template <class U>
  View<U*> take(std::int64_t count) {
    if (count == 0) return {nullptr, 0, workspace_.origin()};
    const auto address = reinterpret_cast<std::uintptr_t>(workspace_.data() + used_);
    const std::uintptr_t past = address % alignof(U);
    if (past != 0) used_ += static_cast<std::int64_t>((alignof(U) - past) / sizeof(T));
    const std::int64_t begin = used_;
    used_ += count * size_ratio<T, U>();
    const std::int64_t available = workspace_ ? workspace_.size() : 0;
    require(used_ <= available, kernel_, ": workspace of ", available,
            " elements, expected at least ", used_);
    const View<T*> piece = workspace_.range(begin, used_);
    return {reinterpret_cast<U*>(piece.data()), count, piece.origin()};
  }

 private:
  View<T*> workspace_;
  const char* kernel_;
  std::int64_t used_ = 0;
};

/// Where a kernel stores in T what it computed at `wide`: at `narrow`, or in place where the types
/// are one.
template <class T>
KOKKOS_INLINE_FUNCTION View<T*> stored_at(View<T*> wide, View<T*>) {
  return wide;
}
template <class C, class T>
KOKKOS_INLINE_FUNCTION View<T*> stored_at(View<C*>, View<T*> narrow) {
  return narrow;
}

}  // namespace ostrakon::math
