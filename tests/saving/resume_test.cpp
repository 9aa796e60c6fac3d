// SPDX-License-Identifier: Apache-2.0
// Runs that are saved on some ranks and resumed on others, with the same result.
#include <cmath>
#include <cstring>
#include <iostream>
#include <iterator>
#include <map>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/saving/saver.hpp>

#include "support/covering.hpp"
#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using plan::Offload;
using testing::SharedFolder;

constexpr std::int64_t saved_step = 10, last_step = 20;

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// Steps first .. last of a run.
struct Steps {
  std::vector<double> losses, norms;
  std::vector<std::uint64_t> digests;
};
void take_steps(SmallRun& run, std::int64_t first, std::int64_t last, Steps& steps) {
  for (std::int64_t step = first; step <= last; ++step) {
    const train::StepResult result = run.step(step);
    steps.losses.push_back(result.loss);
    steps.norms.push_back(result.grad_norm);
    steps.digests.push_back(run.trainer.state_digest());
  }
}

/// The steps after saved_step of a run on one rank without interruptions.
Steps uninterrupted(const config::Settings& settings) {
  Steps before, after;
  const FirstRanks one(1);
  if (one.has_me()) {
    SmallRun run(settings, one.comm());
    take_steps(run, 1, saved_step, before);
    take_steps(run, saved_step + 1, last_step, after);
  }
  from_rank_0(after.losses);
  from_rank_0(after.norms);
  from_rank_0(after.digests);
  return after;
}

struct Saved {
  std::string path;
  std::int64_t has_bits = 0;  ///< of one rank
};

/// Trains up to saved_step and saves; `asynchronous`: while two more steps run.
Saved save(config::Settings settings, int ranks, const std::string& folder, bool asynchronous) {
  settings.output.directory = folder;
  settings.checkpoint.every = 1;
  settings.checkpoint.asynchronous = asynchronous;
  Saved result;
  const FirstRanks some(ranks);
  if (some.has_me()) {
    SmallRun run(settings, some.comm());
    train::Saver saver(settings, run.mesh, run.trainer);
    Steps ignored;
    take_steps(run, 1, saved_step, ignored);
    saver.begin(run.trainer.progress(), "synthetic", asynchronous);
    EXPECT_TRUE(saver.is_saving());
    take_steps(run, saved_step + 1, asynchronous ? saved_step + 2 : saved_step, ignored);
    const auto saved = saver.finish();
    EXPECT_TRUE(saved.has_value());
    if (saved) {
      EXPECT_EQ(saved->step, saved_step);
      result.path = saved->path;
    }
    result.has_bits = run.trainer.program(plan::Purpose::train).plan.has_the_bits_of_one_rank();
  }
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  result.path = world.broadcast(result.path, 0);
  world.broadcast(&result.has_bits, sizeof result.has_bits, 0);
  return result;
}

struct Resumed {
  Steps steps;
  bool has_bits = false;  ///< of one rank
};
Resumed resume(const config::Settings& settings, int ranks, const std::string& path) {
  Resumed resumed;
  const FirstRanks some(ranks);
  if (some.has_me()) {
    SmallRun run(settings, some.comm());
    checkpoint::CheckpointReader reader(path);
    run.trainer.require_fit(reader.manifest());
    run.trainer.restore(reader);
    resumed.has_bits = run.trainer.program(plan::Purpose::train).plan.has_the_bits_of_one_rank();
    take_steps(run, saved_step + 1, last_step, resumed.steps);
  }
  return resumed;
}

void expect_same(const Steps& found, const Steps& expected) {
  if (found.losses.empty()) return;  // not one of its ranks
  EXPECT_EQ(found.losses, expected.losses);
  // Norms are compared as bits: steps that are skipped have none.
  EXPECT_EQ(
      std::memcmp(found.norms.data(), expected.norms.data(), found.norms.size() * sizeof(double)),
      0);
  EXPECT_EQ(found.digests, expected.digests);
}

void expect_close(const Steps& found, const Steps& expected) {
  for (std::size_t i = 0; i < found.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-4 * std::abs(expected.losses[i]));
}

