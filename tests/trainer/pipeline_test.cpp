// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline: the same bits on any number of them, with all that divides ranks besides,
// in every schedule; and what they send each other.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/run/run_description.hpp>
#include <string>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

/// Six blocks, so that eight stages have a unit each.
std::vector<config::Settings> models(std::int64_t steps) {
  std::vector<config::Settings> all = {in_pieces(small_gpt2(8)), in_pieces(small_llama(8)),
                                       in_pieces(small_llama(8))};
  all[1].model.heads = 16;  // of 3 columns would be odd
  all[1].model.width = 64;
  for (const std::size_t m : {1, 2}) {
    all[m].model.head_dim = 8;
    all[m].model.query_key_norm = model::QueryKeyNorm::head;
  }
  all[2].model.experts = {
      8, 2, 1, 24, math::RouterScore::sigmoid, true, 1.5, model::RouterBalance::bias, 0.02};
  all[2].model.experts.groups = 4;
  all[2].model.experts.groups_per_token = 2;
  all[2].expert_capacity = 0.5;
  all.push_back(all[2]);
  all[3].tensor_grain = 1;  // experts are in blocks where no ranks share them
  for (config::Settings& settings : all) {
    settings.model.layers = 6;
    settings.training.steps = steps;
  }
  return all;
}

std::string shape(const config::Settings& settings) {
  return settings.model.experts.exist() && settings.tensor_grain > 1 ? "mixture in pieces"
         : settings.model.experts.exist()                            ? "mixture"
         : settings.model.positions == model::Positions::learned     ? "GPT-2"
                                                                     : "Llama";
}

/// How ranks are divided: the product of the first five is the number of ranks.
struct Division {
  int stages = 1, tensor = 1, context = 1, shard = 1, replicas = 1;
  int expert = 1;  // of tensor, context and shard: that share experts
  int chunks = 1;  // of each stage
  bool defers = false;

  config::Settings apply(config::Settings settings) const {
    settings.pipeline = stages;
    settings.parallel.chunks = chunks;
    if (chunks > 1) settings.parallel.schedule = plan::ScheduleKind::interleaved;
    if (defers) settings.parallel.schedule = plan::ScheduleKind::zero_bubble;
    if (stages == 2 || shard > 1)
      settings.parallel.zero_bubble_memory = plan::ZeroBubbleMemory::unlimited;
    settings.tensor = tensor;
    settings.context = context;
    settings.expert = expert;
    settings.shard_group = tensor * context * shard;
    return settings;
  }
  int micro_batches() const { return 8 / (shard * replicas); }
  bool fits(const config::Settings& settings) const {
    if (!settings.model.experts.exist()) return expert == 1;
    return settings.tensor_grain > 1 ? expert % tensor == 0 : tensor == 1;
  }
  std::string text() const {
    return ostrakon::text("stages ", stages, " of ", chunks, " chunks",
                          defers ? ", zero_bubble" : "", ", tensor ", tensor, ", context ", context,
                          ", shard ", shard, ", replicas ", replicas, ", expert ", expert);
  }
};

/// In every schedule.
void add_schedules(Division division, std::vector<Division>& all) {
  all.push_back(division);
  if (division.stages == 1) return;
  division.defers = true;
  all.push_back(division);
  division.defers = false;
  division.chunks = 2;
  const int micro_batches = division.micro_batches();
  const bool interleaves = micro_batches <= division.stages || micro_batches % division.stages == 0;
  if (interleaves && division.stages * division.chunks <= 8) all.push_back(division);
}

/// With at least so many stages.
std::vector<Division> divisions(int ranks, int least_stages = 2) {
  std::vector<Division> all;
  for (int stages = least_stages; stages <= std::min(ranks, 8); stages *= 2)
    for (int tensor = 1; stages * tensor <= ranks && tensor <= 8; tensor *= 2)
      for (int context = 1; stages * tensor * context <= ranks && context <= 8; context *= 2)
        for (int shard = 1; stages * tensor * context * shard <= ranks; shard *= 2) {
          Division division{stages, tensor, context, shard,
                            ranks / (stages * tensor * context * shard)};
          if (division.shard * division.replicas > 8) continue;
          add_schedules(division, all);
          division.expert = std::max(tensor, 2);
          for (; division.expert <= std::min(tensor * context * shard, 8); division.expert *= 2)
            add_schedules(division, all);
        }
  return all;
}

