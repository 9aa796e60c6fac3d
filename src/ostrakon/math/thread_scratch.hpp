// SPDX-License-Identifier: Apache-2.0
#pragma once

// Workspace per thread for kernels of the host.

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <ostrakon/base/huge_pages.hpp>

namespace ostrakon::math {

/// Aligned memory: to a page of 2 MiB if it is that large, else to a cache line.
class AlignedScratch {
 public:
  explicit AlignedScratch(std::int64_t bytes) {
    memory_.reset(std::aligned_alloc(static_cast<std::size_t>(unit(bytes)),
                                     static_cast<std::size_t>(whole(bytes))));
    if (!memory_) throw std::bad_alloc();
    if (unit(bytes) == page) advise_huge_pages(memory_.get(), whole(bytes));
  }
  /// Returns the allocated size for `bytes` bytes.
  static constexpr std::int64_t whole(std::int64_t bytes) {
    return (bytes + unit(bytes) - 1) / unit(bytes) * unit(bytes);
  }
  void* data() const { return memory_.get(); }

 private:
  static constexpr std::int64_t page = std::int64_t{2} << 20, line = 64;
  static constexpr std::int64_t unit(std::int64_t bytes) { return bytes >= page ? page : line; }
  struct Freed {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Freed> memory_;
};

/// Returns Owner::bytes bytes of the calling thread, allocated at its first use, freed when it
/// ends.
template <class Owner>
void* thread_scratch() {
  thread_local const AlignedScratch room(Owner::bytes);
  return room.data();
}
template <class Owner>
constexpr std::int64_t thread_scratch_bytes_of() {
  return AlignedScratch::whole(Owner::bytes);
}

}  // namespace ostrakon::math
