// SPDX-License-Identifier: Apache-2.0

// Gathers and reductions of arrays: their bits, bytes sent, and times.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "communicator_fixture.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;
using ostrakon::testing::error_of;

// Multiples of 64 are sent as blocks, other sizes as floats.
const std::vector<std::int64_t> shard_sizes = {0, 1, 37, 64, 192, 4099, 65536};

TEST_F(CommunicatorTest, AllGatherFromElsewhere) {
  for (const std::int64_t count : shard_sizes) {
    const auto whole = random_values(7, count * world.size());
    const auto own = part(whole, world.rank() * count, count);
    const Array shard(own);
    const Array full(count * world.size());
    world.all_gather<float, OnDevice>(Exec(), shard, full);
    EXPECT_TRUE(same_bits(full.values(), whole)) << count;
    EXPECT_TRUE(same_bits(shard.values(), own)) << count;
  }
}

TEST_F(CommunicatorTest, AllGatherInPlace) {
  for (const std::int64_t count : shard_sizes) {
    const auto whole = random_values(8, count * world.size());
    std::vector<float> start(whole.size(), -1.0F);
    for (std::int64_t i = world.rank() * count; i < (world.rank() + 1) * count; ++i)
      start[static_cast<std::size_t>(i)] = whole[static_cast<std::size_t>(i)];
    const Array full(start);
    world.all_gather<float, OnDevice>(Exec(), full.part(world.rank() * count, count), full);
    EXPECT_TRUE(same_bits(full.values(), whole)) << count;
  }
}

TEST_F(CommunicatorTest, AllGatherRefusesAShardAtTheWrongPlace) {
  if (world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const std::int64_t count = 64;
  const Array full(count * world.size());
  const std::int64_t wrong = world.rank() * count + (world.rank() == 0 ? 1 : -1);
  EXPECT_NE(error_of([&] {
              world.all_gather<float, OnDevice>(Exec(), full.part(wrong, count), full);
            }).find("not at the place of rank " + std::to_string(world.rank())),
            std::string::npos);
  EXPECT_EQ(world.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, AllToAllBringsEachRankItsPartOfAll) {
  for (const std::int64_t count : shard_sizes) {
    const auto arrays = random_arrays(world.size(), count * world.size());
    std::vector<float> expected;
    for (const std::vector<float>& from : arrays) {
      const auto mine = part(from, world.rank() * count, count);
      expected.insert(expected.end(), mine.begin(), mine.end());
    }
    const Array full(arrays[static_cast<std::size_t>(world.rank())]);
    const Array received(count * world.size());
    const std::int64_t before = world.bytes_sent();
    world.all_to_all<float, OnDevice>(Exec(), full, received);
    EXPECT_TRUE(same_bits(received.values(), expected)) << count;
    EXPECT_EQ(world.bytes_sent() - before, (world.size() - 1) * count * 4);
  }
  if (world.size() == 1) return;
  const Array full(2 * world.size());
  EXPECT_NE(error_of([&] {
              world.all_to_all<float, OnDevice>(Exec(), full, full);
            }).find("overlaps what is sent"),
            std::string::npos);
}

TEST_F(CommunicatorTest, ReduceScatterHasTheBitsOfTheTree) {
  for (const std::int64_t count : shard_sizes) {
    const auto arrays = random_arrays(world.size(), count * world.size());
    const auto& own = arrays[static_cast<std::size_t>(world.rank())];
    const Array full(own);
    const Array staging(count * world.size());
    const Array shard(count);
    world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard);

    std::vector<float> expected;
    for (std::int64_t i = 0; i < count; ++i)
      expected.push_back(
          tree(arrays, 0, world.size(), static_cast<std::size_t>(world.rank() * count + i)));
    EXPECT_TRUE(same_bits(shard.values(), expected)) << count;
    EXPECT_TRUE(same_bits(full.values(), own)) << count;

    // The shard is the beginning of the staging array, or this rank's part of the array.
    world.reduce_scatter<float, OnDevice>(
        Exec(), full, staging, world.size() == 1 ? shard.view() : staging.part(0, count));
    EXPECT_TRUE(same_bits(part((world.size() == 1 ? shard : staging).values(), 0, count), expected))
        << count;
    const std::int64_t place = world.rank() * count;
    world.reduce_scatter<float, OnDevice>(Exec(), full, staging, full.part(place, count));
    EXPECT_TRUE(same_bits(part(full.values(), place, count), expected)) << count;
  }
}

// Several microbatches, whose trees over a few ranks are accumulated in order.
template <class T>
void expect_chained_sums(Communicator& world) {
  const std::int64_t count = 193;
  const int ranks = world.size(), rounds = 3;
  // The values that ranks send, ordered by microbatch and rank.
  const auto arrays = random_arrays(rounds * ranks, count * ranks);
  std::vector<std::vector<float>> sent = arrays;
  for (std::vector<float>& array : sent)
    for (float& value : array) value = static_cast<float>(static_cast<T>(value));
  for (int tree_ranks : {1, 2, 3, 4, 8}) {
    std::vector<float> expected(static_cast<std::size_t>(count));
    std::vector<float> shard(expected.size());
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t i = 0; i < expected.size(); ++i)
        for (int first = 0; first < ranks; first += tree_ranks) {
          const int begin = round * ranks + first;
          const int end = round * ranks + std::min(ranks, first + tree_ranks);
          const float sum =
              tree(sent, begin, end, static_cast<std::size_t>(world.rank() * count) + i);
          expected[i] = round + first == 0 ? sum : expected[i] + sum;
        }
      const auto& own = arrays[static_cast<std::size_t>(round * ranks + world.rank())];
      std::vector<T> full, staging(own.size());
      for (float value : own) full.push_back(static_cast<T>(value));
      const std::vector<T> before = full;
      world.reduce_scatter<T, OnHost>(Exec(), host_view(full), host_view(staging), host_view(shard),
                                      {tree_ranks, round > 0});
      EXPECT_TRUE(same_bits(shard, expected)) << tree_ranks << ", round " << round;
      EXPECT_EQ(std::memcmp(full.data(), before.data(), full.size() * sizeof(T)), 0);
    }
  }
}

