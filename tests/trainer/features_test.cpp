// SPDX-License-Identifier: Apache-2.0
// Mixed precision, activation checkpointing, offload, optimizers and steps that go wrong, each with
// the layouts and each other.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <string>
#include <tuple>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

History alone(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  return train_alone(settings);
}

config::Settings short_run(config::Settings settings, std::int64_t steps) {
  settings.training.steps = steps;
  settings.schedule.warmup_steps = 1;
  return settings;
}

constexpr model::Recompute recomputes[] = {
    {}, {true, false, false}, {false, true, false}, {false, false, true}, {true, true, true}};

TEST(Checkpointing, ChangesNoBit) {
  for (config::Settings settings : {short_run(small_gpt2(8), 3), short_run(small_llama(8), 3)}) {
    settings.model.layers = 3;
    const History reference = alone(settings);
    for (const NamedRow& row : covering_rows("every 3, recompute 5, sharding 4")) {
      settings.parallel.activation_checkpointing.every = row["every"];
      settings.recompute = recomputes[row["recompute"]];
      settings.parallel.sharding = all_shardings[row["sharding"]];
      const History run = train_history(settings, MPI_COMM_WORLD);
      EXPECT_EQ(run.losses, reference.losses);
      EXPECT_EQ(run.digests, reference.digests) << "every " << row["every"];
    }
  }
}

TEST(Checkpointing, LeavesUnitsInputsAndOneUnitsActivations) {
  config::Settings settings = short_run(small_llama(8), 1);
  settings.model.layers = 8;
  mesh::Mesh mesh(MPI_COMM_SELF, 0);
  const auto activations = [&](int every) {
    settings.parallel.activation_checkpointing.every = every;
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    const runtime::Program& program = trainer.program(plan::Purpose::train);
    std::int64_t most = 0;
    for (int a = 0; a < static_cast<int>(program.plan.actions.size()); ++a) {
      std::int64_t now = 0;
      for (const plan::Buffer& buffer : program.plan.buffers)
        if (buffer.category == plan::Category::activations && buffer.space == plan::Space::device &&
            buffer.first <= a && a <= buffer.last)
          now += buffer.bytes;
      most = std::max(most, now);
    }
    return most;
  };
  settings.parallel.activation_checkpointing.every = 0;
  const plan::ModelDescription model =
      train::describe(*train::make_decoder(settings), settings.optimizer);
  std::int64_t inputs = 2 * model.batch_bytes + model.gradient_bytes, largest = 0;
  for (const plan::UnitDescription& unit : model.units) {
    inputs += unit.output_bytes;
    largest = std::max(largest, unit.saved_bytes);
  }
  EXPECT_LE(activations(1), inputs + largest);
  EXPECT_GT(activations(0), inputs + 7 * largest);
  EXPECT_GT(activations(2), activations(1));
  EXPECT_LT(activations(2), activations(0));
}

config::Settings with_precision(config::Settings settings, DType gather, DType reduce) {
  settings.precision.gather = gather;
  settings.parallel.reduce = reduce;
  return settings;
}

// On one number of ranks 16-bit runs have the same bits with every strategy that reduces alike; and
// with gradients reduced in fp32, the same bits as one rank.
TEST(Precision, SixteenBitsHaveTheBitsOfOneRankWhereGradientsAreSentInFull) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for (config::Settings settings : {short_run(small_gpt2(8), 3), short_run(small_llama(8), 3)}) {
      settings = with_precision(settings, dtype, DType::fp32);
      const History reference = alone(settings);
      const std::vector<int> groups = groups_of_world();
      constexpr plan::Reshard::Kind reshards[] = {plan::Reshard::automatic, plan::Reshard::never,
                                                  plan::Reshard::partly};
      for (const NamedRow& row :
           covering_rows(text("sharding 4, over 2, group ", groups.size(), ", keeps 3"))) {
        apply_policy(row, settings);
        settings.shard_group = groups[row["group"]];
        settings.parallel.reshard_after_forward = {reshards[row["keeps"]], 2};
        settings.parallel.activation_checkpointing.every = settings.shard_group == 2 ? 1 : 0;
        const History run = train_history(settings, MPI_COMM_WORLD);
        const std::string what = text(name(dtype), ": ", row.text());
        EXPECT_EQ(run.losses, reference.losses) << what;
        EXPECT_EQ(run.digests, reference.digests) << what;
      }
    }
}

