// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <ostrakon/base/huge_pages.hpp>
#include <string>

namespace ostrakon {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

/// The huge pages of a mapping, from /proc/self/smaps: whether they were requested, and how many
/// KiB there are.
struct Pages {
  bool are_asked = false;
  std::int64_t huge_kib = 0;
};
Pages pages_of(const void* address) {
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(address));
  std::ifstream maps("/proc/self/smaps");
  Pages found;
  bool is_it = false;
  for (std::string line; std::getline(maps, line);) {
    const bool is_header = line.find('-') != std::string::npos && line.find(':') > 16;
    if (is_header) is_it = line.rfind(begin, 0) == 0;
    if (is_it && line.rfind("AnonHugePages:", 0) == 0) found.huge_kib = std::stol(line.substr(14));
    if (is_it && line.rfind("VmFlags:", 0) == 0) found.are_asked = line.find(" hg") < line.size();
  }
  return found;
}

TEST(HugePages, AreAskedForWhereWholeOnesFit) {
  const std::int64_t bytes = 16 * mebibyte;
  void* const all = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(all, MAP_FAILED);
  // The range is inside the mapping, so the mapping is split into three.
  auto* const data = static_cast<char*>(all) + 100;
  advise_huge_pages(data, bytes - 200);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto page = static_cast<std::uintptr_t>(2 * mebibyte);
  const void* const first = data + ((address + page - 1) / page * page - address);
  if (describe_pages().rfind("2", 0) != 0) GTEST_SKIP() << describe_pages();
  EXPECT_TRUE(pages_of(first).are_asked);
  if (first != all) {
    EXPECT_FALSE(pages_of(all).are_asked);
  }
  std::memset(data, 1, static_cast<std::size_t>(bytes - 200));
  RecordProperty("huge_kib", static_cast<int>(pages_of(first).huge_kib));
  ::munmap(all, static_cast<std::size_t>(bytes));
}

TEST(HugePages, AreNotAskedForWhereNoneFits) {
  char few[100];
  advise_huge_pages(few, sizeof few);
  advise_huge_pages(nullptr, 0);
}

}  // namespace
}  // namespace ostrakon