enum class Optimizer { adamw, adamw_bf16, muon, sgd };
void apply(Optimizer optimizer, config::Settings& settings) {
  if (optimizer == Optimizer::adamw_bf16) settings.parallel.moments.dtype = DType::bf16;
  if (optimizer == Optimizer::muon) settings.optimizer.kind = optim::OptimizerKind::muon;
  if (optimizer == Optimizer::sgd) settings.optimizer.kind = optim::OptimizerKind::sgd;
}

enum Factor {
  saving_ranks,
  loading_ranks,
  saving_sharding,
  loading_sharding,
  saving_group,
  loading_group,
  saving_offload,
  loading_offload,
  files,
  manner,
  optimizer,
  blocks,
  frozen,
  model_kind,
  factors
};
constexpr int choices_of[factors] = {4, 4, 4, 4, 3, 3, 4, 4, 3, 2, 4, 2, 2, 2};

void share(config::Settings& settings, int sharding, int group, int offload) {
  settings.parallel.sharding = static_cast<plan::Sharding>(sharding);
  const int groups[] = {mesh::world_group, 2, mesh::node_group};
  settings.shard_group = groups[group];
  settings.ranks_per_node = group == 2 ? 2 : 0;
  settings.parallel.offload = static_cast<Offload>(offload);
}

bool is_valid(const Choices& row) {
  return (row[saving_ranks] > 0 || row[saving_group] == 0) &&
         (row[loading_ranks] > 0 || row[loading_group] == 0);
}

std::string describe(const Choices& row) {
  std::string text = "choices";
  for (const int choice : row) text += " " + std::to_string(choice);
  return text;
}

TEST(Resume, HasTheSameBitsFromAnyLayoutToAnyOther) {
  std::map<std::string, Steps> references;
  const std::vector<Choices> rows =
      covering_rows({std::begin(choices_of), std::end(choices_of)}, is_valid);
  if (world_rank() == 0) std::cout << rows.size() << " rows\n";
  for (const Choices& row : rows) {
    SCOPED_TRACE(describe(row));
    config::Settings settings = row[model_kind] == 0 ? small_gpt2(8) : small_llama(8);
    apply(static_cast<Optimizer>(row[optimizer]), settings);
    if (row[frozen] == 1) settings.optimizer.parameters = {{"block.0.*", true, {}, {}}};
    settings.training.steps = last_step;
    const std::string key = text(row[optimizer], " ", row[frozen], " ", row[model_kind]);
    if (references.count(key) == 0) references.emplace(key, uninterrupted(settings));

    const SharedFolder folder;
    config::Settings saving = settings, loading = settings;
    share(saving, row[saving_sharding], row[saving_group], row[saving_offload]);
    share(loading, row[loading_sharding], row[loading_group], row[loading_offload]);
    saving.checkpoint.files = static_cast<checkpoint::Files>(row[files]);
    saving.ranks_per_node = 2 * (row[saving_ranks] > 0);  // so that `node` differs from `single`
    saving.model.blocks_per_unit = 1 + row[blocks];
    const std::string path =
        save(saving, 1 << row[saving_ranks], folder.path(), row[manner] == 1).path;
    const Resumed resumed = resume(loading, 1 << row[loading_ranks], path);
    EXPECT_TRUE(resumed.has_bits || resumed.steps.losses.empty());
    expect_same(resumed.steps, references.at(key));
  }
}

// Where shards lie depends on the levels; checkpoints are read by slices.
TEST(Resume, FromOneLevelToTwoAndBack) {
  config::Settings settings = small_llama(8);
  settings.training.steps = last_step;
  const Steps reference = uninterrupted(settings);
  for (const auto over : {plan::OptimizerGroup::shard_group, plan::OptimizerGroup::world})
    for (const auto sharding : {plan::Sharding::full, plan::Sharding::gradients})
      for (const int group : {mesh::world_group, 2}) {
        if (over == plan::OptimizerGroup::world && group == mesh::world_group) continue;
        settings.parallel.sharding = sharding;
        settings.parallel.shard_optimizer_over = over;
        settings.shard_group = group;
        settings.ranks_per_node = 4;
        config::Settings one = settings, two = settings;
        one.parallel.hierarchical.kind = plan::Hierarchical::never;
        two.parallel.hierarchical.kind = plan::Hierarchical::always;
        for (const auto& [saving, loading] : {std::pair(one, two), std::pair(two, one)}) {
          SCOPED_TRACE(text("sharding ", static_cast<int>(sharding), ", group ", group));
          const SharedFolder folder;
          const Saved saved = save(saving, 8, folder.path(), false);
          const Resumed resumed = resume(loading, 8, saved.path);
          EXPECT_TRUE(saved.has_bits && resumed.has_bits);
          expect_same(resumed.steps, reference);
        }
      }
}