TEST(Pipeline, EveryDivisionOfTheRanksHasTheBitsOfOneRank) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "on several ranks";
  const std::vector<config::Settings> all = models(3);
  std::vector<History> one;
  for (const config::Settings& settings : all) one.push_back(reference_run(settings));
  std::size_t next = 0;
  int stay = 0;
  for (const Division& division : divisions(ranks)) {
    // Every model with two ranks; with more, one after the other.
    const bool has_all = ranks == 2 || (ranks == 4 && division.expert > 1);
    for (std::size_t m = 0; m < all.size(); ++m)
      if ((has_all || m == next % all.size()) && division.fits(all[m])) {
        const History history = train_history(division.apply(all[m]), MPI_COMM_WORLD);
        expect_same_bits(history, one[m], text(shape(all[m]), ": ", division.text()));
        stay += history.stay_gathered;
      }
    ++next;
  }
  // Where stages are sharded, late ones have room for parameters of several micro-batches.
  MPI_Allreduce(MPI_IN_PLACE, &stay, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(stay > 0, ranks > 2);
}

/// On 2, 4, 8 and 16 ranks, every model, mixtures also in one stage, as test_tensor has the others:
/// runs when it is asked for.
TEST(Pipeline, DISABLED_EveryDivisionOfAnyNumberOfRanksHasTheBitsOfOneRank) {
  for (int ranks = 2; ranks <= world_ranks(); ranks *= 2) {
    const WorldGroup group(ranks);
    int next = 0, runs = 0;
    for (const config::Settings& settings : models(10)) {
      const History one = reference_run(settings);
      int n = 0;
      for (const Division& division : divisions(ranks, settings.model.experts.exist() ? 1 : 2)) {
        if (!division.fits(settings) || (ranks == 16 && n++ % 3 != 0)) continue;
        if (next++ % group.groups() != group.index()) continue;
        const std::string name = text(shape(settings), ": ", division.text());
        expect_same_bits(train_history(division.apply(settings), group.comm()), one, name);
        if (group.rank() == 0) std::printf("%s\n", name.c_str()), std::fflush(stdout);
        ++runs;
      }
    }
    if (group.rank() == 0)
      std::printf("%d of %d runs on %d ranks\n", runs, next, ranks), std::fflush(stdout);
  }
}

TEST(Pipeline, AllElseHasTheBitsOfOneRankWithIt) {
  const int ranks = world_ranks();
  if (ranks == 1 || ranks == 8) GTEST_SKIP() << "on two or four ranks";
  const std::string factors =
      "model 4, schedule 3, tensor 2, context 2, group 2, sharding 4, offload 4, "
      "host_activations 2, checkpointing 4, reshard 4, blocks 2, streams 2, "
      "accumulation 3, optimizer 3, frozen 3, precision 2, tied 2, order 3, updates 2";
  const std::vector<config::Settings> all = models(2);
  const auto is_valid = [&](const NamedRow& row) {
    const int together = (1 << row["tensor"]) * (1 << row["context"]);
    return 2 * together <= ranks && (row["context"] == 0 || row["accumulation"] != 2) &&
           (row["blocks"] == 0 || row["schedule"] != 1) &&
           (row["updates"] == 0 || row["offload"] == 0) &&
           (row["model"] != 2 || row["blocks"] == 0) && (row["model"] != 3 || row["tensor"] == 0);
  };
  for (const NamedRow& row : covering_rows(factors, is_valid)) {
    config::Settings settings = all[static_cast<std::size_t>(row["model"])];
    settings.model.layers = 2;
    settings.model.tie_embeddings = row["tied"] == 1;
    settings.model.blocks_per_unit = 1 + row["blocks"];
    settings.precision.gather = row["precision"] == 1 ? DType::bf16 : DType::fp32;
    if (row["optimizer"] == 1) settings.optimizer.kind = optim::OptimizerKind::muon;
    if (row["optimizer"] == 2) settings.optimizer.kind = optim::OptimizerKind::lion;
    if (row["frozen"] == 1) settings.optimizer.parameters = {{"embedding.*", true, {}, {}}};
    if (row["frozen"] == 2) settings.optimizer.parameters = {{"block.0.*", true, {}, {}}};
    const History one = reference_run(settings);
    Division division{2, 1 << row["tensor"], 1 << row["context"]};
    if (settings.model.experts.exist()) division.expert = division.tensor;
    division.chunks = row["schedule"] == 1 ? 2 : 1;
    division.defers = row["schedule"] == 2;
    if (row["group"] == 0) division.shard = ranks / 2 >> (row["tensor"] + row["context"]);
    config::Settings run = division.apply(settings);
    apply_policy(row, run);
    if (row["streams"] == 0) run.parallel.zero_bubble_memory = plan::ZeroBubbleMemory::unlimited;
    const std::string what = shape(run) + ": " + row.text();
    const History history = train_history(run, MPI_COMM_WORLD);
    if (row["precision"] == 0)
      expect_same_bits(history, one, what);
    else
      EXPECT_NEAR(history.losses.back(), one.losses.back(), 1e-3) << what;
  }
}