TEST(Precision, GradientsSentInSixteenBitsAreAlikeOnAllStrategies) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    config::Settings settings = with_precision(short_run(small_llama(8), 3), DType::bf16, dtype);
    settings.parallel.accumulation = plan::Accumulation::shard_each;
    History reference;
    for (const auto sharding : all_shardings)
      for (const auto reshard :
           {plan::Reshard::always, plan::Reshard::never, plan::Reshard::end_of_step}) {
        settings.parallel.sharding = sharding;
        settings.parallel.reshard_after_forward.kind = reshard;
        const History run = train_history(settings, MPI_COMM_WORLD);
        if (reference.losses.empty()) reference = run;
        EXPECT_EQ(run.losses, reference.losses);
        EXPECT_EQ(run.digests, reference.digests);
      }
  }
}

TEST(Precision, HalvesTheTrafficOfGathersAndReductions) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "needs others";
  const config::Settings settings = short_run(small_llama(8), 1);
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const auto sent = [&](DType gather, DType reduce) {
    const train::Trainer trainer =
        train::make_trainer(with_precision(settings, gather, reduce), mesh);
    return trainer.program(plan::Purpose::train).plan.bytes_sent();
  };
  const std::int64_t full = sent(DType::fp32, DType::fp32);
  EXPECT_EQ(2 * sent(DType::bf16, DType::bf16), full);
  EXPECT_LT(sent(DType::bf16, DType::fp32), full);
  EXPECT_EQ(sent(DType::bf16, DType::fp32) + sent(DType::fp32, DType::bf16),
            full + sent(DType::bf16, DType::bf16));
}

TEST(Precision, LearnsAlmostAsWellInSixteenBits) {
  for (config::Settings settings : {small_gpt2(8), small_llama(8)}) {
    settings.training.steps = 40;
    const History full = train_history(settings, MPI_COMM_WORLD);
    for (const DType gather : {DType::bf16, DType::fp16}) {
      const History half = train_history(with_precision(settings, gather, gather), MPI_COMM_WORLD);
      EXPECT_NEAR(half.validation_loss, full.validation_loss, 0.01 * full.validation_loss)
          << name(gather);
      EXPECT_NE(half.losses.back(), full.losses.back());
    }
  }
}

TEST(LossScale, ThatIsTooLargeRecovers) {
  config::Settings settings =
      with_precision(short_run(small_llama(8), 24), DType::fp16, DType::fp32);
  settings.precision.loss_scale.initial = settings.precision.loss_scale.largest = 16777216.0 * 64;
  SmallRun run(settings);
  int skipped = 0;
  double last = 0.0;
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    const std::uint64_t before = run.trainer.state_digest();
    const train::StepResult result = run.step(step);
    if (!result.skipped.empty()) {
      ++skipped;
      const auto scale = static_cast<std::int64_t>(result.loss_scale);
      EXPECT_EQ(result.skipped, "a gradient overflowed: the loss scale goes from " +
                                    std::to_string(scale) + " to " + std::to_string(scale / 2));
      EXPECT_EQ(run.trainer.state_digest(), before) << "a step that was left out";
    } else {
      EXPECT_NE(run.trainer.state_digest(), before);
      last = result.loss_scale;
    }
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 20);
  EXPECT_GT(last, 0.0);
  EXPECT_LT(last, settings.precision.loss_scale.initial);
}

