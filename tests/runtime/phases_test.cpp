// SPDX-License-Identifier: Apache-2.0

// A model with a unit that ranks compute together, planned and run: the residual block y = x + V
// relu(W x) is divided along its hidden features into two slices, both on one rank, or one on each
// of two ranks. Its forward has three phases: rows of all ranks are gathered; each rank computes
// its slice for all rows, which gives partial sums; these are reduce-scattered, and each rank adds
// its own rows to x. Backward has the same phases. For any number of ranks and any order of
// streams, the weights after some steps are bitwise those of a plain loop over leaves without
// plans.

#include <gtest/gtest.h>

#include <cstdint>

#include "phases_machine.hpp"
#include "residual_block.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;
using plan::Kind;

void expect_the_plain_loop(int every, runtime::Streams streams,
                           runtime::Perturbation perturbation) {
  const Plain plain = plain_loop();
  Machine machine(every, streams);
  machine.perturb(perturbation);
  for (int step = 0; step < steps; ++step)
    EXPECT_EQ(machine.step(), plain.losses[static_cast<std::size_t>(step)]) << step;
  machine.expect_weights(plain.weights);
  EXPECT_EQ(machine.exchanged_bytes(), steps * machine.planned_bytes());
}

class RunPhases : public testing::Test {
 protected:
  void SetUp() override {
    if (has_device) GTEST_SKIP() << "its handlers compute on the host";
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (slices % ranks != 0) GTEST_SKIP() << "there are two slices";
  }
};

TEST_F(RunPhases, TheLossFalls) {
  const Plain plain = plain_loop();
  EXPECT_GT(plain.losses.back(), 0.0);
  EXPECT_LT(plain.losses.back(), 0.9 * plain.losses.front());
}

TEST_F(RunPhases, GivesTheBitsOfAPlainLoop) {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(0, runtime::Streams::in_plan_order, {seed, 0.0});
}

TEST_F(RunPhases, RecomputesWithTheirExchanges) {
  const Machine machine(1, runtime::Streams::in_plan_order);
  const int micro_batches = leaves / machine.ranks();
  EXPECT_EQ(machine.actions_of(Kind::recompute), 3 * micro_batches);
  EXPECT_EQ(machine.actions_of(Kind::exchange), machine.ranks() > 1 ? 6 * micro_batches : 0);
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(1, runtime::Streams::in_plan_order, {seed, 0.0});
}

TEST_F(RunPhases, RunsOnThreads) {
  if (!comm::Communicator::threads_may_call()) GTEST_SKIP() << "MPI lets one thread call it";
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    expect_the_plain_loop(static_cast<int>(seed) % 2, runtime::Streams::threads, {seed, 1e-4});
}

}  // namespace
