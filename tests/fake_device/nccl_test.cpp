// SPDX-License-Identifier: Apache-2.0
// Collectives of NCCL on streams, and their watchdog.
#include <fake_device/nccl.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <future>
#include <memory>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator_fixture.hpp"
#include "support/scratch_folder.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;
using ostrakon::testing::error_of;

constexpr double limit = 60.0;

class Nccl : public ::testing::Test {
 protected:
  Nccl() : parent(world, "test", limit) {
    world.set_transport(std::make_unique<NcclTransport>(
        std::make_unique<NcclCommunicator>(parent, 0, world.rank(), "collectives"), world.rank(),
        nullptr));
  }
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  NcclCommunicator parent;
};

TEST_F(Nccl, CollectivesAreInTheOrderOfTheirStream) {
  if (world.size() == 1) GTEST_SKIP() << "no collective";
  const device::Stream stream;
  const Exec exec(stream.handle());
  for (const std::int64_t count : {1, 37, 4096}) {
    const auto inputs = random_arrays(world.size(), count * world.size());
    const Array full(inputs[static_cast<std::size_t>(world.rank())]);
    const Array staging(count * world.size()), shard(count), gathered(count * world.size());
    world.reduce_scatter<float, OnDevice>(exec, full, staging, shard);
    world.all_gather<float, OnDevice>(exec, shard, gathered);
    device::wait_for(stream.handle());
    std::vector<float> sums;
    for (std::int64_t i = 0; i < count * world.size(); ++i)
      sums.push_back(tree(inputs, 0, world.size(), static_cast<std::size_t>(i)));
    EXPECT_TRUE(same_bits(gathered.values(), sums)) << count;
  }
}

TEST_F(Nccl, SumsInTreesContinueWhatTheShardHolds) {
  if (world.size() < 4) GTEST_SKIP() << "one tree";
  const std::int64_t count = 65;
  const auto inputs = random_arrays(world.size(), count * world.size());
  const Array full(inputs[static_cast<std::size_t>(world.rank())]);
  const Array staging(count * world.size());
  const auto before = random_values(3, count);
  const Array shard(before);
  world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard, {2, true});
  const auto sums = shard.values();
  for (std::int64_t i = 0; i < count; ++i) {
    float expected = before[static_cast<std::size_t>(i)];
    for (int first = 0; first < world.size(); first += 2)
      expected += tree(inputs, first, std::min(first + 2, world.size()),
                       static_cast<std::size_t>(world.rank() * count + i));
    ASSERT_EQ(sums[static_cast<std::size_t>(i)], expected) << i;
  }
}

TEST_F(Nccl, AddsUpInEachDtype) { expect_library_sums(world, {0, 1, 37, 4096}); }

TEST_F(Nccl, AGroupOfEveryOtherRankIsSplitOff) {
  const int color = world.rank() % 2;
  Communicator half = Communicator::split(MPI_COMM_WORLD, color, world.rank());
  auto made =
      std::make_unique<NcclCommunicator>(parent, half.size() > 1 ? color : -1, half.rank(), "half");
  if (half.size() == 1) return;
  EXPECT_EQ(made->size(), half.size());
  half.set_transport(std::make_unique<NcclTransport>(std::move(made), half.rank(), nullptr));
  const Array shard(std::vector<float>(8, static_cast<float>(world.rank())));
  const Array full(8 * half.size());
  half.all_gather<float, OnDevice>(Exec(), shard, full);
  const auto values = full.values();
  for (int rank = 0; rank < half.size(); ++rank)
    EXPECT_EQ(values[static_cast<std::size_t>(8 * rank)], static_cast<float>(2 * rank + color));
}

TEST_F(Nccl, ACollectiveThatOthersDoNotCallIsAbortedWithItsName) {
  if (world.size() == 1) GTEST_SKIP() << "no collective";
  std::promise<std::string> told;
  const double short_limit = 0.3;
  {
    NcclWatchdog watch(short_limit, [&](const std::string& text) { told.set_value(text); });
    NcclTransport transport(
        std::make_unique<NcclCommunicator>(parent, 0, world.rank(), "stuck ones"), world.rank(),
        &watch);
    const device::Stream stream;
    const Array shard(16), full(16 * world.size());
    if (world.rank() == 0)
      transport.all_gather(Exec(stream.handle()),
                           reinterpret_cast<const std::byte*>(shard.view().data()),
                           reinterpret_cast<std::byte*>(full.view().data()), 64);
    if (world.rank() == 0) {
      EXPECT_EQ(told.get_future().get(),
                "an all-gather of 64 bytes on stuck ones has not ended within 0.3 s: another rank "
                "has not made its part of it, or the network is stuck");
      device::wait_for(stream.handle());  // ends, as the communicator was aborted
    }
    world.barrier();
  }
}

/// Whether rank 0 of a pair can send in one part of `parent` while an earlier receive in another
/// part waits, for `seconds`.
bool sends_beside_receive(NcclCommunicator& parent, Communicator& pair, double seconds) {
  const int rank = pair.rank();
  const auto part = [&](const char* its_name) {
    return std::make_unique<NcclCommunicator>(parent, 0, rank, its_name);
  };
  NcclTransport received(part("received"), rank, nullptr), sent(part("sent"), rank, nullptr);
  const device::Stream of_received, of_sent;
  const Array data(32);
  auto* const bytes = reinterpret_cast<std::byte*>(data.view().data());
  double is_sent = 0.0;
  if (rank == 0) {
    device::Event done;
    received.receive(Exec(of_received.handle()), bytes, 64, 1);
    sent.send(Exec(of_sent.handle()), bytes + 64, 64, 1);
    done.record(of_sent.handle());
    const double end = seconds_now() + seconds;
    while (!done.is_reached() && seconds_now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    is_sent = done.is_reached() ? 1.0 : 0.0;
  }
  pair.all_reduce_max(&is_sent, 1);
  if (rank == 1) {
    received.send(Exec(of_received.handle()), bytes, 64, 0);
    sent.receive(Exec(of_sent.handle()), bytes + 64, 64, 0);
  }
  device::wait_for(of_received.handle());
  device::wait_for(of_sent.handle());
  return is_sent > 0.0;
}

TEST(NcclParts, WaitForEachOtherWhereTheirParentSharesItsResources) {
  const int rank = Communicator::duplicate(MPI_COMM_WORLD).rank();
  Communicator pair = Communicator::split(MPI_COMM_WORLD, rank / 2, rank);
  if (pair.size() == 1) GTEST_SKIP() << "no messages";
  NcclCommunicator apart(pair, "test", limit, NcclCommunicator::Resources::own);
  EXPECT_TRUE(sends_beside_receive(apart, pair, 30.0));
  NcclCommunicator shared(pair, "test", limit, NcclCommunicator::Resources::of_parent);
  EXPECT_FALSE(sends_beside_receive(shared, pair, 0.1));
}

}  // namespace
}  // namespace ostrakon::comm
