// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <ostrakon/base/files/shared_memory.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

namespace ostrakon {
namespace {

using testing::error_of;
using Access = SharedMemory::Access;

constexpr std::int64_t bytes = (std::int64_t{5} << 20) + 123;

TEST(SharedMemory, IsSeenByWhoMapsIt) {
  const SharedMemory memory(bytes);
  const SharedMemory other(::getpid(), memory.descriptor(), bytes, Access::read_write);
  EXPECT_NE(memory.data(), other.data());
  EXPECT_EQ(other.descriptor(), -1);
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4096}, bytes - 1}) {
    EXPECT_EQ(memory.data()[at], std::byte{0});
    memory.data()[at] = std::byte{42};
    EXPECT_EQ(other.data()[at], std::byte{42});
    other.data()[at] = std::byte{43};
    EXPECT_EQ(memory.data()[at], std::byte{43});
  }
}

TEST(SharedMemory, IsSeenByAnotherProcess) {
  const SharedMemory memory(bytes);
  const int parent = ::getpid(), descriptor = memory.descriptor();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const SharedMemory mine(parent, descriptor, bytes, Access::read_write);
      mine.data()[bytes - 1] = std::byte{7};
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(memory.data()[bytes - 1], std::byte{7});
}

TEST(SharedMemory, CantBeWrittenWhereItMayOnlyBeRead) {
  const SharedMemory memory(bytes);
  const int parent = ::getpid(), descriptor = memory.descriptor();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      const SharedMemory mine(parent, descriptor, bytes, Access::read);
      if (mine.data()[1] != std::byte{0}) ::_exit(1);
      ::signal(SIGSEGV, [](int) { ::_exit(7); });
      mine.data()[1] = std::byte{1};
    } catch (...) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(memory.data()[1], std::byte{0});
}

TEST(SharedMemory, IsTakenBeforeItIsWritten) {
  SharedMemory memory(bytes);
  const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> there(static_cast<std::size_t>((bytes + page - 1) / page), 2);
  const auto count = [&] {
    EXPECT_EQ(::mincore(memory.data(), bytes, there.data()), 0);
    return std::count_if(there.begin(), there.end(), [](unsigned char p) { return (p & 1) != 0; });
  };
  EXPECT_LT(count(), static_cast<std::ptrdiff_t>(there.size()));
  memory.take();
  if (count() == 0) GTEST_SKIP() << "this system has no call for that";
  EXPECT_EQ(count(), static_cast<std::ptrdiff_t>(there.size()));
  EXPECT_EQ(memory.data()[bytes - 1], std::byte{0});
}

TEST(SharedMemory, HasWhatLiesInIt) {
  const SharedMemory memory(bytes), none;
  EXPECT_TRUE(memory.has(memory.data(), bytes));
  EXPECT_TRUE(memory.has(memory.data() + bytes - 1, 1));
  EXPECT_FALSE(memory.has(memory.data() + bytes - 1, 2));
  EXPECT_FALSE(memory.has(memory.data() - 1, 1));
  EXPECT_FALSE(none.has(nullptr, 0));
  EXPECT_EQ(SharedMemory(0).data(), nullptr);
}

TEST(SharedMemory, CantBeMappedOnceClosed) {
  SharedMemory memory(bytes);
  const int descriptor = memory.descriptor();
  const SharedMemory before(::getpid(), descriptor, bytes, Access::read);
  memory.close();
  const std::string path =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor);
  EXPECT_EQ(error_of([&] { const SharedMemory late(::getpid(), descriptor, bytes, Access::read); }),
            path + ": No such file or directory");
  memory.data()[1] = std::byte{1};
  EXPECT_EQ(before.data()[1], std::byte{1});
  SharedMemory moved = std::move(memory);
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(moved.data()[1], std::byte{1});
}

TEST(SharedMemory, RefusesWhatCantBe) {
  const SharedMemory memory(100);
  const std::string path =
      "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory.descriptor());
  EXPECT_EQ(error_of([&] {
              const SharedMemory larger(::getpid(), memory.descriptor(), 101, Access::read);
            }),
            path + ": has 100 bytes; expected 101");
  EXPECT_NE(error_of([&] { const SharedMemory huge(std::int64_t{1} << 62); }), "no error");
}

TEST(SharedMemory, KeepsWhatIsInItInHugePages) {
  SharedMemory memory(bytes);
  memory.take_huge_pages();
  for (std::int64_t at = 0; at < bytes; at += 4096) memory.data()[at] = std::byte{1};
  const SharedMemory other(::getpid(), memory.descriptor(), bytes, Access::read);
  for (std::int64_t at = 0; at < bytes; at += 4096) EXPECT_EQ(other.data()[at], std::byte{1});
}

}  // namespace
}  // namespace ostrakon
