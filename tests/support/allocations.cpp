// SPDX-License-Identifier: Apache-2.0
// This operator new is in a separate source: compilers that see it inline report a mismatch of new
// and free.

#include "support/allocations.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> count{0};

/// Calls on this thread that succeed before all later ones fail; negative: no limit.
thread_local int calls_left = -1;
}  // namespace

namespace ostrakon::test {

std::int64_t allocations() { return count; }

LimitedAllocations::LimitedAllocations(int left) { calls_left = left; }
LimitedAllocations::~LimitedAllocations() { calls_left = -1; }

}  // namespace ostrakon::test

// CUDA compiles operator new for the device too, whatever its attributes, and device code can't
// throw.
#ifndef __CUDA_ARCH__
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void* operator new(std::size_t bytes) {
  void* const memory = calls_left == 0 ? nullptr : operator new(bytes, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  if (calls_left > 0) --calls_left;
  return memory;
}
// The address sanitizer's array forms would not call those above.
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
#endif
