// SPDX-License-Identifier: Apache-2.0
// The device has loaded all kernels when a Trainer is allocated: no later run launches a new
// kernel.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/saving/checkpoints.hpp>
#include <string>
#include <vector>

#include "support/device_array.hpp"
#include "support/shared_folder.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

/// The settings of a run, and the number of ranks that they need.
struct Case {
  std::string name;
  config::Settings settings;
  int ranks = 1;  ///< world size must be a multiple
};

config::Settings on_streams(config::Settings settings) {
  settings.runtime.streams = config::StreamsChoice::automatic;
  settings.stability.skip_non_finite = true;
  return settings;
}

config::Settings with_experts(config::Settings settings) {
  settings.model.experts = {
      8, 2, 1, 24, math::RouterScore::sigmoid, true, 1.5, model::RouterBalance::bias, 0.02};
  return settings;
}

template <class Change>
Case changed(const std::string& name, config::Settings settings, const Change& change,
             int ranks = 1) {
  change(settings);
  return {name, settings, ranks};
}

std::vector<Case> cases() {
  using config::Settings;
  const Settings gpt2 = on_streams(small_gpt2(8)), llama = on_streams(small_llama(8)),
                 pieces = on_streams(in_pieces(small_llama(8)));
  std::vector<Case> all = {{"GPT-2", gpt2}, {"Llama", llama}, {"pieces", pieces}};
  all.push_back(changed("bf16, recomputed, Muon", llama, [](Settings& s) {
    s.precision.gather = DType::bf16;
    s.parallel.reduce = DType::bf16;
    s.parallel.activation_checkpointing.every = 1;
    s.optimizer.kind = optim::OptimizerKind::muon;
  }));
  all.push_back(changed("fp16, one replica each", gpt2, [](Settings& s) {
    s.precision.gather = DType::fp16;
    s.parallel.sharding = plan::Sharding::none;
    s.shard_group = 1;
  }));
  all.push_back(changed("state on the host", llama, [](Settings& s) {
    s.parallel.offload = plan::Offload::all;
    s.parallel.offload_activations = true;
  }));
  all.push_back(changed("optimistic updates, sums of the library", llama, [](Settings& s) {
    s.parallel.updates = plan::Updates::optimistic;
    s.parallel.summation = plan::Summation::library;
    s.optimizer.clip_norm = 1e-3;
  }));
  all.push_back(changed("Qwen3", llama, [](Settings& s) {
    s.model.query_key_norm = model::QueryKeyNorm::head;
    s.parallel.accumulation = plan::Accumulation::shard_each;
  }));
  all.push_back(changed("audits, leaves in another order", llama, [](Settings& s) {
    s.runtime.audit = 1;
    s.precision.gather = DType::bf16;
    s.parallel.leaf_order = plan::LeafOrder::shuffled;
  }));
  all.push_back({"experts", with_experts(llama)});
  for (const DType dtype : {DType::bf16, DType::fp16})
    all.push_back(changed(text("experts, ", name(dtype)), with_experts(llama),
                          [&](Settings& s) { s.precision.gather = dtype; }));
  all.push_back(changed(
      "experts, divided", with_experts(pieces), [](Settings& s) { s.expert = 2; }, 2));
  all.push_back(changed(
      "tensor", pieces, [](Settings& s) { s.tensor = 2; }, 2));
  all.push_back(changed(
      "context", pieces, [](Settings& s) { s.context = 2; }, 2));
  for (const plan::ScheduleKind schedule :
       {plan::ScheduleKind::one_forward_one_backward, plan::ScheduleKind::interleaved,
        plan::ScheduleKind::zero_bubble})
    all.push_back(changed(
        name(schedule), gpt2,
        [&](Settings& s) {
          s.model.layers = 6;
          s.model.tie_embeddings = false;
          s.pipeline = 2;
          s.parallel.schedule = schedule;
          if (schedule == plan::ScheduleKind::interleaved) s.parallel.chunks = 2;
        },
        2));
  all.push_back(changed(
      "stages, tensor", pieces,
      [](Settings& s) {
        s.pipeline = 2;
        s.tensor = 2;
        s.shard_group = 2;
      },
      4));
  all.push_back(changed(
      "stages, experts", with_experts(pieces),
      [](Settings& s) {
        s.pipeline = 2;
        s.expert = 2;
        s.tensor_grain = 1;
        s.shard_group = 2;
      },
      4));
  return all;
}

/// Runs steps of all kinds, and the work between them.
void expect_all_loaded(const config::Settings& settings, const std::string& folder) {
  fake_forget_kernels();
  SmallRun run(settings);
  train::Trainer& trainer = run.trainer;
  const long loaded = fake_loaded_kernels();
  EXPECT_GT(loaded, 20);
  const auto expect_none_more = [&](const char* after) {
    EXPECT_EQ(fake_loaded_kernels(), loaded) << after;
  };
  run.step(1);
  expect_none_more("a step");
  trainer.inject_nonfinite(trainer.model().units() - 1, 0);
  run.step(2);
  expect_none_more("a step that is skipped");
  run.step(3);
  trainer.evaluate(*run.validation, 1);
  expect_none_more("validation");
  trainer.state_digest();
  expect_none_more("a digest");
  train::Checkpoints checkpoints({folder}, run.mesh, trainer, *run.training);
  checkpoints.save();
  checkpoints.finish();
  expect_none_more("a checkpoint");
  trainer.visit_parameters([](int, View<const float*>, View<const float*>) {});
  expect_none_more("an export");
  EXPECT_EQ(checkpoints.resume(), 3);
  run.step(4);
  expect_none_more("a step after a restart");
}

