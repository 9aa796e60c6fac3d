// SPDX-License-Identifier: Apache-2.0

// Collectives of ranks that read each other's memory: they have the bits of MPI's, and no rank
// reads too early or too late.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/comm/window.hpp>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "communicator_fixture.hpp"
#include "support/no_files.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;

const std::vector<std::int64_t> window_sizes = {0, 1, 37, 64, 511, 4099, 20000};

/// A group of all ranks with a window, one without, and shared memory.
class WindowTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t largest = 20000 * 8;

  void SetUp() override {
    if (has_device) GTEST_SKIP() << "windows are of host memory";
    memory_ = std::make_shared<NodeMemory>(world, std::vector<SharedMemory*>{&first_, &second_}, 3);
    world.set_window(std::make_unique<Window>(memory_, world, 0));
  }

  /// Returns an array at an offset that differs between ranks, and in different memory on some
  /// ranks.
  template <class T>
  HostView<T*> shared(std::int64_t count) {
    SharedMemory& memory = world.rank() % 3 == 1 ? second_ : first_;
    std::byte* const begin = memory.data() + std::ptrdiff_t{64} * world.rank();
    return {reinterpret_cast<T*>(begin), count};
  }
  template <class T>
  HostView<T*> shared(const std::vector<float>& values) {
    const HostView<T*> array = shared<T>(static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i)
      array[static_cast<std::int64_t>(i)] = static_cast<T>(values[i]);
    return array;
  }

  SharedMemory first_{largest * static_cast<std::int64_t>(sizeof(float)) + 4096};
  SharedMemory second_{largest * static_cast<std::int64_t>(sizeof(float)) + 4096};
  Communicator by_mpi = Communicator::duplicate(MPI_COMM_WORLD);
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  std::shared_ptr<NodeMemory> memory_;
};

std::vector<float> values_of(HostView<const float*> array) {
  return std::vector<float>(array.data(), array.data() + array.size());
}

TEST_F(WindowTest, AllGather) {
  for (const std::int64_t count : window_sizes) {
    const auto whole = random_values(7, count * world.size());
    const auto own = part(whole, world.rank() * count, count);
    std::vector<float> full(whole.size());
    world.all_gather<float, OnHost>(Exec(), HostView<const float*>(shared<float>(own)),
                                    host_view(full));
    EXPECT_TRUE(same_bits(full, whole)) << count;

    std::vector<float> begun(whole.size(), -1.0F);
    std::copy(own.begin(), own.end(), begun.begin() + world.rank() * count);
    const HostView<float*> in_place = shared<float>(begun);
    world.all_gather<float, OnHost>(
        Exec(),
        HostView<const float*>(in_place.range(world.rank() * count, (world.rank() + 1) * count)),
        in_place);
    EXPECT_TRUE(same_bits(values_of(in_place), whole)) << count;
    for (int i = 0; i < 2; ++i)
      by_mpi.all_gather<float, OnHost>(Exec(), host_view(own), host_view(full));
    EXPECT_EQ(world.bytes_sent(), by_mpi.bytes_sent());
  }
}

TEST_F(WindowTest, AllToAll) {
  for (const std::int64_t count : window_sizes) {
    const auto arrays = random_arrays(world.size(), count * world.size());
    const auto& own = arrays[static_cast<std::size_t>(world.rank())];
    std::vector<float> received(own.size()), expected(own.size());
    world.all_to_all<float, OnHost>(Exec(), HostView<const float*>(shared<float>(own)),
                                    host_view(received));
    by_mpi.all_to_all<float, OnHost>(Exec(), host_view(own), host_view(expected));
    EXPECT_TRUE(same_bits(received, expected)) << count;
    EXPECT_EQ(world.bytes_sent(), by_mpi.bytes_sent());
  }
}

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> narrow;
  for (const float value : values) narrow.push_back(static_cast<T>(value));
  return narrow;
}

// The collectives by messages are compared with the tree in collectives_test.cpp.
TEST_F(WindowTest, ReduceScatterHasTheBitsOfMessages) {
  const auto expect_same = [&](auto one) {
    using T = decltype(one);
    constexpr int rounds = 2;
    for (const std::int64_t count : window_sizes)
      for (const int tree : {0, 1, 3, 4}) {
        const auto arrays = random_arrays(rounds * world.size(), count * world.size());
        std::vector<float> sum(static_cast<std::size_t>(count)), expected = sum;
        for (int round = 0; round < rounds; ++round) {
          const auto& own = arrays[static_cast<std::size_t>(round * world.size() + world.rank())];
          const std::vector<T> sent = rounded<T>(own);
          std::vector<T> staging(sent.size());
          const HostView<T*> full = shared<T>(own);
          const ReductionOrder local = {tree, round > 0};
          world.reduce_scatter<T, OnHost>(Exec(), HostView<const T*>(full), HostView<T*>(),
                                          host_view(sum), local);
          by_mpi.reduce_scatter<T, OnHost>(Exec(), host_view(sent), host_view(staging),
                                           host_view(expected), local);
          EXPECT_TRUE(same_bits(sum, expected)) << count << ", trees over " << tree;
          EXPECT_TRUE(sent.empty() ||
                      std::memcmp(full.data(), sent.data(), sent.size() * sizeof(T)) == 0);
        }
      }
    EXPECT_EQ(world.bytes_sent(), by_mpi.bytes_sent());
  };
  expect_same(float());
  expect_same(bf16());
  expect_same(fp16());
}

