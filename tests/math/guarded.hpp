// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>

namespace ostrakon::test {

/// An array of `size` elements in front of inaccessible memory: who accesses one behind the last
/// crashes.
template <class T>
class Guarded {
 public:
  using size_type = std::int64_t;

  explicit Guarded(std::int64_t size) : size_(size) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    const std::int64_t bytes = size * static_cast<std::int64_t>(sizeof(T));
    const std::int64_t used = (bytes + page - 1) / page * page;
    mapped_ = static_cast<std::size_t>(used + page);
    void* const memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_ + used, static_cast<std::size_t>(page), PROT_NONE);
    first_ = reinterpret_cast<T*>(memory_ + used) - size;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(memory_, mapped_); }

  T* data() { return first_; }
  std::int64_t size() const { return size_; }
  T* begin() { return first_; }
  T* end() { return first_ + size_; }
  const T* begin() const { return first_; }
  const T* end() const { return first_ + size_; }

 private:
  std::int64_t size_;
  std::size_t mapped_ = 0;
  char* memory_ = nullptr;
  T* first_ = nullptr;
};

}  // namespace ostrakon::test
