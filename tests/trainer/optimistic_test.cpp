// SPDX-License-Identifier: Apache-2.0
// Updates that are made before the norm is known: the bits of those made after it, whether the
// gradient would have been clipped, the step skipped, or the run ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/optim/adamw.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <ostrakon/saving/saver.hpp>
#include <string>

#include "support/shared_folder.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

constexpr double never = 1e6, always = 1e-3;  // norms to clip at

config::Settings small(bool is_llama, std::int64_t steps) {
  config::Settings settings = in_pieces(is_llama ? small_llama(8) : small_gpt2(8));
  settings.model.layers = 2;
  settings.tensor_grain = 1;
  settings.training.steps = steps;
  settings.schedule.warmup_steps = 1;
  settings.optimizer.learning_rate = 1e-2;
  return settings;
}

config::Settings optimistic(config::Settings settings) {
  settings.parallel.updates = plan::Updates::optimistic;
  return settings;
}

/// Steps of a run, and what became of their updates.
struct Steps {
  std::vector<double> losses, norms, scales;
  std::vector<std::uint64_t> digests;
  std::vector<std::string> skipped;
  int repeated = 0;
};

void take(SmallRun& run, std::int64_t first, std::int64_t last, Steps& steps) {
  for (std::int64_t step = first; step <= last; ++step) {
    const train::StepResult result = run.step(step);
    steps.losses.push_back(result.loss);
    steps.norms.push_back(result.grad_norm);
    steps.scales.push_back(result.loss_scale);
    steps.digests.push_back(run.trainer.state_digest());
    steps.skipped.push_back(result.skipped);
    steps.repeated += result.update_repeated ? 1 : 0;
  }
}

Steps take_all(const config::Settings& settings, MPI_Comm comm = MPI_COMM_WORLD,
               runtime::Perturbation perturbation = {}) {
  SmallRun run(settings, comm);
  run.trainer.perturb(perturbation);
  Steps steps;
  take(run, 1, settings.training.steps, steps);
  const runtime::MemoryCount after = runtime::memory_count();
  EXPECT_EQ(after.bytes - run.before.bytes, run.trainer.planned_peak_bytes());
  EXPECT_EQ(after.allocations - run.before.allocations, 2);
  return steps;
}

/// On one rank with nothing sharded, updated once the norm is known.
Steps careful_on_one_rank(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  Steps steps;
  if (const FirstRanks one(1); one.has_me()) steps = take_all(settings, one.comm());
  from_rank_0(steps.losses);
  from_rank_0(steps.norms);
  from_rank_0(steps.scales);
  from_rank_0(steps.digests);
  steps.skipped.resize(steps.losses.size());  // of which none is
  return steps;
}

void expect_same(const Steps& run, const Steps& reference, const std::string& what) {
  ASSERT_EQ(run.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < run.losses.size(); ++i) {
    EXPECT_EQ(run.losses[i], reference.losses[i]) << what << ", step " << i + 1;
    // Not a number where the gradient is not finite.
    if (std::isfinite(reference.norms[i])) {
      EXPECT_EQ(run.norms[i], reference.norms[i]) << what << ", step " << i + 1;
    }
    EXPECT_EQ(run.scales[i], reference.scales[i]) << what << ", step " << i + 1;
    EXPECT_EQ(run.digests[i], reference.digests[i]) << what << ", step " << i + 1;
    EXPECT_EQ(run.skipped[i], reference.skipped[i]) << what << ", step " << i + 1;
  }
}

/// Steps in which gradients are clipped: counted from the norms.
int clipped(const Steps& steps, double clip_norm) {
  return static_cast<int>(std::count_if(steps.norms.begin(), steps.norms.end(), [&](double norm) {
    return optim::clip_coefficient(norm, clip_norm) < 1.0;
  }));
}

/// A norm that some of the steps of a run exceed that clips at it.
double sometimes(config::Settings settings) {
  settings.optimizer.clip_norm = 0.0;
  std::vector<double> norms = careful_on_one_rank(settings).norms;
  std::sort(norms.begin(), norms.end());
  return norms[norms.size() / 2];
}