TEST_F(CommunicatorTest, ReduceScatterContinuesASum) {
  if (!memory_is_host_accessible) GTEST_SKIP() << "device memory";
  expect_chained_sums<float>(world);
  expect_chained_sums<bf16>(world);
  expect_chained_sums<fp16>(world);
}

TEST_F(CommunicatorTest, TheLibrarySumsInEachDtype) {
  expect_library_sums(world, shard_sizes);
  const Array all(64 * world.size());
  EXPECT_EQ(error_of([&] {
              world.library_reduce_scatter<float, OnDevice>(Exec(), all, all.part(0, 64));
            }),
            "reduce_scatter: the shard lies inside the array to reduce");
}

TEST_F(CommunicatorTest, WhatIsAddedToLiesApart) {
  if (world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const Array full(64 * world.size());
  const Array staging(64 * world.size());
  for (const View<float*>& shard : {staging.part(0, 64), full.part(64 * world.rank(), 64)})
    EXPECT_EQ(error_of([&] {
                world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard, {0, true});
              }),
              "reduce_scatter: the shard, which is added to, lies inside another array");
}

// The random arrays must give different sums in different orders, or the other tests show nothing.
TEST_F(CommunicatorTest, TheRandomArraysTellOrdersApart) {
  if (world.size() < 3) GTEST_SKIP() << "two numbers have one sum";
  const auto arrays = random_arrays(world.size(), 1000);
  int different = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    float backwards = 0.0F;
    for (int rank = world.size() - 1; rank >= 0; --rank)
      backwards += arrays[static_cast<std::size_t>(rank)][i];
    different += backwards != tree(arrays, 0, world.size(), i) ? 1 : 0;
  }
  EXPECT_GT(different, 50);
}

TEST_F(CommunicatorTest, ReduceScatterRefusesOverlap) {
  if (world.size() == 1) GTEST_SKIP() << "nothing to refuse";
  const std::int64_t count = 64 * world.size();
  const Array all(2 * count);
  const View<float*> full = all.part(0, count);
  const Array staging(count);
  EXPECT_EQ(error_of([&] {
              world.reduce_scatter<float, OnDevice>(Exec(), full, all.part(64, count),
                                                    staging.part(0, 64));
            }),
            "reduce_scatter: the staging array overlaps the array to reduce");
  EXPECT_EQ(error_of([&] {
              world.reduce_scatter<float, OnDevice>(Exec(), full, staging, staging.part(1, 64));
            }),
            "reduce_scatter: the shard lies inside the staging array, but not where it begins");
  EXPECT_EQ(error_of([&] {
              world.reduce_scatter<float, OnDevice>(
                  Exec(), full, staging,
                  all.part(64 * world.rank() + (world.rank() == 0 ? 1 : -1), 64));
            }),
            text("reduce_scatter: the shard of rank ", world.rank(),
                 " lies inside the array to reduce, but not at the place of rank ", world.rank()));
  EXPECT_EQ(world.bytes_sent(), 0);
}

