// SPDX-License-Identifier: Apache-2.0
// Gradients summed over ranks by the library, in an order of its own: close to the ordered sums,
// within the plan, and in every layout.
#include <gtest/gtest.h>

#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

using Change = std::function<void(config::Settings&)>;

/// What a run depends on that has other sums, each by itself and with others.
std::vector<std::pair<std::string, Change>> changes() {
  using plan::Accumulation;
  using plan::Sharding;
  const auto sharded = [](Sharding sharding, Accumulation accumulation) {
    return [=](config::Settings& settings) {
      settings.parallel.sharding = sharding;
      settings.parallel.accumulation = accumulation;
    };
  };
  return {
      {"full", sharded(Sharding::full, Accumulation::automatic)},
      {"none", sharded(Sharding::none, Accumulation::automatic)},
      {"optimizer, reduced each", sharded(Sharding::optimizer, Accumulation::reduce_each)},
      {"bf16",
       [](config::Settings& settings) {
         settings.parallel.reduce = DType::bf16;
         settings.runtime.streams = on_threads;
       }},
      {"fp16", [](config::Settings& settings) { settings.parallel.reduce = DType::fp16; }},
      {"grain",
       [](config::Settings& settings) {
         settings.training.sum_grain = 2;
         settings.runtime.streams = on_threads;
         settings.parallel.in_flight_reductions = 2;
       }},
      {"all on the host, with a grain",
       [](config::Settings& settings) {
         settings.training.sum_grain = 1;
         settings.parallel.offload = plan::Offload::all;
       }},
      {"levels",
       [](config::Settings& settings) {
         settings.ranks_per_node = 2;
         settings.parallel.hierarchical.kind = plan::Hierarchical::always;
         settings.parallel.reduce = DType::bf16;
       }},
      {"replicas, optimistic",
       [](config::Settings& settings) {
         settings.shard_group = 2;
         settings.parallel.shard_optimizer_over = plan::OptimizerGroup::world;
         settings.parallel.updates = plan::Updates::optimistic;
       }},
  };
}

TEST(LibrarySums, AreCloseToOrderedOnesWithinTheirPlan) {
  const int ranks = world_ranks();
  int differ = 0;
  for (const auto& [name, change] : changes()) {
    SCOPED_TRACE(name);
    config::Settings settings = name == "none" ? small_gpt2(8) : small_llama(8);
    settings.training.steps = 5;
    change(settings);
    if (settings.shard_group > ranks || (settings.ranks_per_node > 0 && ranks < 4)) continue;
    const History ordered = train_history(settings, MPI_COMM_WORLD);
    settings.parallel.summation = plan::Summation::library;
    const History run = train_history(settings, MPI_COMM_WORLD);
    const double close = settings.parallel.reduce == DType::fp32 ? 1e-4 : 1e-2;
    ASSERT_EQ(run.losses.size(), 5u);
    ASSERT_EQ(ordered.losses.size(), 5u);
    EXPECT_EQ(run.plan_hash == ordered.plan_hash, ranks == 1);
    for (std::size_t step = 0; step < run.losses.size(); ++step) {
      EXPECT_NEAR(run.losses[step], ordered.losses[step], close * ordered.losses[step]);
      EXPECT_NEAR(run.norms[step], ordered.norms[step], 10 * close * ordered.norms[step]);
    }
    if (ranks == 1) {
      EXPECT_EQ(run.digests, ordered.digests);
    }
    differ += run.digests != ordered.digests ? 1 : 0;
  }
  // Two floats have one sum in any order; more, and 16-bit sums, have not.
  if (ranks > 1) {
    EXPECT_GT(differ, 1);
  }
}

TEST(LibrarySums, OfPiecesExpertsAndStages) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "on several ranks";
  config::Settings base = small_llama(8);
  base.training.steps = 3;
  base.model.layers = 4;
  config::Settings tensor = base;
  tensor.tensor = 2;
  tensor.tensor_grain = 2;
  config::Settings stages = base;
  stages.pipeline = 2;
  config::Settings experts = base;
  experts.model.experts = {
      4, 2, 0, 24, math::RouterScore::softmax, true, 1.0, model::RouterBalance::loss, 0.01};
  experts.expert = 2;
  for (config::Settings settings : {tensor, stages, experts}) {
    const History ordered = train_history(settings, MPI_COMM_WORLD);
    settings.parallel.summation = plan::Summation::library;
    const History run = train_history(settings, MPI_COMM_WORLD);
    ASSERT_EQ(run.losses.size(), 3u);
    // With two ranks tensor ranks and stages leave nothing to sum.
    if (ranks > 2) {
      EXPECT_NE(run.plan_hash, ordered.plan_hash);
    }
    for (std::size_t step = 0; step < run.losses.size(); ++step)
      EXPECT_NEAR(run.losses[step], ordered.losses[step], 1e-4 * ordered.losses[step]);
  }
}

/// Returns why transport_for() refuses a choice.
std::string refusal(config::TransportChoice choice, const train::TransportFacts& facts) {
  return ostrakon::testing::error_of([&] { train::transport_for(choice, facts); });
}

TEST(Transport, OfRanksThatShareADeviceIsNcclWhereItTakesThem) {
  using config::TransportChoice;
  train::TransportFacts facts;
  facts.has_device = facts.has_nccl = true;
  facts.shared = "ranks 0 and 1 share device 00:1 of host n1";
  EXPECT_HAS(refusal(TransportChoice::nccl, facts), "NCCL_MULTI_RANK_GPU_ENABLE=1");
  facts.nccl_shares = true;
  EXPECT_EQ(train::transport_for(TransportChoice::nccl, facts), comm::TransportKind::nccl);
  facts.stages = 2;
  EXPECT_HAS(refusal(TransportChoice::nccl, facts), "parallel.pipeline = 2");
  facts.stages = 1;
  // It is to be asked for.
  EXPECT_EQ(train::transport_for(TransportChoice::automatic, facts),
            comm::TransportKind::mpi_staged);
}

// MPI adds no 16-bit floats by itself, and a function of ours can't read device memory.
TEST(LibrarySums, OfSixteenBitsAreNotLeftToMpiOnDeviceMemory) {
  using config::TransportChoice;
  train::TransportFacts facts;
  facts.has_device = facts.mpi_is_aware = true;
  EXPECT_EQ(train::transport_for(TransportChoice::automatic, facts),
            comm::TransportKind::mpi_direct);
  facts.adds = DType::fp32;
  EXPECT_EQ(train::transport_for(TransportChoice::automatic, facts),
            comm::TransportKind::mpi_direct);
  facts.adds = DType::bf16;
  EXPECT_EQ(train::transport_for(TransportChoice::automatic, facts),
            comm::TransportKind::mpi_staged);
  EXPECT_EQ(refusal(TransportChoice::mpi_direct, facts),
            "runtime.transport = mpi_direct with parallel.reduction = library and "
            "precision.reduce = bf16: MPI adds no 16-bit floats in device memory; expected auto, "
            "nccl or mpi_staged, or precision.reduce = fp32");
}

}  // namespace
