// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ostrakon {

/// Memory that other processes of the host can map, too: an anonymous file. It has no name
/// anywhere, so that nothing is left of it however its processes end, and no limit but that of the
/// host's memory. Zero at first; a page is taken when it is first written to, or all are by
/// take_huge_pages() and take().
class SharedMemory {
 public:
  /// None.
  SharedMemory() = default;
  /// Throws Error with the system's reason.
  explicit SharedMemory(std::int64_t bytes);
  enum class Access { read, read_write };
  /// Maps the memory of another process, which has it open as `descriptor`. Throws Error where the
  /// system does not allow that, or it is smaller. To write where it may only be read ends the
  /// process.
  SharedMemory(int process, int descriptor, std::int64_t bytes, Access access);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  /// Null where there are no bytes. Begins a huge page.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// -1 once closed.
  int descriptor() const { return descriptor_; }
  bool has(const void* data, std::int64_t bytes) const;

  /// From now on nobody else can map it; those who have keep it.
  void close();

  /// Before anything is written: takes all of the memory now, in huge pages where the system has
  /// some left, and returns whether it has them: what shared memory has else depends on a setting
  /// of the system's own, which mostly is off. Throws Error as take().
  bool take_huge_pages();

  /// Takes all of the memory now: where there is less than the system promised, what writes to it
  /// else ends the process without a word. Throws Error with the system's reason. Does nothing on
  /// systems that have no such call.
  void take();

 private:
  void map(int descriptor, Access access);

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  int descriptor_ = -1;
};

/// Says, as describe_pages() does of private memory, what shared memory has after
/// take_huge_pages(). Tries it.
std::string describe_shared_pages();

}  // namespace ostrakon