TEST_F(WindowTest, ReduceScatterInPlace) {
  for (const std::int64_t count : window_sizes)
    for (const int tree : {0, 1, 2}) {
      const auto arrays = random_arrays(world.size(), count * world.size());
      const auto& own = arrays[static_cast<std::size_t>(world.rank())];
      std::vector<float> staging(own.size()), expected(static_cast<std::size_t>(count));
      const HostView<float*> full = shared<float>(own);
      const HostView<float*> place = full.range(world.rank() * count, (world.rank() + 1) * count);
      world.reduce_scatter<float, OnHost>(Exec(), HostView<const float*>(full), HostView<float*>(),
                                          place, {tree, false});
      by_mpi.reduce_scatter<float, OnHost>(Exec(), host_view(own), host_view(staging),
                                           host_view(expected), {tree, false});
      EXPECT_TRUE(same_bits(values_of(place), expected)) << count << ", trees over " << tree;
    }
}

// A rank that continued too early would overwrite data that others still read; one that did not
// wait would read old data.
TEST_F(WindowTest, NobodyReadsTooEarlyOrTooLate) {
  constexpr std::int64_t count = 3000;
  constexpr int rounds = 100;
  std::mt19937 random(static_cast<unsigned>(world.rank()));
  const HostView<float*> full = shared<float>(count * world.size());
  std::vector<float> sum(static_cast<std::size_t>(count));
  const auto value = [&](int rank, int round, std::int64_t i) {
    return static_cast<float>((rank + 1) * (round + 1) + i % 7);
  };
  for (int round = 0; round < rounds; ++round) {
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
    for (std::int64_t i = 0; i < full.size(); ++i) full[i] = value(world.rank(), round, i);
    world.reduce_scatter<float, OnHost>(Exec(), HostView<const float*>(full), HostView<float*>(),
                                        host_view(sum));
    std::fill_n(full.data(), full.size(), -1.0F);
    int wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      float expected = 0.0F;
      for (int rank = 0; rank < world.size(); ++rank)
        expected += value(rank, round, world.rank() * count + i);
      wrong += sum[static_cast<std::size_t>(i)] != expected ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0) << round;
  }
}

TEST_F(WindowTest, ThreadsOfARankHaveWindowsOfTheirOwn) {
  if (!Communicator::threads_may_call()) GTEST_SKIP() << "one thread calls MPI";
  Communicator other = Communicator::duplicate(MPI_COMM_WORLD);
  other.set_window(std::make_unique<Window>(memory_, other, 1));
  constexpr std::int64_t count = 500;
  const HostView<float*> all = shared<float>(2 * count);
  const auto work = [&](Communicator& group, std::int64_t first, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<float> full(static_cast<std::size_t>(count * world.size()));
    int wrong = 0;
    for (int round = 0; round < 100; ++round) {
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      const HostView<float*> mine = all.range(first, first + count);
      std::fill_n(mine.data(), count, static_cast<float>(round + world.rank()));
      group.all_gather<float, OnHost>(Exec(), HostView<const float*>(mine), host_view(full));
      for (std::size_t i = 0; i < full.size(); ++i)
        wrong += full[i] != static_cast<float>(round + static_cast<int>(i) / count) ? 1 : 0;
    }
    return wrong;
  };
  int of_thread = -1;
  std::thread thread([&] { of_thread = work(other, count, 7U + world.rank()); });
  EXPECT_EQ(work(world, 0, 99U + world.rank()), 0);
  thread.join();
  EXPECT_EQ(of_thread, 0);
}

TEST_F(WindowTest, GroupsAreOfAnyRanksOfTheNode) {
  Communicator half = Communicator::split(MPI_COMM_WORLD, world.rank() % 2, -world.rank());
  half.set_window(std::make_unique<Window>(memory_, half, 2));
  const HostView<float*> mine = shared<float>(std::vector<float>{static_cast<float>(world.rank())});
  std::vector<float> all(static_cast<std::size_t>(half.size()));
  half.all_gather<float, OnHost>(Exec(), HostView<const float*>(mine), host_view(all));
  std::vector<float> expected;
  for (int rank = world.size() - 1; rank >= 0; --rank)
    if (rank % 2 == world.rank() % 2) expected.push_back(static_cast<float>(rank));
  EXPECT_EQ(all, expected);
}

TEST_F(WindowTest, WhatIsReadMustBeShared) {
  if (world.size() == 1) GTEST_SKIP() << "nobody reads";
  std::vector<float> elsewhere(64), full(static_cast<std::size_t>(64 * world.size()));
  EXPECT_THROW((world.all_gather<float, OnHost>(Exec(), host_view(std::as_const(elsewhere)),
                                                host_view(full))),
               std::logic_error);
}

TEST(NodeMemory, AllRanksKnowWhereOneCantShare) {
  Communicator node = Communicator::split_shared_memory(MPI_COMM_WORLD);
  EXPECT_EQ(why_not_shared(node), "");
  std::unique_ptr<NoFiles> limited;
  if (node.rank() == node.size() - 1) limited = std::make_unique<NoFiles>();
  const std::string why = why_not_shared(node);
  limited.reset();
  EXPECT_EQ(why, "1 B of memory that ranks share can't be made: File too large");
  EXPECT_EQ(why_not_shared(node), "");
}

}  // namespace
}  // namespace ostrakon::comm
