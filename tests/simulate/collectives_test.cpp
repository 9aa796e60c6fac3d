// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/simulate/collectives.hpp>

#include "machines.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::simulate;

Machine with_latencies() {
  Machine machine = round_machine();
  machine.inside_nodes.base_seconds = 1.0;
  machine.inside_nodes.step_seconds = 0.1;
  machine.inside_nodes.message_seconds = 0.01;
  machine.across_nodes.base_seconds = 2.0;
  machine.across_nodes.step_seconds = 0.5;
  machine.across_nodes.message_seconds = 0.05;
  return machine;
}

TEST(Collectives, OneRankTakesNoTime) {
  const Machine machine = with_latencies();
  for (const CollectiveSeconds& none :
       {ring_seconds(machine, {1, 1}, 100.0), exchange_seconds(machine, {1, 1}, 100.0)}) {
    EXPECT_EQ(none.latency, 0.0);
    EXPECT_EQ(none.transfer, 0.0);
  }
  EXPECT_EQ(sum_seconds(machine, {1, 1}), 0.0);
}

// Each of four ranks sends three quarters; a base and three steps.
TEST(Collectives, ARingInsideANode) {
  const CollectiveSeconds ring = ring_seconds(with_latencies(), {4, 4}, 64.0);
  EXPECT_DOUBLE_EQ(ring.latency, 1.3);
  EXPECT_DOUBLE_EQ(ring.transfer, 48.0 / 8.0);
}

// Eight ranks on two nodes: one step across, six inside. Four links of 2 bytes a second leave a
// node; four would be as fast as the 8 inside, one is slower.
TEST(Collectives, ARingAcrossNodesUsesTheLinksOfAllItsRanks) {
  const Machine machine = with_latencies();
  EXPECT_DOUBLE_EQ(ring_seconds(machine, {8, 4}, 64.0).latency, 2.0 + 6 * 0.1 + 0.5);
  EXPECT_DOUBLE_EQ(ring_seconds(machine, {8, 4}, 64.0).transfer, 56.0 / 8.0);
  EXPECT_DOUBLE_EQ(ring_seconds(machine, {8, 2}, 64.0).transfer, 56.0 / 4.0);
  EXPECT_DOUBLE_EQ(ring_seconds(machine, {8, 1}, 64.0).transfer, 56.0 / 2.0);
  EXPECT_DOUBLE_EQ(ring_seconds(machine, {8, 1}, 64.0).latency, 2.0 + 7 * 0.5);
  Machine wide = machine;
  wide.across_nodes.bytes_per_second = 100.0;
  EXPECT_DOUBLE_EQ(ring_seconds(wide, {8, 4}, 64.0).transfer, 56.0 / 8.0) << "limited inside";
}

// A rank of eight on two nodes sends three messages of 8 bytes inside, at 8, and four across, at 2.
TEST(Collectives, AnAllToAllSendsEachMessageByItself) {
  const Machine machine = with_latencies();
  const CollectiveSeconds across = exchange_seconds(machine, {8, 4}, 64.0);
  EXPECT_DOUBLE_EQ(across.transfer, 32.0 / 2.0);
  EXPECT_DOUBLE_EQ(across.latency, 2.0 + 3 * 0.01 + 4 * 0.05);
  const CollectiveSeconds inside = exchange_seconds(machine, {4, 4}, 64.0);
  EXPECT_DOUBLE_EQ(inside.transfer, 48.0 / 8.0);
  EXPECT_DOUBLE_EQ(inside.latency, 1.0 + 3 * 0.01);
  Machine own = machine;
  own.inside_nodes.exchange_bytes_per_second = 4.0;
  EXPECT_DOUBLE_EQ(exchange_seconds(own, {4, 4}, 64.0).transfer, 48.0 / 4.0);
}

// Trees over four ranks of a node, then over two nodes, up and down.
TEST(Collectives, SumsGoByTrees) {
  EXPECT_DOUBLE_EQ(sum_seconds(with_latencies(), {8, 4}), 2.0 + 2 * (2 * 0.1 + 1 * 0.5));
  EXPECT_DOUBLE_EQ(sum_seconds(with_latencies(), {4, 4}), 1.0 + 2 * 2 * 0.1);
}

TEST(Collectives, AMessageTakesItsNetwork) {
  const Machine machine = with_latencies();
  EXPECT_DOUBLE_EQ(message_seconds(machine, false, 16.0).transfer, 2.0);
  EXPECT_DOUBLE_EQ(message_seconds(machine, true, 16.0).transfer, 8.0);
  EXPECT_DOUBLE_EQ(message_seconds(machine, true, 16.0).latency, 2.0);
}

// A few bytes go with the least latency, many with the whole bandwidth.
TEST(Collectives, ProtocolsForSmallMessages) {
  Machine machine = round_machine();
  machine.inside_nodes.bytes_per_second = machine.across_nodes.bytes_per_second = 1e9;
  machine.inside_nodes.base_seconds = machine.across_nodes.base_seconds = 8e-6;
  machine.inside_nodes.step_seconds = 3e-6;
  machine.across_nodes.step_seconds = 14e-6;
  const GroupShape inside{4, 4}, across{4, 2};
  const double plain = ring_seconds(machine, inside, 400.0).latency;
  EXPECT_NEAR(plain, 17e-6, 1e-12);
  machine.has_protocols = true;
  EXPECT_NEAR(ring_seconds(machine, inside, 400.0).latency, 6.6e-6 + 3 * 0.6e-6, 1e-12) << "LL";
  EXPECT_NEAR(ring_seconds(machine, inside, 4e9).transfer, 3.0, 1e-12) << "Simple";
  EXPECT_NEAR(ring_seconds(machine, across, 400.0).latency, 6.6e-6 + 2 * 0.6e-6 + 2.7e-6, 1e-12);
  EXPECT_NEAR(ring_seconds(machine, across, 5e6).latency, 8e-6 + 2 * 3e-6 + 14e-6, 1e-12)
      << "more than LL moves";
  machine.across_nodes.inside_step_seconds = 6e-6;
  EXPECT_NEAR(ring_seconds(machine, across, 4e9).latency, 8e-6 + 2 * 6e-6 + 14e-6, 1e-12);
}

}  // namespace
}  // namespace ostrakon::tests