TEST(Optimizers, HaveTheSameBitsOnEveryLayoutAndLearn) {
  for (const auto kind : {optim::OptimizerKind::adamw, optim::OptimizerKind::sgd,
                          optim::OptimizerKind::lion, optim::OptimizerKind::muon})
    for (const DType moments : {DType::fp32, DType::bf16}) {
      config::Settings settings = short_run(small_llama(8), 12);
      settings.optimizer.kind = kind;
      settings.parallel.moments.dtype = moments;
      if (kind == optim::OptimizerKind::sgd) settings.optimizer.learning_rate = 0.3;
      if (kind == optim::OptimizerKind::lion) settings.optimizer.learning_rate = 1e-3;
      EXPECT_LT(alone(settings).losses.back(), alone(short_run(settings, 1)).losses.front());
      settings = short_run(settings, 4);
      const History reference = alone(settings);
      int blocks = moments == DType::fp32 ? 0 : 1;
      for (const auto sharding : all_shardings) {
        settings.parallel.sharding = sharding;
        settings.model.blocks_per_unit = 1 + blocks++ % 2;
        const History run = train_history(settings, MPI_COMM_WORLD);
        EXPECT_EQ(run.digests, reference.digests) << static_cast<int>(kind) << " " << name(moments)
                                                  << " sharding " << static_cast<int>(sharding);
      }
    }
}

// ---- offload

constexpr plan::Offload all_offloads[] = {plan::Offload::none, plan::Offload::optimizer,
                                          plan::Offload::parameters, plan::Offload::all};

TEST(Offload, ChangesNoBitWithAnyStrategyInAnyOrder) {
  const std::vector<NamedRow> rows = covering_rows(
      "model 2, offload 4, sharding 4, accumulation 3, host_activations 2, clips 2, "
      "over 2, group 2, streams 2");
  const int ranks = world_ranks();
  std::map<std::tuple<int, int>, History> references;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const NamedRow& row = rows[r];
    config::Settings settings = short_run(row["model"] == 0 ? small_gpt2(8) : small_llama(8), 4);
    settings.model.layers = 3;
    // Without clipping, updates overlap with backward.
    settings.optimizer.clip_norm = row["clips"] == 0 ? 0.0 : 0.5;
    const auto of = std::make_tuple(row["model"], row["clips"]);
    if (references.count(of) == 0) references.emplace(of, alone(settings));
    const History& reference = references.at(of);
    apply_policy(row, settings);
    if (row["group"] == 1 && ranks > 2) settings.shard_group = 2;
    const std::string what = row.text();
    runtime::Perturbation perturbation;
    perturbation.seed = r;
    perturbation.longest_seconds = 2e-5;
    const History run = train_history(settings, MPI_COMM_WORLD, perturbation);
    EXPECT_EQ(run.losses, reference.losses) << what;
    EXPECT_EQ(run.norms, reference.norms) << what;
    EXPECT_EQ(run.digests, reference.digests) << what;
    EXPECT_EQ(run.validation_loss, reference.validation_loss) << what;
  }
}

TEST(Offload, UpdatesOnTheHostWaitForTheClipWhereThereIsOne) {
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  for (const auto offload : {plan::Offload::optimizer, plan::Offload::all})
    for (const auto sharding : all_shardings)
      for (const auto kind : {optim::OptimizerKind::adamw, optim::OptimizerKind::muon})
        for (const double clip_norm : {0.0, 1.0}) {
          config::Settings settings = small_llama(8);
          settings.parallel.offload = offload;
          settings.parallel.sharding = sharding;
          settings.optimizer.kind = kind;
          settings.optimizer.clip_norm = clip_norm;
          const train::Trainer trainer = train::make_trainer(settings, mesh);
          const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
          const plan::HappensBefore order(plan);
          const auto is = [&](int action, plan::Kind of) {
            return plan.actions[action].kind == of;
          };
          int clip = 0;
          while (!is(clip, plan::Kind::clip)) ++clip;
          int early = 0, updates = 0;
          for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
            if (is(a, plan::Kind::optimize) || is(a, plan::Kind::direction)) {
              ++updates;
              early += !order.before(clip, a);
            }
          EXPECT_EQ(early, clip_norm > 0.0 ? 0 : updates);
        }
}

