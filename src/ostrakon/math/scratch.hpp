// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Returns the number of T with the size of a U.
template <class T, class U>
constexpr std::int64_t size_ratio() {
  return static_cast<std::int64_t>(sizeof(U) / sizeof(T));  // NOLINT(bugprone-sizeof-expression)
}

/// Elements of T of a workspace that can hold `count` of U, for any alignment. U is T or
/// compute_t<T>.
template <class T, class U>
constexpr std::int64_t scratch_elements(std::int64_t count) {
  constexpr std::int64_t ratio = size_ratio<T, U>();
  return count * ratio + (ratio - 1);
}

/// Divides a workspace of T into arrays, each of scratch_elements(). `kernel` is used in messages,
/// and must outlive the object.
template <class T>
class Scratch {
 public:
  Scratch(View<T*> workspace, const char* kernel) : workspace_(workspace), kernel_(kernel) {}

  /// Takes the next array. Throws Error if the workspace is too small, or null.
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

/// Returns where a kernel stores results of `wide` as T: in `narrow`, or in place if both types are
/// the same.
template <class T>
KOKKOS_INLINE_FUNCTION View<T*> stored_at(View<T*> wide, View<T*>) {
  return wide;
}
template <class C, class T>
KOKKOS_INLINE_FUNCTION View<T*> stored_at(View<C*>, View<T*> narrow) {
  return narrow;
}

}  // namespace ostrakon::math
