// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <ostrakon/math/view.hpp>
#include <vector>

namespace ostrakon::model {

/// A buffer in device memory between two guards of known bytes, which show whether a kernel wrote
/// next to it. Unset bytes are 0xff: as floating-point numbers, NaN.
class GuardedBuffer {
 public:
  /// All of it unset.
  explicit GuardedBuffer(std::int64_t bytes = 0) : GuardedBuffer(bytes, guard_bytes) {}
  /// For an array that a call does not have: no bytes, and after it guards for `bytes` bytes, so
  /// that a kernel that writes the array is found and not ended by the system.
  static GuardedBuffer absent(std::int64_t bytes) { return {0, bytes + guard_bytes}; }

  std::int64_t size() const { return size_; }  ///< bytes
  /// All of it, aligned to 64 bytes; a view of no array if it has no bytes.
  template <class A>
  View<A*> view() const {
    if (size_ == 0) return {};
    return view_as<A>(device_view(bytes_).range(guard_bytes, guard_bytes + size_));
  }

  /// Of no elements, but not null: what lies there are guards.
  template <class A>
  View<A*> empty_view() const {
    return {view_as<A>(device_view(bytes_).range(guard_bytes, guard_bytes)).data(), 0};
  }

  void unset() const;
  /// `size()` bytes of host memory.
  void set(const void* host) const { set(0, host, size_); }
  /// `count` bytes of host memory, from byte `first` of the buffer on.
  void set(std::int64_t first, const void* host, std::int64_t count) const;
  /// The whole elements of A in it, in host memory.
  template <class A = unsigned char>
  std::vector<A> get() const {
    std::vector<A> values(static_cast<std::size_t>(size_) / sizeof(A));
    copy_to(values.data(), static_cast<std::int64_t>(values.size() * sizeof(A)));
    return values;
  }
  /// Whether nothing was written next to it.
  bool has_whole_guards() const { return first_written_guard() == none; }
  /// Byte of the first one of the guards that was written, counted from where the buffer ends:
  /// negative before the buffer; `none`: all are whole.
  std::int64_t first_written_guard() const;
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();

  static constexpr unsigned char unset_byte = 0xff;

 private:
  GuardedBuffer(std::int64_t bytes, std::int64_t after);

  static constexpr std::int64_t guard_bytes = 256;
  static constexpr unsigned char guard_byte = 0xa5;

  void copy_to(void* host, std::int64_t count) const;
  /// Of the buffer with its guards, to copy from or to.
  auto range(std::int64_t first, std::int64_t count) const {
    return device_view(bytes_).range(first, first + count).kokkos();
  }

  std::int64_t size_;
  std::int64_t after_;  ///< bytes of the guard after it
  Kokkos::View<unsigned char*, Memory> bytes_;
};

/// Whether `count` bytes at `bytes` are still unset.
bool is_unset(const void* bytes, std::size_t count);

}  // namespace ostrakon::model