TEST(Offload, KeepsInDeviceMemoryWhatItsNameSays) {
  const int ranks = world_ranks();
  for (const DType gather : {DType::fp32, DType::bf16}) {
    config::Settings settings = with_precision(small_llama(8), gather, DType::fp32);
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    const auto kept = [&](plan::Offload offload) {
      settings.parallel.offload = offload;
      const train::Trainer trainer = train::make_trainer(settings, mesh);
      const runtime::Program& program = trainer.program(plan::Purpose::train);
      return std::make_pair(program.memory.persistent_bytes, program.host_memory.persistent_bytes);
    };
    std::int64_t elements = 0;
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    for (const plan::FlatParameter& flat : trainer.program(plan::Purpose::train).plan.flats)
      elements += flat.padded / ranks;
    const std::int64_t masters = 4 * elements, moments = 2 * masters;
    const std::int64_t computed = bytes_of(gather) * elements;
    const std::int64_t copies = gather == DType::fp32 ? 0 : computed;  // where there are masters
    using Kept = std::pair<std::int64_t, std::int64_t>;
    const auto is = [&](plan::Offload offload, const Kept& state) {
      const Kept found = kept(offload);
      const std::int64_t padding = 256 * 4 * 4 + 1024;  // of buffers, and the step's sums
      EXPECT_GE(found.first, state.first);
      EXPECT_LE(found.first, state.first + padding) << static_cast<int>(offload);
      EXPECT_GE(found.second, state.second);
      EXPECT_LE(found.second, state.second + padding) << static_cast<int>(offload);
    };
    is(plan::Offload::none, {masters + moments, 0});
    is(plan::Offload::optimizer, {computed, masters + moments});
    is(plan::Offload::parameters, {moments, masters + copies});
    is(plan::Offload::all, {0, masters + copies + moments});
  }
}

// ---- steps that go wrong

/// Damages the gradient of unit 1 on the last rank in step 1, takes step 2, and returns the digest
/// after it.
std::uint64_t damage_and_continue(const config::Settings& settings, MPI_Comm comm) {
  SmallRun run(settings, comm);
  const int last = run.mesh.world().size() - 1;
  const std::uint64_t before = run.trainer.state_digest();
  run.trainer.inject_nonfinite(1, last);
  EXPECT_EQ(run.step(1).skipped, "the gradient of block.0 is not finite on rank " +
                                     std::to_string(last) + " (micro-batch 0)");
  EXPECT_EQ(run.trainer.state_digest(), before);
  const train::StepResult next = run.step(2);
  EXPECT_EQ(next.skipped, "");
  EXPECT_TRUE(std::isfinite(next.grad_norm));
  return run.trainer.state_digest();
}

TEST(Stability, ANonFiniteGradientIsNamedByItsOriginAndLeftOut) {
  for (const auto kind : {optim::OptimizerKind::adamw, optim::OptimizerKind::muon})
    for (const DType gather : {DType::fp32, DType::bf16}) {
      config::Settings settings = with_precision(short_run(small_llama(8), 4), gather, DType::fp32);
      settings.stability.skip_non_finite = true;
      settings.optimizer.kind = kind;
      std::vector<std::uint64_t> expected;
      if (const FirstRanks one(1); one.has_me())
        expected = {damage_and_continue(settings, one.comm())};
      from_rank_0(expected);
      for (const auto offload : all_offloads)
        for (const auto sharding : all_shardings) {
          settings.parallel.offload = offload;
          settings.parallel.sharding = sharding;
          // Each of them in both ways, somewhere.
          const bool threads =
              (offload == plan::Offload::optimizer) == (sharding == plan::Sharding::full);
          settings.runtime.streams = threads ? on_threads : config::StreamsChoice::in_plan_order;
          EXPECT_EQ(damage_and_continue(settings, MPI_COMM_WORLD), expected[0])
              << static_cast<int>(offload) << " " << static_cast<int>(sharding);
        }
    }
}

TEST(Stability, ANonFiniteGradientEndsTheRunOnAllRanks) {
  for (const auto offload : all_offloads) {
    config::Settings settings = short_run(small_llama(8), 4);
    settings.parallel.offload = offload;
    SmallRun run(settings);
    const int last = run.mesh.world().size() - 1;
    run.step(1);
    const std::uint64_t before = run.trainer.state_digest();
    run.trainer.inject_nonfinite(1, last);
    const std::string message = ostrakon::testing::error_of<CollectiveError>([&] { run.step(2); });
    const std::string expected = "step 2: the gradient of block.0 is not finite on rank " +
                                 std::to_string(last) + " (micro-batch 0). Try";
    EXPECT_EQ(message.rfind(expected, 0), 0u) << message;
    EXPECT_TRUE(run.trainer.is_intact());
    EXPECT_EQ(run.trainer.state_digest(), before);
  }
}