/// On all stages, with the same message; and the step may be taken once more.
TEST(Pipeline, AStepThatFailsOnOneStageEndsOnAll) {
  const int ranks = world_ranks();
  if (ranks != 2 && ranks != 4) GTEST_SKIP() << "on two or four ranks";
  for (const bool by_threads : {false, true})
    for (const bool by_data : {false, true}) {
      config::Settings settings = models(3)[0];
      settings.pipeline = ranks;
      settings.runtime.streams = by_threads ? on_threads : config::StreamsChoice::in_plan_order;
      SmallRun run(settings);
      Unreadable samples(*run.training);
      run.trainer.step(samples, 1);
      samples.fails = by_data;
      if (!by_data) run.trainer.inject_nonfinite(1, 0);
      std::string message;
      try {
        run.trainer.step(samples, 2);
      } catch (const CollectiveError& error) {
        message = error.what();
      }
      EXPECT_HAS(message, by_data ? "the disk is gone" : "the gradient of block.0");
      samples.fails = false;
      const train::StepResult again = run.trainer.step(samples, 2);
      SmallRun other(settings);
      other.step(1);
      EXPECT_EQ(again.loss, other.step(2).loss);
      EXPECT_EQ(run.trainer.state_digest(), other.trainer.state_digest());
    }
}

/// Tied weights on two stages are summed apart, which one rank does only where leaves are summed
/// one by one: it is said.
TEST(Pipeline, SaysWhereTiedWeightsHaveOtherBits) {
  if (world_ranks() != 2) GTEST_SKIP() << "on two ranks";
  config::Settings settings = small_gpt2(8);
  settings.training.steps = 10;
  const History one = reference_run(settings);
  settings.pipeline = 2;
  const History run = train_history(settings, MPI_COMM_WORLD);
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(run.losses[i], one.losses[i], 2e-6 * one.losses[i]) << i;
    EXPECT_NEAR(run.norms[i], one.norms[i], 2e-5 * one.norms[i]) << i;
  }
  mesh::Mesh mesh(MPI_COMM_WORLD, 0, settings.shard_group, 2);
  const train::Trainer trainer = train::make_trainer(settings, mesh);
  EXPECT_HAS(plan::describe_sums(trainer.program(plan::Purpose::train).plan),
             "units of two stages share tied weights; bitwise equal with training.leaf");
}

/// What crosses a border is an output a micro-batch, and its gradient back; and once a step the
/// tied table's gradient and values.
TEST(Pipeline, StagesSendActivationsAndTheTiedTable) {
  const int ranks = world_ranks();
  if (ranks != 4) GTEST_SKIP() << "on four ranks";
  for (bool tied : {false, true}) {
    config::Settings settings = models(2)[0];
    settings.model.tie_embeddings = tied;
    settings.pipeline = 4;
    SmallRun run(settings);
    run.step(1);
    run.step(2);
    const plan::StepPlan& plan = run.trainer.program(plan::Purpose::train).plan;
    const std::int64_t rows = settings.training.sequence_length, width = settings.model.width;
    const std::int64_t border = 8 * rows * width * 4;
    const bool is_first = plan.stage == 0, is_last = plan.stage == 3;
    const std::int64_t table = plan.padded(run.trainer.stages()[0].units[0].flats) * 4;
    const std::int64_t expected =
        (is_first || is_last ? 1 : 2) * border + (tied && (is_first || is_last) ? table : 0);
    EXPECT_EQ(run.trainer.bytes_sent({plan::Axis::pipeline, 4}), 2 * expected) << plan.stage;
  }
}

/// What the ranks of all stages are told of each is what its own ranks know.
TEST(Pipeline, SummariesOfStagesAreTheirOwn) {
  if (world_ranks() != 4) GTEST_SKIP() << "on four ranks";
  for (const bool defers : {false, true}) {
    config::Settings settings = models(2)[1];
    settings.tensor_grain = 1;
    settings = Division{4, 1, 1, 1, 1, 1, 1, defers}.apply(settings);
    SmallRun run(settings);
    const runtime::Program& program = run.trainer.program(plan::Purpose::train);
    const plan::StageSummary own = plan::summarize_stage(program.plan, program.memory.arena_bytes,
                                                         program.host_memory.arena_bytes);
    const std::vector<plan::StageSummary> all = train::summarize_stages(run.mesh, run.trainer);
    ASSERT_EQ(all.size(), 4u);
    const plan::StageSummary& told = all[static_cast<std::size_t>(program.plan.stage)];
    EXPECT_EQ(told.units, own.units);
    EXPECT_EQ(told.parameters, own.parameters);
    EXPECT_EQ(told.stay_gathered, own.stay_gathered);
    EXPECT_EQ(told.deferred, own.deferred);
    EXPECT_EQ(told.backwards, own.backwards);
    EXPECT_EQ(told.arena_bytes, own.arena_bytes);
    EXPECT_EQ(told.host_arena_bytes, own.host_arena_bytes);
    EXPECT_EQ(told.bytes_sent, own.bytes_sent);
    EXPECT_EQ(told.flops, own.flops);
    EXPECT_EQ(told.deferred > 0, defers && program.plan.stage > 0) << program.plan.stage;
  }
}

}  // namespace
}  // namespace ostrakon::tests
