// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes that kernels in their device form read and write, for tests, which define
// OSTRAKON_COUNT_BYTES. Elsewhere these functions are empty.

#include <cstddef>
#include <ostrakon/math/portability.hpp>
#if defined(OSTRAKON_COUNT_BYTES)
#include <atomic>
#endif

namespace ostrakon::math {

#if defined(OSTRAKON_COUNT_BYTES)
/// Counts what kernels read and write of the array [begin, begin + bytes) while it exists.
class ByteCount {
 public:
  ByteCount(const void* begin, std::size_t bytes)
      : begin_(reinterpret_cast<std::uintptr_t>(begin)), bytes_(bytes), next_(first) {
    first = this;
  }
  ~ByteCount() {
    ByteCount** before = &first;
    while (*before != this) before = &(*before)->next_;
    *before = next_;
  }
  ByteCount(const ByteCount&) = delete;
  ByteCount& operator=(const ByteCount&) = delete;

  std::int64_t read() const { return read_; }
  std::int64_t written() const { return written_; }

  static void add(const void* x, std::size_t bytes, bool is_written) {
    const auto address = reinterpret_cast<std::uintptr_t>(x);
    for (ByteCount* count = first; count != nullptr; count = count->next_)
      if (address >= count->begin_ && address < count->begin_ + count->bytes_)
        (is_written ? count->written_ : count->read_) += static_cast<std::int64_t>(bytes);
  }

 private:
  static inline ByteCount* first = nullptr;

  std::uintptr_t begin_;
  std::size_t bytes_;
  ByteCount* next_;
  std::atomic<std::int64_t> read_ = 0, written_ = 0;
};
inline void count_read(const void* x, std::size_t bytes) { ByteCount::add(x, bytes, false); }
inline void count_written(const void* x, std::size_t bytes) { ByteCount::add(x, bytes, true); }
#else
KOKKOS_INLINE_FUNCTION void count_read(const void*, std::size_t) {}
KOKKOS_INLINE_FUNCTION void count_written(const void*, std::size_t) {}
#endif

}  // namespace ostrakon::math