/// Three ranks: bit for bit where the plan says so, and else but for rounding.
TEST(Resume, OnEveryNumberOfRanks) {
  config::Settings settings = small_gpt2(24);
  settings.training.steps = last_step;
  const Steps reference = uninterrupted(settings);
  constexpr int numbers[] = {1, 2, 3, 4, 8};
  int alike = 0;
  for (const int saving : numbers) {
    const SharedFolder folder;
    const Saved saved = save(settings, saving, folder.path(), false);
    for (const int loading : numbers) {
      SCOPED_TRACE(text("saved by ", saving, ", loaded by ", loading));
      const Resumed resumed = resume(settings, loading, saved.path);
      const bool same = saved.has_bits && resumed.has_bits;
      alike += same;
      if (same)
        expect_same(resumed.steps, reference);
      else
        expect_close(resumed.steps, reference);
    }
  }
  if (world_rank() == 0) {
    EXPECT_EQ(alike, 16);  // all but those with three ranks, which are summed first
  }
}

/// Saved on each of the places, resumed on each; `on`: the settings of one.
template <class Place, std::size_t count, class On>
void expect_same_from_each_to_each(const Place (&places)[count], const On& on,
                                   const Steps& reference) {
  for (std::size_t from = 0; from < count; ++from) {
    const SharedFolder folder;
    const Saved saved = save(on(places[from]), places[from].ranks, folder.path(), from % 2 == 0);
    for (std::size_t to = 0; to < count; ++to) {
      SCOPED_TRACE(text("from place ", from, " to place ", to));
      expect_same(resume(on(places[to]), places[to].ranks, saved.path).steps, reference);
    }
  }
}

/// From stages and tensor ranks to shards, to one rank, to other stages, and back.
TEST(Resume, FromStagesOfAPipelineToAnyLayoutAndBack) {
  config::Settings settings = small_gpt2(8);
  settings.training.steps = last_step;
  settings.training.micro_batch_size = 1;
  settings.training.global_batch_size = 8;
  settings.training.sequence_length = 32;
  settings.training.context_grain = 2;  // tied weights are summed apart
  settings.model.width = 32;
  settings.model.heads = settings.model.kv_heads = 4;
  settings.tensor_grain = 2;
  const Steps reference = uninterrupted(settings);
  struct Place {
    int ranks, stages, chunks, tensor;
  };
  const Place places[] = {{4, 2, 1, 2}, {4, 1, 1, 1}, {1, 1, 1, 1}, {8, 4, 1, 1}, {2, 2, 2, 1}};
  const auto on = [&](const Place& place) {
    config::Settings placed = settings;
    placed.pipeline = place.stages;
    placed.parallel.chunks = place.chunks;
    if (place.chunks > 1) placed.parallel.schedule = plan::ScheduleKind::interleaved;
    placed.tensor = place.tensor;
    return placed;
  };
  expect_same_from_each_to_each(places, on, reference);
}

/// From ranks that share experts to one rank, to stages, and back.
TEST(Resume, FromRanksThatShareExpertsToAnyLayoutAndBack) {
  config::Settings settings = small_llama(8);
  settings.training.steps = last_step;
  settings.training.micro_batch_size = 1;
  settings.training.global_batch_size = 8;
  settings.model.experts = {
      8, 2, 1, 20, math::RouterScore::sigmoid, true, 1.0, model::RouterBalance::bias, 0.02};
  settings.tensor_grain = 2;
  settings.optimizer.kind = optim::OptimizerKind::muon;
  const Steps reference = uninterrupted(settings);
  struct Place {
    int ranks, expert, tensor, stages;
    plan::Sharding sharding;
    Offload offload;
  };
  const Place places[] = {{4, 4, 2, 1, plan::Sharding::full, Offload::none},
                          {1, 1, 1, 1, plan::Sharding::none, Offload::none},
                          {4, 1, 1, 1, plan::Sharding::full, Offload::optimizer},
                          {8, 2, 2, 2, plan::Sharding::gradients, Offload::none},
                          {8, 8, 1, 1, plan::Sharding::none, Offload::all}};
  const auto on = [&](const Place& place) {
    config::Settings placed = settings;
    placed.expert = place.expert;
    placed.tensor = place.tensor;
    placed.pipeline = place.stages;
    placed.parallel.sharding = place.sharding;
    placed.parallel.offload = place.offload;
    return placed;
  };
  expect_same_from_each_to_each(places, on, reference);
}

