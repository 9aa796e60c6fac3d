// SPDX-License-Identifier: Apache-2.0
// Messages of NCCL: between all ranks concurrently, in order, connected before; and those of a
// pipeline.
#include <fake_device/nccl.h>
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <ostrakon/comm/messages.hpp>
#include <ostrakon/comm/nccl.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator_fixture.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::comm {
namespace {

using namespace ostrakon::tests;
using Pair = NcclMessages::Pair;

constexpr double limit = 60.0;

std::vector<Pair> all_pairs(int ranks) {
  std::vector<Pair> pairs;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to) pairs.emplace_back(from, to);
  return pairs;
}

// Otherwise a communicator would be used in two streams of a rank.
TEST(NcclMessages, NoRankSendsAndReceivesInOneCommunicator) {
  std::set<std::pair<int, int>> sends, receives;
  std::set<int> of_neighbours;
  for (const Pair& pair : all_pairs(70)) {
    const int lane = NcclMessages::lane_of(pair);
    sends.insert({pair.first, lane});
    receives.insert({pair.second, lane});
    if (std::abs(pair.first - pair.second) == 1) of_neighbours.insert(lane);
  }
  for (const auto& one : sends) EXPECT_EQ(receives.count(one), 0U);
  EXPECT_EQ(of_neighbours.size(), 2U);
}

/// Returns the content of the message number `number` from rank `from` to `to`.
std::vector<float> content(int from, int to, int number) {
  return random_values(static_cast<unsigned>(from * 100 + to * 10 + number), 1 + 700 * number);
}

TEST(NcclMessages, ArriveInOrderBetweenAllRanks) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "no messages";
  constexpr int numbers = 5;
  const int me = world.rank();
  Messages messages(world);
  EXPECT_TRUE(messages.has_to_be_finished());
  messages.set_transport(
      std::make_unique<NcclMessages>(world, all_pairs(world.size()), "test", limit, nullptr));
  EXPECT_FALSE(messages.has_to_be_finished());
  // Each rank exchanges with all others in rounds, so that no order of streams forms a cycle.
  std::map<std::pair<int, int>, Array> sent, received;
  for (int other = 0; other < world.size(); ++other)
    for (int n = 0; n < numbers && other != me; ++n) {
      sent.emplace(std::pair(other, n), Array(content(me, other, n)));
      received.emplace(std::pair(other, n),
                       Array(static_cast<std::int64_t>(content(other, me, n).size())));
    }
  const auto bytes = [](const Array& array) {
    const View<float*> view = array.view();
    return View<char*>(reinterpret_cast<char*>(view.data()), 4 * view.size());
  };
  const device::Stream sends, receives;
  const Exec of_sends(sends.handle()), of_receives(receives.handle());
  std::int64_t expected_bytes = 0;
  std::thread receiving([&] {
    for (int n = 0; n < numbers; ++n)
      for (int round = 1; round < world.size(); ++round) {
        const int from = (me + world.size() - round) % world.size();
        messages.begin_receive<OnDevice>(of_receives, bytes(received.at({from, n})), from);
      }
  });
  for (int n = 0; n < numbers; ++n)
    for (int round = 1; round < world.size(); ++round) {
      const int to = (me + round) % world.size();
      messages.begin_send<OnDevice>(of_sends, bytes(sent.at({to, n})), to);
      expected_bytes += bytes(sent.at({to, n})).size();
    }
  receiving.join();
  device::wait_for(sends.handle());
  device::wait_for(receives.handle());
  for (const auto& [key, array] : received)
    EXPECT_TRUE(same_bits(array.values(), content(key.first, me, key.second)))
        << "number " << key.second << " from " << key.first;
  EXPECT_EQ(messages.bytes_sent(), expected_bytes);
}

TEST(NcclMessages, OneThatNobodyReceivesIsAbortedWithItsName) {
  Communicator world = Communicator::duplicate(MPI_COMM_WORLD);
  if (world.size() == 1) GTEST_SKIP() << "no messages";
  std::promise<std::string> told;
  {
    NcclWatchdog watch(0.3, [&](const std::string& text) { told.set_value(text); });
    NcclMessages messages(world, {{0, 1}, {1, 0}}, "stages", limit, &watch);
    const device::Stream stream;
    const Array data(16);
    if (world.rank() == 0) {
      messages.receive(Exec(stream.handle()), reinterpret_cast<std::byte*>(data.view().data()), 64,
                       1);
      EXPECT_EQ(told.get_future().get(),
                "a receive of 64 bytes from rank 1 of the group on stages, lane 1 has not ended "
                "within 0.3 s: "
                "another rank has not made its part of it, or the network is stuck");
      device::wait_for(stream.handle());
    }
    world.barrier();
  }
}

TEST(NcclMessages, CarryWhatStagesSend) {
  if (world_ranks() != 2) GTEST_SKIP() << "two stages";
  config::Settings settings = small_llama(8);
  settings.training.steps = 3;
  const History one = reference_run(settings);
  settings.pipeline = 2;
  settings.runtime.streams = config::StreamsChoice::automatic;
  const long before = fake_calls("ncclSend");
  expect_same_bits(train_history(settings, MPI_COMM_WORLD), one, "by NCCL");
  // Each step sends a microbatch's activations, or their gradient; three validations send
  // activations only; and one message connects.
  const bool is_first = mesh::Mesh(MPI_COMM_WORLD).world().rank() == 0;
  EXPECT_EQ(fake_calls("ncclSend") - before, 1 + 3 * 8 + (is_first ? 3 * 8 : 0));

  // The sum of a tied table's gradients is sent to its stage, and the table is sent back.
  config::Settings tied = small_gpt2(8);
  tied.training.steps = 3;
  tied.training.leaf = config::Leaf::sequence;
  const History tied_one = reference_run(tied);
  tied.pipeline = 2;
  const long before_tied = fake_calls("ncclSend");
  expect_same_bits(train_history(tied, MPI_COMM_WORLD), tied_one, "tied");
  EXPECT_GE(fake_calls("ncclSend") - before_tied, 1 + 3 * (8 + 1));

  // In plan order, as on the host, messages are by MPI: one that waits would block all others.
  settings.runtime.streams = config::StreamsChoice::in_plan_order;
  const long after = fake_calls("ncclSend");
  expect_same_bits(train_history(settings, MPI_COMM_WORLD), one, "inline");
  EXPECT_EQ(fake_calls("ncclSend"), after);
}

// Tied tables are on the host here, and stages send their gradients from there.
TEST(NcclMessages, AreNotOfHostMemory) {
  if (world_ranks() != 2) GTEST_SKIP() << "two stages";
  config::Settings settings = small_gpt2(8);
  settings.training.steps = 3;
  settings.training.leaf = config::Leaf::sequence;
  settings.parallel.offload = plan::Offload::all;
  const History one = reference_run(settings);
  settings.pipeline = 2;
  const long before = fake_calls("ncclSend");
  expect_same_bits(train_history(settings, MPI_COMM_WORLD), one, "tied, on the host");
  EXPECT_EQ(fake_calls("ncclSend"), before);
}

}  // namespace
}  // namespace ostrakon::comm
