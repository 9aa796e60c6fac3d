// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ostrakon {

/// Anonymous shared memory that other processes of the host can map. It has no name, so it is freed
/// however its processes end, and is limited only by the host's memory. It is zero at first. A page
/// is allocated at its first write; take_huge_pages() and take() allocate all at once.
class SharedMemory {
 public:
  /// Creates an empty object without memory.
  SharedMemory() = default;
  /// Allocates `bytes` of memory. Throws Error with the system's reason.
  explicit SharedMemory(std::int64_t bytes);
  enum class Access { read, read_write };
  /// Maps memory of another process, in which it is open as `descriptor`. Throws Error if the
  /// system does not allow that, or the memory is smaller. A write with Access::read ends the
  /// process.
  SharedMemory(int process, int descriptor, std::int64_t bytes, Access access);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// The memory, aligned to a huge page; null if there are no bytes.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// File descriptor of the memory; -1 after close().
  int descriptor() const { return descriptor_; }
  bool has(const void* data, std::int64_t bytes) const;

  /// Closes the descriptor: no further process can map the memory; existing mappings stay.
  void close();

  /// Allocates all memory now, in huge pages if the system has some free; returns whether it has.
  /// To be called before the first write. Without this call, huge pages of shared memory depend on
  /// a system setting that is mostly off. Throws Error as take() does.
  bool take_huge_pages();

  /// Allocates all memory now: if the system has less than it promised, a later write would end the
  /// process by SIGBUS. Throws Error with the system's reason. Does nothing on systems without such
  /// a call.
  void take();

 private:
  void map(int descriptor, Access access);

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  int descriptor_ = -1;
};

/// Describes the pages of shared memory after take_huge_pages(), as describe_pages() does for
/// private memory. Allocates a page to find out.
std::string describe_shared_pages();

}  // namespace ostrakon
