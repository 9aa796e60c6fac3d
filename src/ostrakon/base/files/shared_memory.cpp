// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/shared_memory.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <string>
#include <utility>

namespace ostrakon {
namespace {

/// Size of huge pages on the common processors; elsewhere only an alignment.
constexpr std::int64_t huge_page = std::int64_t{2} << 20;

[[noreturn]] void refuse(const std::string& what) {
  const int reason = errno;
  throw Error(text(what, ": ", std::strerror(reason)));
}

/// Allocates the pages of [data, data + bytes); `data` is page-aligned. Returns false if the system
/// has no such call. Throws Error if there is no memory: a later write would end the process by
/// SIGBUS.
bool populate(std::byte* data, std::int64_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  constexpr int advice = MADV_POPULATE_WRITE;
#else
  constexpr int advice = 23;  // Linux 5.14; older headers lack its name
#endif
  if (::madvise(data, static_cast<std::size_t>(bytes), advice) == 0) return true;
  if (errno != EINVAL && errno != EINTR && errno != EAGAIN)
    refuse(text(format_bytes(bytes), " of memory that ranks share is not there"));
  return false;
}

}  // namespace

SharedMemory::SharedMemory(std::int64_t bytes) {
  if (bytes == 0) return;
  bytes_ = bytes;
  descriptor_ = ::memfd_create("ostrakon", MFD_CLOEXEC);
  if (descriptor_ < 0) refuse("memory that ranks share can't be made");
  try {
    if (::ftruncate(descriptor_, bytes) != 0)
      refuse(text(format_bytes(bytes), " of memory that ranks share can't be made"));
    map(descriptor_, Access::read_write);
  } catch (...) {
    close();
    throw;
  }
}

SharedMemory::SharedMemory(int process, int descriptor, std::int64_t bytes, Access access) {
  if (bytes == 0) return;
  bytes_ = bytes;
  const std::string path = text("/proc/", process, "/fd/", descriptor);
  const int opened = ::open(path.c_str(), (access == Access::read ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  if (opened < 0) refuse(path);
  try {
    struct stat found {};
    if (::fstat(opened, &found) != 0) refuse(path);
    require(found.st_size >= bytes, path, ": has ", found.st_size, " bytes; expected ", bytes);
    map(opened, access);
  } catch (...) {
    ::close(opened);
    throw;
  }
  ::close(opened);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(bytes_));
  close();
}

/// Maps the file at a huge-page boundary, as only such mappings can have huge pages.
void SharedMemory::map(int descriptor, Access access) {
  const auto size = static_cast<std::size_t>(bytes_);
  const std::size_t room = size + static_cast<std::size_t>(huge_page);
  void* const reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) refuse(text(format_bytes(bytes_), " of addresses for shared memory"));
  auto* const begin = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  constexpr auto page = static_cast<std::uintptr_t>(huge_page);
  std::byte* const aligned = begin + ((address + page - 1) / page * page - address);
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* const mapped = ::mmap(aligned, size, protection, MAP_SHARED | MAP_FIXED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    const int reason = errno;
    ::munmap(reserved, room);
    errno = reason;
    refuse(text(format_bytes(bytes_), " of shared memory can't be mapped"));
  }
  if (aligned > begin) ::munmap(begin, static_cast<std::size_t>(aligned - begin));
  const auto small = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const end = aligned + (size + small - 1) / small * small;
  if (end < begin + room) ::munmap(end, static_cast<std::size_t>(begin + room - end));
  data_ = static_cast<std::byte*>(mapped);
}

bool SharedMemory::has(const void* data, std::int64_t bytes) const {
  const auto first = reinterpret_cast<std::uintptr_t>(data);
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  return data_ != nullptr && begin <= first &&
         first + static_cast<std::uintptr_t>(bytes) <= begin + static_cast<std::uintptr_t>(bytes_);
}

void SharedMemory::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool SharedMemory::take_huge_pages() {
#if defined(MADV_HUGEPAGE)
  if (data_ == nullptr || forbids_huge_pages()) return false;
  ::madvise(data_, static_cast<std::size_t>(bytes_), MADV_HUGEPAGE);
#if defined(MADV_COLLAPSE)
  constexpr int collapse = MADV_COLLAPSE;
#else
  constexpr int collapse = 25;  // Linux 6.1; older headers lack its name
#endif
  constexpr int most_failures = 8;  // a limit, as each failed call searches for free memory
  // Many huge pages are collapsed per call, as each call synchronises all processors.
  constexpr std::int64_t at_once = 64 * huge_page;
  const std::int64_t whole = bytes_ / huge_page * huge_page;
  int failures = 0;
  for (std::int64_t first = 0; first < whole && failures < most_failures; first += at_once) {
    const std::int64_t bytes = std::min(at_once, whole - first);
    // Each huge page is touched first, as the call skips those without any page.
    for (std::int64_t page = 0; page < bytes; page += huge_page)
      if (!populate(data_ + first + page, 1))
        *reinterpret_cast<volatile std::byte*>(data_ + first + page) = std::byte{0};
    failures += ::madvise(data_ + first, static_cast<std::size_t>(bytes), collapse) == 0 ? 0 : 1;
  }
  return failures == 0;
#else
  return false;
#endif
}

void SharedMemory::take() {
  if (data_ != nullptr) populate(data_, bytes_);
}

std::string describe_shared_pages() {
  if (SharedMemory(huge_page).take_huge_pages())
    return format_bytes(huge_page) + " where the system finds them";
  return format_bytes(::sysconf(_SC_PAGESIZE)) +
         ": this system gives memory that ranks share no huge pages";
}

}  // namespace ostrakon
