// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fake_device/runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace fake {

/// Device memory, mapped twice. The mapping that programs see is accessible only while a kernel
/// runs, or some time after it; the mapping for this file always is. If the processor has memory
/// protection keys, stream threads can always access the first mapping, other threads never.
class Memory {
 public:
  static Memory& one() {
    static Memory* const memory = new Memory;
    return *memory;
  }

  cudaError_t allocate(void** data, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t whole = rounded(bytes);
    if (used_ + whole > total_) return cudaErrorMemoryAllocation;
    const int file = memfd_create("fake device", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(whole)) != 0)
      return cudaErrorMemoryAllocation;
    constexpr int all = PROT_READ | PROT_WRITE;
    void* const outside = mmap(nullptr, whole, has_key() ? all : PROT_NONE, MAP_SHARED, file, 0);
    void* const inside = mmap(nullptr, whole, all, MAP_SHARED, file, 0);
    close(file);
    if (outside == MAP_FAILED || inside == MAP_FAILED) return cudaErrorMemoryAllocation;
    if (has_key()) pkey_mprotect(outside, whole, all, key_);
    if (!has_key() && is_open_) mprotect(outside, whole, all);
    // Unwritten memory is detectable: its bytes are a NaN in every format.
    std::memset(inside, 0xff, whole);
    pieces_[reinterpret_cast<std::uintptr_t>(outside)] = {whole, static_cast<char*>(inside)};
    used_ += whole;
    *data = outside;
    return cudaSuccess;
  }

  cudaError_t free(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == pieces_.end()) return data == nullptr ? cudaSuccess : cudaErrorInvalidValue;
    munmap(data, found->second.bytes);
    munmap(found->second.inside, found->second.bytes);
    used_ -= found->second.bytes;
    pieces_.erase(found);
    return cudaSuccess;
  }

  void take(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    used_ += bytes;
  }

  /// Returns null for other addresses than device memory.
  char* inside(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    auto next = pieces_.upper_bound(at);
    if (next == pieces_.begin()) return nullptr;
    --next;
    return at - next->first < next->second.bytes ? next->second.inside + (at - next->first)
                                                 : nullptr;
  }

  /// Makes memory accessible when a kernel begins; close_again() ends that.
  void open() {
    if (has_key()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++kernels_;
    if (!is_open_) protect(true);
  }
  void close_again() {
    if (has_key()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    // Protecting takes longer than most kernels here, so it is done always at first, then rarely.
    constexpr long first = 500, then_every = 50;
    if (--kernels_ == 0 && (++ended_ <= first || ended_ % then_every == 0)) protect(false);
  }
  /// Marks the calling thread as a stream's.
  void allow_thread() const {
    if (has_key()) pkey_set(key_, 0);
  }

  std::size_t used() const { return used_; }
  std::size_t total() const { return total_; }

 private:
  struct Piece {
    std::size_t bytes;
    char* inside;
  };

  Memory() {
    const char* const wanted = std::getenv("FAKE_DEVICE_BYTES");
    total_ = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::size_t{4} << 30;
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  }
  bool has_key() const { return key_ >= 0; }
  static std::size_t rounded(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return std::max<std::size_t>(1, (bytes + page - 1) / page) * page;
  }
  void protect(bool is_open) {
    const int access = is_open ? PROT_READ | PROT_WRITE : PROT_NONE;
    for (const auto& [address, piece] : pieces_)
      mprotect(reinterpret_cast<void*>(address), piece.bytes, access);  // NOLINT
    is_open_ = is_open;
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Piece> pieces_;
  std::size_t used_ = 0, total_ = 0;
  int kernels_ = 0;  // number of running kernels
  long ended_ = 0;
  bool is_open_ = false;
  int key_ = -1;
};

}  // namespace fake
