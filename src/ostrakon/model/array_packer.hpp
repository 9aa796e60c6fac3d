// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/unit.hpp>

namespace ostrakon::model {

/// The largest sizes of a chain, in elements or bytes: far above any machine's memory, and far
/// enough below 2^63 for what is computed from them.
constexpr std::int64_t largest_chain = std::int64_t{1} << 50;

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Lays arrays end to end in one buffer, each at a multiple of `alignment`. Sizes and offsets are
/// all in elements, or all in bytes.
class ArrayPacker {
 public:
  explicit ArrayPacker(std::int64_t alignment) : alignment_(alignment) {}

  /// The offset of the next array, of this size.
  std::int64_t place(std::int64_t size) {
    const std::int64_t offset = round_up(size_, alignment_);
    size_ = offset + size;
    return offset;
  }

  /// The size of a buffer that holds everything placed.
  std::int64_t size() const { return size_; }

 private:
  std::int64_t alignment_;
  std::int64_t size_ = 0;
};

/// Arrays in a buffer of T begin at multiples of so many bytes.
template <class T>
constexpr std::int64_t buffer_alignment =
    static_cast<std::int64_t>(sizeof(T)) * parameter_alignment;

template <class T>
constexpr std::int64_t bytes_of(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(T));
}

/// The array of `count` A that begins `offset` bytes into `buffer`; of a buffer that does not exist
/// an array that does not either.
template <class A, class T>
View<A*> array_in(View<T*> buffer, std::int64_t offset, std::int64_t count) {
  return view_as<A>(view_as<std::byte>(buffer).range(offset, offset + bytes_of<A>(count)));
}

}  // namespace ostrakon::model