TEST(OptimisticUpdates, HaveTheBitsOfCarefulOnesHoweverOftenTheyAreRepeated) {
  for (const bool is_llama : {false, true}) {
    config::Settings settings = small(is_llama, 10);
    for (const double clip_norm : {never, sometimes(settings), always, 0.0}) {
      settings.optimizer.clip_norm = clip_norm;
      const Steps reference = careful_on_one_rank(settings);
      const int expected = clipped(reference, clip_norm);
      if (clip_norm == never || clip_norm == 0.0) {
        EXPECT_EQ(expected, 0);
      } else if (clip_norm == always) {
        EXPECT_EQ(expected, 10);
      } else {
        EXPECT_GT(expected, 0);
        EXPECT_LT(expected, 10);
      }
      EXPECT_EQ(reference.repeated, 0);
      const std::string what = text(is_llama ? "Llama" : "GPT-2", ", clipped at ", clip_norm);
      const Steps run = take_all(optimistic(settings));
      expect_same(run, reference, what);
      EXPECT_EQ(run.repeated, expected) << what;
    }
  }
}

TEST(OptimisticUpdates, HaveTheBitsOfCarefulOnesWithAllElse) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "on several ranks";
  const std::string factors =
      "llama 2, clip 3, stages 2, schedule 2, group 2, sharding 4, over 2, "
      "accumulation 3, optimizer 4, moments 2, precision 2, prefetch 2, reductions 3, "
      "streams 2, frozen 2";
  const auto is_valid = [&](const NamedRow& row) {
    return (row["stages"] == 0 || ranks > 1) && (row["schedule"] == 0 || row["stages"] == 1) &&
           (row["moments"] == 0 || row["optimizer"] != 3);
  };
  constexpr optim::OptimizerKind kinds[] = {optim::OptimizerKind::adamw, optim::OptimizerKind::sgd,
                                            optim::OptimizerKind::lion, optim::OptimizerKind::muon};
  for (const NamedRow& row : covering_rows(factors, is_valid)) {
    config::Settings settings = small(row["llama"] == 1, 4);
    settings.optimizer.kind = kinds[row["optimizer"]];
    settings.parallel.moments.dtype = row["moments"] == 1 ? DType::bf16 : DType::fp32;
    settings.precision.gather = row["precision"] == 1 ? DType::bf16 : DType::fp32;
    if (row["frozen"] == 1) settings.optimizer.parameters = {{"embedding.*", true, {}, {}}};
    settings.optimizer.clip_norm = row["clip"] == 0   ? never
                                   : row["clip"] == 1 ? sometimes(settings)
                                                      : always;
    const Steps reference = careful_on_one_rank(settings);
    config::Settings run = optimistic(settings);
    run.pipeline =
        row["stages"] == 1 ? std::min(ranks, 4) / (ranks == 4 && row["group"] == 0 ? 2 : 1) : 1;
    if (row["schedule"] == 1) run.parallel.schedule = plan::ScheduleKind::zero_bubble;
    if (row["group"] == 1) run.shard_group = 1;
    apply_policy(row, run);
    const std::string what = row.text();
    const Steps steps = take_all(run, MPI_COMM_WORLD, {7, 1e-4});
    if (row["precision"] == 1 && row["stages"] == 1) {
      // Its sums over rows are the library's.
      EXPECT_NEAR(steps.losses.back(), reference.losses.back(), 0.05) << what;
      run.parallel.updates = plan::Updates::after_clip;
      expect_same(steps, take_all(run), what);
    } else {
      expect_same(steps, reference, what);
      const bool updates_some = row["optimizer"] < 3 || row["frozen"] == 0;
      if (updates_some) {
        EXPECT_EQ(steps.repeated, clipped(reference, settings.optimizer.clip_norm)) << what;
      }
    }
  }
}

