// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/huge_pages.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/text.hpp>
#include <sstream>

namespace ostrakon {
namespace {

const char* const settings = "/sys/kernel/mm/transparent_hugepage/";

std::string line_of(const std::string& file) {
  std::ifstream stream(settings + file);
  std::string line;
  std::getline(stream, line);
  return line;
}

/// Size of a huge page in bytes; 0 if this system has none.
std::int64_t huge_page_bytes() {
  std::int64_t bytes = 0;
  std::istringstream(line_of("hpage_pmd_size")) >> bytes;
  return bytes;
}

}  // namespace

void advise_huge_pages([[maybe_unused]] void* data, [[maybe_unused]] std::int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  static const std::int64_t page = huge_page_bytes();
  if (page <= 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto size = static_cast<std::uintptr_t>(page);
  const std::uintptr_t first = (address + size - 1) / size * size;
  const std::uintptr_t end = (address + static_cast<std::uintptr_t>(bytes)) / size * size;
  // The result is ignored, as this is only advice: on failure the pages stay small.
  if (first < end)
    ::madvise(static_cast<char*>(data) + (first - address), end - first, MADV_HUGEPAGE);
#endif
}

bool forbids_huge_pages() {
  const std::string line = line_of("enabled");  // "always [madvise] never"
  return line.empty() || line.find("[never]") != std::string::npos;
}

std::string describe_pages() {
  const std::string small = format_bytes(::sysconf(_SC_PAGESIZE));
  const std::int64_t page = huge_page_bytes();
  if (page <= 0) return small + ": this system has no transparent huge pages";
  if (forbids_huge_pages()) return text(small, ": ", settings, "enabled is never");
  return format_bytes(page) + " where the system finds them";
}

}  // namespace ostrakon
