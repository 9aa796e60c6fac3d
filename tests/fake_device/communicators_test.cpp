// SPDX-License-Identifier: Apache-2.0
// One communicator of NCCL for all streams of a group: its collectives run one after the other.
#include <fake_device/nccl.h>
#include <gtest/gtest.h>

#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <string>
#include <vector>

#include "comm/communicator_fixture.hpp"
#include "support/messages.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;

// The fake NCCL aborts the program if a communicator is used in two streams at a time.
TEST(NcclOrder, StreamsTakeTurns) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "no collective";
  NcclCommunicator parent(world, "test", 60.0);
  const auto shared = std::make_shared<NcclCommunicator>(parent, 0, world.rank(), "of all streams");
  const auto order = std::make_shared<NcclOrder>();
  std::vector<Communicator> groups;
  std::vector<device::Stream> streams;
  for (int s = 0; s < 3; ++s) {
    groups.push_back(Communicator::duplicate(MPI_COMM_WORLD));
    groups.back().set_transport(
        std::make_unique<NcclTransport>(shared, world.rank(), nullptr, order));
    streams.emplace_back();
  }
  const std::int64_t count = 700;
  const auto whole = random_values(7, count * world.size());
  const auto inputs = random_arrays(world.size(), count * world.size());
  const Array shard(part(whole, world.rank() * count, count));
  const Array full(inputs[static_cast<std::size_t>(world.rank())]);
  for (int times = 0; times < 20; ++times) {
    const Array gathered(count * world.size()), staging(count * world.size()), sum(count);
    const Array by_library(count);
    groups[0].all_gather<float, OnDevice>(Exec(streams[0].handle()), shard, gathered);
    groups[1].reduce_scatter<float, OnDevice>(Exec(streams[1].handle()), full, staging, sum);
    groups[2].library_reduce_scatter<float, OnDevice>(Exec(streams[2].handle()), full, by_library);
    for (const device::Stream& stream : streams) device::wait_for(stream.handle());
    EXPECT_TRUE(same_bits(gathered.values(), whole));
    const std::vector<float> sums = sum.values();
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(sums[static_cast<std::size_t>(i)],
                tree(inputs, 0, world.size(), static_cast<std::size_t>(world.rank() * count + i)));
  }
}

TEST(NcclOrder, RunsHaveTheSameBits) {
  const int ranks = world_ranks();
  if (ranks != 2 && ranks != 4) GTEST_SKIP() << "on 2 and 4 ranks";
  config::Settings settings = in_pieces(small_llama(8));
  settings.training.steps = 3;
  const History one = reference_run(settings);
  settings.runtime.streams = config::StreamsChoice::automatic;
  settings.parallel.in_flight_reductions = 2;
  settings.parallel.forward_prefetch.depth = settings.parallel.backward_prefetch.depth = 2;
  std::vector<config::Settings> all(3, settings);
  all[1].tensor = 2;
  if (ranks > 2) all[2].shard_group = 2;
  all[2].pipeline = ranks > 2 ? 2 : 1;
  for (config::Settings& divided : all) {
    const auto splits = [&](config::CommunicatorsChoice choice) {
      divided.runtime.communicators = choice;
      const long before = fake_calls("ncclCommSplit");
      expect_same_bits(train_history(divided, MPI_COMM_WORLD), one, name(choice));
      return fake_calls("ncclCommSplit") - before;
    };
    const long several = splits(config::CommunicatorsChoice::per_stream);
    EXPECT_LT(splits(config::CommunicatorsChoice::single), several);
  }
}

std::string refusal(config::CommunicatorsChoice choice, TransportKind transport, bool has_device) {
  return testing::error_of([&] { train::require_communicators(choice, transport, has_device); });
}

// Network measurements have no run with channels that they could use.
TEST(SetDeviceTransport, GivesAGroupATransport) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  train::set_device_transport(world);
  const std::int64_t count = 64;
  const auto whole = random_values(7, count * world.size());
  const Array shard(part(whole, world.rank() * count, count)), gathered(count * world.size());
  world.all_gather<float, OnDevice>(Exec(), shard, gathered);
  Exec().fence();
  EXPECT_TRUE(same_bits(gathered.values(), whole));
  EXPECT_EQ(train::ranks_of_device(world).size(), 1) << "each rank has one of its own";
}

TEST(NcclOrder, IsRefusedWithoutNccl) {
  using config::CommunicatorsChoice;
  EXPECT_EQ(refusal(CommunicatorsChoice::per_stream, TransportKind::mpi_staged, false), "no error");
  EXPECT_EQ(refusal(CommunicatorsChoice::single, TransportKind::nccl, true), "no error");
  EXPECT_EQ(refusal(CommunicatorsChoice::single, TransportKind::mpi_staged, true),
            "runtime.communicators = single: what moves device memory is mpi_staged, which has no "
            "communicators of NCCL; expected per_stream, or runtime.transport = nccl");
  EXPECT_EQ(refusal(CommunicatorsChoice::single, TransportKind::mpi_staged, false),
            "runtime.communicators = single: this build computes on the host; expected per_stream");
}

}  // namespace
}  // namespace ostrakon::comm
