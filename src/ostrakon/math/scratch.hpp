// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>

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

/// Hands out a workspace of T piece by piece, each counted as above.
template <class T>
class Scratch {
 public:
  explicit Scratch(T* workspace) : next_(workspace) {}

  template <class U>
  U* take(std::int64_t count) {
    const auto address = reinterpret_cast<std::uintptr_t>(next_);
    const std::uintptr_t past = address % alignof(U);
    if (past != 0) next_ += (alignof(U) - past) / sizeof(T);
    U* const piece = reinterpret_cast<U*>(next_);
    next_ += count * size_ratio<T, U>();
    return piece;
  }

 private:
  T* next_;
};

/// Where a kernel stores in T what it computed at `wide`: at `narrow`, or in place where the types
/// are one.
template <class T>
KOKKOS_INLINE_FUNCTION T* stored_at(T* wide, T*) {
  return wide;
}
template <class C, class T>
KOKKOS_INLINE_FUNCTION T* stored_at(C*, T* narrow) {
  return narrow;
}

}  // namespace ostrakon::math