TEST_F(CommunicatorTest, BytesSentFollowTheRingFormulas) {
  EXPECT_EQ(world.bytes_sent(), 0);
  const std::int64_t count = 192;
  const std::int64_t whole_bytes = count * world.size() * 4;
  const std::int64_t moved = whole_bytes / world.size() * (world.size() - 1);
  const Array shard(count);
  const Array full(count * world.size());
  const Array staging(count * world.size());
  world.all_gather<float, OnDevice>(Exec(), shard, full);
  EXPECT_EQ(world.bytes_sent(), moved);
  world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard);
  EXPECT_EQ(world.bytes_sent(), 2 * moved);
  world.barrier();
  world.broadcast("control messages don't count", 0);
  EXPECT_EQ(world.bytes_sent(), 2 * moved);
}

TEST_F(CommunicatorTest, ASlowNetworkTakesItsTimeForEachByte) {
  const std::int64_t count = 64;
  const Array shard(count);
  const Array full(count * world.size());
  const Array staging(count * world.size());
  const auto seconds_of = [&](Communicator& group) {
    group.barrier();
    const auto begin = std::chrono::steady_clock::now();
    group.all_gather<float, OnDevice>(Exec(), shard, full);
    group.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double expected = world.size() == 1 ? 0.0 : 0.2;
  const auto bytes = static_cast<double>(2 * (world.size() - 1) * count * 4);
  world.slow_down(world.size() == 1 ? 1.0 : expected / bytes);
  EXPECT_GE(seconds_of(world), expected);

  // A moved communicator is still slowed down.
  Communicator moved = std::move(world);
  EXPECT_GE(seconds_of(moved), expected);

  // The shortest of several calls is compared, as a busy machine may delay single calls.
  moved.slow_down(0.0);
  double least = seconds_of(moved);
  for (int i = 0; i < 20; ++i) least = std::min(least, seconds_of(moved));
  EXPECT_LT(least, 0.2);
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_NE(error_of([&] { moved.slow_down(wrong); }), "no error") << wrong;
}

// A thread outside Kokkos gathers while this one reduces, each in its own group.
TEST_F(CommunicatorTest, ThreadsCommunicateAtTheSameTime) {
  if (!Communicator::threads_may_call()) GTEST_SKIP() << "MPI allows one thread only";
  Communicator gathers = duplicate(world.mpi());
  Communicator reductions = duplicate(world.mpi());
  constexpr std::int64_t count = 4099;
  constexpr int times = 30;
  const auto whole = random_values(3, count * world.size());
  const auto arrays = random_arrays(world.size(), count * world.size());
  const Array shard(part(whole, world.rank() * count, count));
  const Array gathered(count * world.size());
  const Array full(arrays[static_cast<std::size_t>(world.rank())]);
  const Array staging(count * world.size());
  const Array reduced(count);
  std::string failure;
  std::thread gathering([&] {
    failure = error_of([&] {
      for (int i = 0; i < times; ++i) gathers.all_gather<float, OnDevice>(Exec(), shard, gathered);
    });
  });
  for (int i = 0; i < times; ++i)
    reductions.reduce_scatter<float, OnDevice>(Exec(), full, staging, reduced);
  gathering.join();

  EXPECT_EQ(failure, "no error");
  EXPECT_TRUE(same_bits(gathered.values(), whole));
  std::vector<float> expected;
  for (std::int64_t i = 0; i < count; ++i)
    expected.push_back(
        tree(arrays, 0, world.size(), static_cast<std::size_t>(world.rank() * count + i)));
  EXPECT_TRUE(same_bits(reduced.values(), expected));
  EXPECT_EQ(gathers.bytes_sent(), times * (world.size() - 1) * count * 4);
  EXPECT_EQ(reductions.bytes_sent(), gathers.bytes_sent());
}

}  // namespace
}  // namespace ostrakon::comm