/// With the same masters, compute copies may have another dtype than before.
TEST(Resume, ComputesInOtherNumbersThanBefore) {
  config::Settings settings = small_llama(8);
  settings.training.steps = last_step;
  const SharedFolder folder;
  const std::string path = save(settings, 4, folder.path(), false).path;
  settings.precision.gather = DType::bf16;
  Resumed one = resume(settings, 1, path);
  from_rank_0(one.steps.losses);
  from_rank_0(one.steps.norms);
  from_rank_0(one.steps.digests);
  for (const plan::Sharding sharding : all_shardings)
    for (const Offload offload : {Offload::none, Offload::optimizer, Offload::all}) {
      config::Settings other = settings;
      other.parallel.sharding = sharding;
      other.parallel.offload = offload;
      SCOPED_TRACE(
          text("sharding ", static_cast<int>(sharding), ", offload ", static_cast<int>(offload)));
      expect_same(resume(other, 8, path).steps, one.steps);
    }
}

/// Loss scale and the filter of outliers continue where they were, and updates that were skipped do
/// not count.
TEST(Resume, KeepsScalesAndStatistics) {
  config::Settings settings = small_gpt2(8);
  settings.training.steps = last_step;
  settings.precision.gather = DType::fp16;
  settings.parallel.reduce = DType::fp32;
  settings.precision.loss_scale.initial = 16777216.0;  // overflows at first
  settings.precision.loss_scale.growth_interval = 3;
  settings.stability.outlier_threshold = 1.5;
  settings.stability.outlier_window = 4;
  const Steps reference = uninterrupted(settings);
  const SharedFolder folder;
  const std::string path = save(settings, 2, folder.path(), true).path;
  const checkpoint::Progress progress = checkpoint::CheckpointReader(path).manifest().progress;
  EXPECT_LT(progress.updates, saved_step);
  EXPECT_EQ(progress.samples, saved_step * settings.training.global_batch_size);
  ASSERT_TRUE(progress.outliers.has_value());
  EXPECT_GT(progress.outliers->loss_variance, 0.0);
  expect_same(resume(settings, 4, path).steps, reference);
}

TEST(Resume, RefusesWhatDoesNotFit) {
  const config::Settings settings = small_gpt2(8);
  const SharedFolder folder;
  const std::string path = save(settings, 2, folder.path(), false).path;
  const checkpoint::CheckpointReader reader(path);
  const auto refusal = [&](const std::function<void(config::Settings&)>& change) {
    config::Settings other = settings;
    change(other);
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    const train::Trainer trainer = train::make_trainer(other, mesh);
    return testing::error_of([&] { trainer.require_fit(reader.manifest()); });
  };
  using Settings = config::Settings;
  EXPECT_EQ(refusal([](Settings&) {}), "no error");
  EXPECT_HAS(refusal([](Settings& s) { s.model.ffn_width = 104; }), "has the shape");
  EXPECT_HAS(refusal([](Settings& s) { s.model.layers = 3; }), "no parameter block.2");
  EXPECT_HAS(refusal([](Settings& s) { s.model.layers = 1; }), "parameters; this model");
  EXPECT_HAS(refusal([](Settings& s) { s.parallel.moments.dtype = DType::bf16; }),
             "its moments are fp32");
  // SGD has one moment, Muon's matrices have one too: what is more is not needed.
  EXPECT_EQ(refusal([](Settings& s) { s.optimizer.kind = optim::OptimizerKind::sgd; }), "no error");
}

}  // namespace
}  // namespace ostrakon::tests