/// With every way in which a step is skipped: nothing has changed then.
TEST(OptimisticUpdates, OfStepsThatAreSkippedAreUndone) {
  const int ranks = world_ranks();
  for (const int stages : {1, 2}) {
    if (stages > ranks) continue;
    const auto compare = [&](config::Settings settings, const char* what) {
      settings.pipeline = stages;
      const Steps reference = take_all(settings);
      EXPECT_GT(std::count_if(reference.skipped.begin(), reference.skipped.end(),
                              [](const std::string& why) { return !why.empty(); }),
                0)
          << what;
      for (const auto streams : {config::StreamsChoice::in_plan_order, on_threads}) {
        settings.runtime.streams = streams;
        expect_same(take_all(optimistic(settings)), reference, what);
      }
    };
    config::Settings fp16 = small(true, 6);
    fp16.precision.gather = DType::fp16;
    fp16.precision.loss_scale.initial = fp16.precision.loss_scale.largest = 0x1p40;
    compare(fp16, "fp16");
    config::Settings outliers = small(true, 12);
    outliers.stability.outlier_threshold = 0.01;
    outliers.stability.outlier_window = 4;
    compare(outliers, "outliers");
  }
}

/// Nothing has changed where the run ends, and the step may be taken once more.
TEST(OptimisticUpdates, OfStepsThatFailAreUndone) {
  const int ranks = world_ranks();
  for (const int stages : {1, ranks})
    for (const bool by_data : {false, true})
      for (const bool skips : {false, true})
        for (const auto streams : {config::StreamsChoice::in_plan_order, on_threads}) {
          config::Settings settings = small(false, 3);
          settings.model.layers = 6;  // the first stage has one of them
          settings.pipeline = stages;
          settings.runtime.streams = streams;
          settings.stability.skip_non_finite = skips;
          settings.optimizer.clip_norm = always;
          std::vector<std::string> messages;
          std::vector<std::uint64_t> digests;
          for (const config::Settings& one : {settings, optimistic(settings)}) {
            SmallRun run(one);
            Unreadable samples(*run.training);
            run.trainer.step(samples, 1);
            const std::uint64_t before = run.trainer.state_digest();
            samples.fails = by_data;
            if (!by_data) run.trainer.inject_nonfinite(1, 0);
            messages.emplace_back();
            bool ended = false;
            try {
              messages.back() = run.trainer.step(samples, 2).skipped;
            } catch (const CollectiveError& error) {
              messages.back() = error.what();
              ended = true;
            }
            EXPECT_EQ(ended, by_data || !skips);
            EXPECT_TRUE(run.trainer.is_intact());
            EXPECT_EQ(run.trainer.state_digest(), before);
            samples.fails = false;
            run.trainer.step(samples, ended ? 2 : 3);
            digests.push_back(run.trainer.state_digest());
          }
          EXPECT_HAS(messages[0], by_data ? "the disk is gone" : "the gradient of block.0");
          EXPECT_EQ(messages[1], messages[0]);
          EXPECT_EQ(digests[1], digests[0]);
        }
}

/// A step runs once more to name a gradient that is not finite: also then data may be gone.
TEST(OptimisticUpdates, AFailureWhileAGradientIsLookedForEndsTheStep) {
  for (const bool skips : {false, true})
    for (const bool is_optimistic : {false, true}) {
      config::Settings settings = small(false, 3);
      settings.stability.skip_non_finite = skips;
      SmallRun run(is_optimistic ? optimistic(settings) : settings);
      Unreadable samples(*run.training);
      run.trainer.step(samples, 1);
      samples.most_reads = 2 * samples.reads;
      run.trainer.inject_nonfinite(1, 0);
      std::string message;
      try {
        run.trainer.step(samples, 2);
      } catch (const CollectiveError& error) {
        message = error.what();
      }
      EXPECT_HAS(message, "the disk is gone");
    }
}

