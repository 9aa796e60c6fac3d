// SPDX-License-Identifier: Apache-2.0
// A step submits as many kernels as were counted before it.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <ostrakon/device/memory.hpp>
#include <ostrakon/trainer/handlers/submissions.hpp>
#include <string>

#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

struct Calls {
  long kernels, copies, waits;
};
Calls calls() {
  return {fake_kernels() + fake_calls("cudaMemsetAsync"), fake_calls("cudaMemcpyAsync"),
          fake_calls("cudaStreamWaitEvent")};
}

/// How many kernels of a step have names, by the actions that launch them.
std::int64_t named_kernels(const train::Submissions& submissions) {
  std::int64_t named = 0;
  for (const int like : submissions.like)
    if (like >= 0)
      for (const char* const name : submissions.distinct.at(like).names)
        named += name != std::string("unnamed") ? 1 : 0;
  return named;
}

void expect_counted(const config::Settings& settings) {
  SmallRun run(settings);
  const std::optional<train::Submissions> planned = run.trainer.submissions();
  ASSERT_TRUE(planned);
  run.step(1);
  const Calls before = calls();
  run.step(2);
  const Calls after = calls();
  EXPECT_GT(planned->kernels, 50);
  EXPECT_EQ(named_kernels(*planned), planned->kernels);
  EXPECT_EQ(after.kernels - before.kernels, planned->kernels);
  EXPECT_EQ(after.waits - before.waits, planned->waits);
  EXPECT_EQ(after.copies - before.copies, planned->copies);
}

config::Settings on_streams(config::Settings settings) {
  settings.runtime.streams = config::StreamsChoice::automatic;
  return settings;
}

TEST(Submissions, AreThoseOfAStep) {
  for (config::Settings settings : {on_streams(small_llama(4)), on_streams(small_gpt2(4))}) {
    expect_counted(settings);
    settings.parallel.summation = plan::Summation::library;
    expect_counted(settings);
    settings.precision.gather = DType::bf16;
    expect_counted(settings);
  }
}

/// How often a step of one rank launches a kernel.
std::int64_t launches(const config::Settings& settings, const std::string& kernel) {
  SmallRun run(settings, MPI_COMM_SELF);
  const train::Submissions submitted = *run.trainer.submissions();
  std::int64_t count = 0;
  for (const int like : submitted.like)
    if (like >= 0) {
      const std::vector<const char*>& names = submitted.distinct.at(like).names;
      count += std::count(names.begin(), names.end(), kernel);
    }
  return count;
}

/// Of four micro-batches, blocks and head add the gradients of the second and the fourth to those
/// before, in the kernels that make them, which leaves one addition; the embedding has three. On
/// this device, whose kernels of norms are the host's, each norm adds by a kernel of its own.
TEST(Submissions, HaveNoAdditionsThatProductsMake) {
  config::Settings settings = on_streams(small_llama(4));
  settings.parallel.sharding = plan::Sharding::none;
  constexpr int of_blocks = 2 * 2, norms = of_blocks + 1, units = 3;  // that add
  EXPECT_EQ(launches(settings, "add_to"), units * 1 + norms * 2 + 3);
  settings.training.sum_grain = 1;
  EXPECT_EQ(launches(settings, "add_to"), norms * 3 + 3);
  settings.parallel.offload = plan::Offload::optimizer;
  EXPECT_EQ(launches(settings, "add_to"), 0) << "sums wait on the host";
}

TEST(Submissions, AreThoseOfAStepWithStateOnTheHost) {
  for (const plan::Offload offload :
       {plan::Offload::optimizer, plan::Offload::parameters, plan::Offload::all}) {
    config::Settings settings = on_streams(small_llama(4));
    settings.parallel.offload = offload;
    settings.parallel.offload_activations = offload == plan::Offload::all;
    expect_counted(settings);
  }
}

TEST(DeviceMemory, IsToldBesidesTheArena) {
  config::Settings settings = on_streams(small_llama(4));
  SmallRun run(settings);
  const train::DeviceMemoryUse use = run.trainer.device_memory();
  // Each communicator of the fake NCCL that is not split from another takes 1 MiB.
  EXPECT_EQ(use.communication % (1 << 20), 0);
  EXPECT_EQ(use.communication > 0, world_ranks() > 1);
  EXPECT_EQ(use.computing, 0);  // products are the host's
  EXPECT_NE(use.describe().find("communicators"), std::string::npos);
}

TEST(DeviceMemory, OfEachRankIsThatOfItsOwnDevice) {
  mesh::Mesh mesh(MPI_COMM_WORLD);
  train::Trainer trainer = train::make_trainer(on_streams(small_llama(4)), mesh);
  // Leaves space for one and a half arenas.
  const auto free = static_cast<std::size_t>(device::memory_info().free);
  const std::size_t taken = free - static_cast<std::size_t>(trainer.planned_peak_bytes()) * 3 / 2;
  fake_take_memory(taken);
  EXPECT_NO_THROW(trainer.require_memory());
  fake_take_memory(std::size_t{0} - taken);  // gives it back
}

TEST(Submissions, OfMixturesAreNotKnownBefore) {
  config::Settings settings = on_streams(small_llama(4));
  settings.model.experts.count = 4;
  settings.model.experts.per_token = 2;
  settings.model.experts.width = 32;
  SmallRun run(settings);
  EXPECT_FALSE(run.trainer.submissions());
}

}  // namespace