TEST(WarmUp, LoadsAllThatARunLaunches) {
  fake_load_seconds(1e-4);
  for (const Case& one : cases()) {
    if (world_ranks() % one.ranks != 0) continue;
    SCOPED_TRACE(one.name);
    const ostrakon::testing::SharedFolder folder;
    expect_all_loaded(one.settings, folder.file("checkpoints"));
  }
}

TEST(WarmUp, LoadsWhatWeightsNeed) {
  config::Settings settings = on_streams(small_gpt2(8));
  settings.precision.gather = DType::bf16;
  mesh::Mesh mesh(MPI_COMM_WORLD);
  train::Trainer trainer = train::make_trainer(settings, mesh);
  fake_forget_kernels();
  trainer.allocate();
  const long loaded = fake_loaded_kernels();
  trainer.initialize();
  EXPECT_EQ(fake_loaded_kernels(), loaded);
}

/// Runs of rows that experts multiply: any number of them launches the kernels for one row, which a
/// warm-up has. On a device all rows are in one product, here perhaps in several of one shape.
template <class T>
void expect_rows_load_no_more(DType dtype) {
  const std::int64_t rows = 150, k = 24, n = 40;
  const test::DeviceArray<T> a(rows * k), b(n * k), c(rows * n),
      workspace(math::gemm_by_row_workspace<T>(k, n));
  const auto multiply = [&](std::int64_t begin, std::int64_t end) {
    math::gemm_by_row<T>(
        Exec(), math::Transpose::yes, View<const T**>(a.matrix(rows, k).row_range(begin, end)),
        View<const T**>(b.matrix(n, k)), c.matrix(rows, n).row_range(begin, end), workspace);
  };
  fake_forget_kernels();
  multiply(0, 1);
  const long loaded = fake_loaded_kernels();
  EXPECT_GE(loaded, 1);
  for (const std::int64_t end : {0, 7, 64, 150}) multiply(0, end);
  multiply(7, 130);
  EXPECT_EQ(fake_loaded_kernels(), loaded) << name(dtype);
}

TEST(WarmUp, ARowLoadsWhatManyLaunch) {
  expect_rows_load_no_more<float>(DType::fp32);
  expect_rows_load_no_more<bf16>(DType::bf16);
  expect_rows_load_no_more<fp16>(DType::fp16);
}

/// A library may choose other kernels for other strides.
TEST(WarmUp, ProductsWithOtherStridesAreLoadedByThemselves) {
  const std::int64_t m = 4, n = 6, k = 8, wide = 16;
  const test::DeviceArray<float> a(m * wide), b(k * wide), c(m * wide);
  const auto loads = [&](std::int64_t of_a, std::int64_t of_b, std::int64_t of_c) {
    const long before = fake_loaded_kernels();
    math::gemm<float>(Exec(), math::Transpose::no, math::Transpose::no, 1,
                      View<const float**>(a.matrix(m, of_a).column_range(0, k)),
                      View<const float**>(b.matrix(k, of_b).column_range(0, n)), 0,
                      c.matrix(m, of_c).column_range(0, n));
    return fake_loaded_kernels() - before;
  };
  fake_forget_kernels();
  EXPECT_EQ(loads(k, n, n), 1);
  EXPECT_EQ(loads(k, n, n), 0);
  EXPECT_EQ(loads(wide, n, n), 1);
  EXPECT_EQ(loads(k, wide, n), 1);
  EXPECT_EQ(loads(k, n, wide), 1);
  EXPECT_EQ(loads(wide, wide, wide), 1);
  EXPECT_EQ(loads(k, n, wide), 0);
}

/// The parameter is the index of a case among those with stages.
class WithoutWarmUp : public ::testing::TestWithParam<int> {};

/// Deadlocks: a stage loads kernels of its backward while a receive waits for another stage, whose
/// message can't be sent meanwhile. A separate CTest test runs each case.
TEST_P(WithoutWarmUp, DISABLED_StagesWaitForEver) {
  std::vector<Case> all = cases();
  all.erase(std::remove_if(all.begin(), all.end(),
                           [](const Case& one) { return one.settings.pipeline != 2; }),
            all.end());
  config::Settings settings = all.at(static_cast<std::size_t>(GetParam())).settings;
  settings.runtime.collective_timeout = 2.0;
  fake_load_seconds(5e-3);  // by then the receive waits
  SmallRun run(settings);
  // The first message is sent later than that.
  const auto& actions = run.trainer.program(plan::Purpose::train).plan.actions;
  const auto sends = std::find_if(actions.begin(), actions.end(), [](const plan::Action& action) {
    return action.kind == plan::Kind::send;
  });
  run.trainer.perturb({1, 0.7, static_cast<int>(sends - actions.begin())});
  fake_forget_kernels();
  run.step(1);
  ADD_FAILURE() << "the step has gone on";
}

INSTANTIATE_TEST_SUITE_P(All, WithoutWarmUp, ::testing::Range(0, 5));

}  // namespace