TEST(OptimisticUpdates, MayBeResumedWithAndWithout) {
  for (const bool saved_optimistically : {false, true}) {
    config::Settings settings = small(true, 6);
    settings.optimizer.clip_norm = sometimes(settings);
    const Steps whole = careful_on_one_rank(settings);
    const testing::SharedFolder folder;
    settings.output.directory = folder.path();
    settings.checkpoint.every = 1;
    std::string path;
    {
      const config::Settings one = saved_optimistically ? optimistic(settings) : settings;
      SmallRun run(one);
      Steps ignored;
      take(run, 1, 3, ignored);
      train::Saver saver(one, run.mesh, run.trainer);
      saver.begin(run.trainer.progress(), "synthetic", true);
      take(run, 4, 4, ignored);
      const auto saved = saver.finish();
      EXPECT_TRUE(saved.has_value());
      path = run.mesh.world().broadcast(saved ? saved->path : "", 0);
    }
    const config::Settings other = saved_optimistically ? settings : optimistic(settings);
    SmallRun run(other);
    checkpoint::CheckpointReader reader(path);
    run.trainer.restore(reader);
    Steps rest;
    take(run, 4, 6, rest);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rest.losses[i], whole.losses[3 + i]);
      EXPECT_EQ(rest.digests[i], whole.digests[3 + i]);
    }
  }
}

/// Neither for the step's sums, nor for the gradients of other units.
TEST(OptimisticUpdates, WaitForTheGradientOfTheirUnitAlone) {
  const int ranks = world_ranks();
  for (const int stages : {1, ranks})
    for (const auto sharding : all_shardings) {
      config::Settings settings = optimistic(small(true, 1));
      settings.pipeline = stages;
      settings.parallel.sharding = sharding;
      settings.parallel.forward_prefetch.depth = 0;
      mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group, stages);
      const train::Trainer trainer = train::make_trainer(settings, mesh);
      const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
      const plan::HappensBefore order(plan);
      const auto all = [&](plan::Kind kind) {
        std::vector<int> found;
        for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
          if (plan.actions[a].kind == kind) found.push_back(a);
        return found;
      };
      const std::vector<int> updates = all(plan::Kind::optimize),
                             verified = all(plan::Kind::verify);
      const int sums = all(plan::Kind::reduce_sums).at(0), clip = all(plan::Kind::clip).at(0);
      const std::size_t units = plan.units.size();
      EXPECT_EQ(updates.size(), units);
      EXPECT_EQ(verified.size(), units);
      for (int update : updates) {
        EXPECT_FALSE(order.before(sums, update));
        EXPECT_FALSE(order.before(clip, update));
      }
      for (int check : verified) EXPECT_TRUE(order.before(clip, check));
      // The sums travel while the last unit is updated.
      EXPECT_FALSE(order.before(updates.back(), sums));
      // The last reduction overlaps with the updates of those before.
      const std::vector<int> reductions = all(plan::Kind::reduce_scatter);
      if (reductions.empty() || units < 2) continue;
      EXPECT_FALSE(order.before(reductions.back(), updates.front()));
    }
}

TEST(OptimisticUpdates, ArePricedAsCopiesOfWhatTheyReplace) {
  mesh::Mesh mesh(MPI_COMM_SELF, 0);
  for (const DType moments : {DType::fp32, DType::bf16}) {
    config::Settings settings = optimistic(small(true, 1));
    settings.parallel.moments.dtype = moments;
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
    std::int64_t kept = 0, elements = 0;
    for (const plan::Buffer& buffer : plan.buffers)
      if (buffer.name.size() > 9 && buffer.name.substr(buffer.name.size() - 9) == " replaced")
        kept += buffer.bytes;
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
      elements += plan.padded(plan.trained(u));
    EXPECT_EQ(kept, elements * (4 + 2 * bytes_of(moments)));
  }
}

TEST(OptimisticUpdates, AreRefusedWithStateInHostMemory) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  for (const auto offload :
       {plan::Offload::optimizer, plan::Offload::parameters, plan::Offload::all}) {
    config::Settings settings = optimistic(small(true, 1));
    settings.parallel.offload = offload;
    const std::string message =
        testing::error_of<CollectiveError>([&] { train::make_trainer(settings, mesh); });
    EXPECT_EQ(message,
              text("parallel.updates = optimistic with memory.offload = ", plan::name(offload),
                   ": expected memory.offload = none, or parallel.updates = careful"));
  }
}

}  // namespace
}  // namespace ostrakon::tests
