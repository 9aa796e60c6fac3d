// SPDX-License-Identifier: Apache-2.0
// Ranks of a node that read each other's memory: the bits of one rank, within the plan, which has
// no staging then; and where they can't, all ranks know it before they plan.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostrakon/trainer/resolve.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/no_files.hpp"
#include "support/scratch_folder.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;
using plan::NodeWindows;

using Change = std::function<void(config::Settings&)>;

std::vector<std::pair<std::string, Change>> changes() {
  return {
      {"full", [](config::Settings&) {}},
      {"threads", [](config::Settings& settings) { settings.runtime.streams = on_threads; }},
      {"none",
       [](config::Settings& settings) { settings.parallel.sharding = plan::Sharding::none; }},
      {"replicas",
       [](config::Settings& settings) {
         settings.shard_group = 2;
         settings.parallel.shard_optimizer_over = plan::OptimizerGroup::world;
       }},
      {"kept parts, offloaded",
       [](config::Settings& settings) {
         settings.parallel.reshard_after_forward = {plan::Reshard::partly, 2};
         settings.parallel.offload = plan::Offload::all;
         settings.runtime.streams = on_threads;
       }},
      {"two levels",
       [](config::Settings& settings) {
         settings.ranks_per_node = 2;
         settings.parallel.hierarchical.kind = plan::Hierarchical::always;
       }},
      {"a grain",
       [](config::Settings& settings) {
         settings.training.sum_grain = 2;
         settings.parallel.accumulation = plan::Accumulation::reduce_each;
       }},
      {"context", [](config::Settings& settings) { settings.context = 2; }},
      {"tensor",
       [](config::Settings& settings) {
         settings.tensor = 2;
         settings.tensor_grain = 2;
       }},
      {"stages", [](config::Settings& settings) { settings.pipeline = 2; }},
      {"experts",
       [](config::Settings& settings) {
         settings.model.experts = {
             4, 2, 0, 24, math::RouterScore::softmax, true, 1.0, model::RouterBalance::loss, 0.01};
         settings.expert = 2;
       }},
      {"bf16",
       [](config::Settings& settings) {
         settings.precision.gather = DType::bf16;
         settings.parallel.reduce = DType::bf16;
       }},
  };
}

bool has_staging(const train::Trainer& trainer) {
  for (const plan::Buffer& buffer : trainer.program(plan::Purpose::train).plan.buffers)
    if (buffer.name.find(" staging") != std::string::npos) return true;
  return false;
}

TEST(Windows, HaveTheBitsOfMessages) {
  if (has_device) GTEST_SKIP() << "windows are of host memory";
  const int ranks = world_ranks();
  for (const auto& [name, change] : changes()) {
    SCOPED_TRACE(name);
    config::Settings settings = small_llama(8);
    settings.training.steps = 3;
    change(settings);
    const bool needs_ranks = settings.shard_group > 1 || settings.context > 1 ||
                             settings.tensor > 1 || settings.pipeline > 1 || settings.expert > 1 ||
                             settings.parallel.reshard_after_forward.ranks > 1;
    if ((needs_ranks && ranks < 2) || (settings.ranks_per_node > 0 && ranks < 4)) continue;
    settings.parallel.node_windows = NodeWindows::never;
    const History messages = train_history(settings, MPI_COMM_WORLD);
    settings.parallel.node_windows = NodeWindows::always;
    const History windows = train_history(settings, MPI_COMM_WORLD);
    expect_same_bits(windows, messages, name);
    // Two stages of one rank each read nothing of each other.
    const bool reads_others = ranks > settings.pipeline;
    EXPECT_EQ(windows.plan_hash == messages.plan_hash, !reads_others);
  }
}

TEST(Windows, TakeNoStaging) {
  if (has_device) GTEST_SKIP() << "windows are of host memory";
  const int ranks = world_ranks();
  config::Settings settings = small_gpt2(8);
  const SmallRun found(settings);
  EXPECT_EQ(found.trainer.policy().node_windows, NodeWindows::always);
  EXPECT_EQ(found.trainer.why_no_windows(), "");
  EXPECT_FALSE(has_staging(found.trainer));
  settings.parallel.node_windows = NodeWindows::never;
  const SmallRun without(settings);
  EXPECT_EQ(has_staging(without.trainer), ranks > 1);
  if (ranks > 1) {
    EXPECT_LT(found.trainer.planned_peak_bytes(), without.trainer.planned_peak_bytes());
  }
  // Across nodes there is one for what a node's ranks have summed.
  if (ranks < 4) return;
  settings.parallel.node_windows = NodeWindows::automatic;
  settings.ranks_per_node = 2;
  settings.parallel.hierarchical.kind = plan::Hierarchical::always;
  const SmallRun levels(settings);
  const plan::StepPlan& plan = levels.trainer.program(plan::Purpose::train).plan;
  EXPECT_EQ(plan.grid.window, 2);
  EXPECT_TRUE(has_staging(levels.trainer));
  for (const plan::Action& action : plan.actions)
    if (action.kind == plan::Kind::reduce_scatter) {
      EXPECT_EQ(action.buffer(plan::Role::staging) < 0, action.span.stride == 1);
    }
}

TEST(Windows, AreLeftToMessagesWhereOneRankCantShare) {
  if (has_device) GTEST_SKIP() << "windows are of host memory";
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "nobody to share with";
  config::Settings settings = small_gpt2(8);
  settings.training.steps = 2;
  settings.parallel.node_windows = NodeWindows::never;
  const History expected = train_history(settings, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::unique_ptr<NoFiles> limited;
  if (rank == ranks - 1) limited = std::make_unique<NoFiles>();
  const std::string why = "memory that ranks share can't be made: File too large";
  settings.parallel.node_windows = NodeWindows::automatic;
  {
    const SmallRun run(settings);
    EXPECT_EQ(run.trainer.policy().node_windows, NodeWindows::never);
    EXPECT_HAS(run.trainer.why_no_windows(), why);
    EXPECT_TRUE(has_staging(run.trainer));
  }
  expect_same_bits(train_history(settings, MPI_COMM_WORLD), expected, "by messages");
  settings.parallel.node_windows = NodeWindows::always;
  const std::string refused = refusal(settings);
  EXPECT_EQ(refused.find("parallel.node_windows = always: "), 0U) << refused;
  EXPECT_HAS(refused, why);
  EXPECT_HAS(refused, "; expected auto or never");
}

TEST(Windows, ArePlannedAsTheyAreFound) {
  EXPECT_EQ(train::expected_windows(NodeWindows::automatic, false), NodeWindows::always);
  EXPECT_EQ(train::expected_windows(NodeWindows::automatic, true), NodeWindows::never);
  for (const bool on_devices : {false, true}) {
    EXPECT_EQ(train::expected_windows(NodeWindows::never, on_devices), NodeWindows::never);
    EXPECT_EQ(train::expected_windows(NodeWindows::always, on_devices), NodeWindows::always);
  }
}

}  // namespace