/// On rank 0 the embedding's, on all others also that of a block, which is nearer to the loss.
TEST(Stability, OfSeveralNonFiniteGradientsTheOneNearestToTheLossIsNamed) {
  config::Settings settings = short_run(small_gpt2(16), 4);
  settings.stability.skip_non_finite = true;
  SmallRun run(settings);
  comm::Communicator& world = run.mesh.world();
  run.trainer.inject_nonfinite(world.rank() == 0 ? 0 : 2, world.rank());
  std::string expected = "the gradient of embedding is not finite on rank 0 (micro-batch 0)";
  if (world.size() > 1) {
    expected = "the gradient of block.1 is not finite on rank 1 (micro-batch 0)";
    for (int rank = 2; rank < std::min(world.size(), 5); ++rank)
      expected += ", rank " + std::to_string(rank) + " (micro-batch 0)";
    if (world.size() > 5) expected += " and " + std::to_string(world.size() - 5) + " more";
  }
  EXPECT_EQ(run.step(1).skipped, expected);
}

/// Gradients that are finite, but not as they are sent.
TEST(Stability, AGradientThatOverflowsOnItsWayIsNamedAsASum) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "nothing travels";
  config::Settings settings =
      with_precision(short_run(small_llama(8), 4), DType::fp32, DType::fp16);
  optim::LossScaleSettings& scale = settings.precision.loss_scale;
  scale.initial = scale.smallest = scale.largest = 0x1p40;
  SmallRun run(settings);
  const std::string message = ostrakon::testing::error_of<CollectiveError>([&] { run.step(1); });
  const std::string begin =
      "step 1: the gradient of head is not finite when summed over micro-batches and ranks (";
  EXPECT_EQ(message.rfind(begin, 0), 0u) << message;
  // Nothing was updated with any learning rate yet.
  const std::string end = "). Try precision.reduce = bf16";
  EXPECT_EQ(message.substr(message.size() - std::min(message.size(), end.size())), end) << message;
}

TEST(Stability, AnOutlierIsNamedByWhatIsBeyondTheThreshold) {
  config::Settings settings = short_run(small_llama(8), 12);
  settings.stability.outlier_threshold = 0.01;
  settings.stability.outlier_window = 4;
  SmallRun run(settings);
  optim::OutlierFilter filter({4, 0.01});
  int skipped = 0;
  for (std::int64_t step = 1; step <= 12; ++step) {
    const train::StepResult result = run.step(step);
    const optim::OutlierFilter::Verdict verdict = filter.judge(result.loss, result.grad_norm);
    EXPECT_EQ(result.skipped.empty(), !verdict.skip);
    if (!verdict.skip) continue;
    ++skipped;
    const auto names = [&](const char* what) {
      return result.skipped.find(what) != std::string::npos;
    };
    EXPECT_EQ(names("the loss is"), verdict.loss_score > 0.01) << result.skipped;
    EXPECT_EQ(names("the gradient norm is"), verdict.gradient_norm_score > 0.01) << result.skipped;
    EXPECT_TRUE(names(" above its mean, more than training.skip_outliers = 0.01"))
        << result.skipped;
  }
  EXPECT_GT(skipped, 0);
}

/// The trainer knows then that parameters are damaged.
TEST(Stability, WhereUpdatesOverlapWithBackwardABadGradientHasDamagedParameters) {
  for (const auto offload : {plan::Offload::optimizer, plan::Offload::all}) {
    config::Settings settings = short_run(small_llama(8), 4);
    settings.optimizer.clip_norm = 0.0;
    settings.parallel.offload = offload;
    SmallRun run(settings);
    run.step(1);
    EXPECT_TRUE(run.trainer.is_intact());
    run.trainer.inject_nonfinite(1, 0);
    const std::string message = ostrakon::testing::error_of<CollectiveError>([&] { run.step(2); });
    const std::string begin =
        "step 2: the gradient of block.0 is not finite when summed over micro-batches and ranks "
        "(1 element in the shard of rank 0); parameters have changed";
    EXPECT_EQ(message.rfind(begin, 0), 0u) << message;
    EXPECT_FALSE(run.trainer.is_intact());
  }
}

}  // namespace
