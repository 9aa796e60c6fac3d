// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, each computed by the ranks that have the tokens: the bits of one rank with
// every strategy, however many sequences or pieces of them a rank computes at once.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/saving/save_weights.hpp>
#include <string>
#include <vector>

#include "support/shared_folder.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using config::Leaf;
using math::RouterScore;
using model::RouterBalance;

/// A Mixtral, a DeepSeek-V3 whose norms come behind, a GPT-2 with experts between norms, and a
/// model with experts in some layers, of odd sizes; eight sequences of 32 tokens.
std::vector<config::Settings> small_mixtures() {
  std::vector<config::Settings> all = {small_llama(8), small_llama(8), small_gpt2(8),
                                       small_llama(8)};
  all[0].model.experts = {4, 2, 0, 24, RouterScore::softmax, true, 1.0, RouterBalance::loss, 0.1};
  all[1].model.experts = {9, 3, 1, 12, RouterScore::sigmoid, true, 2.5, RouterBalance::bias, 0.02};
  all[2].model.experts = {5, 1, 1, 20, RouterScore::softmax, false, 1.0, RouterBalance::none, 0.0};
  all[1].model.experts.groups = 3;
  all[1].model.experts.groups_per_token = 2;
  all[1].model.norm_placement = model::NormPlacement::after;
  all[2].model.norm_placement = model::NormPlacement::both;
  all[2].model.residual_scale = 0.5;
  model::DecoderSettings& some = all[3].model;
  some.layers = 3;
  some.expert_layers = *model::LayerPattern::parse("all but first 1");
  some.residual_scale = 0.7;
  some.activation = model::Activation::swiglu_clamped;
  some.experts = {6, 2, 1, 12, RouterScore::softmax, true, 1.0, RouterBalance::bias, 0.02};
  some.experts.groups = 3;
  some.experts.groups_per_token = 2;
  some.experts.group_score = math::RouterGroupScore::max;
  some.experts.router_bias = some.experts.shared_gate = true;
  some.experts.own_shared_width = 28;
  for (model::DecoderSettings* model : {&some, &all[2].model}) {
    model->head_bias = true;
    model->logit_scale = 0.5;
    model->logit_soft_cap = 3.0;
  }
  for (config::Settings& settings : all) {
    settings.training.steps = 3;
    settings.schedule.warmup_steps = 1;
    settings.training.sequence_length = 32;
    settings.training.global_batch_size = 8;
    settings.training.micro_batch_size = 1;
  }
  return all;
}

TEST(Experts, EveryStrategyHasTheBitsOfOneRank) {
  const DType dtypes[] = {DType::fp32, DType::bf16};
  const optim::OptimizerKind optimizers[] = {optim::OptimizerKind::adamw,
                                             optim::OptimizerKind::muon};
  const std::vector<config::Settings> models = small_mixtures();
  const auto with = [&](const NamedRow& row) {
    config::Settings settings = models[row["model"]];
    settings.optimizer.kind = optimizers[row["optimizer"]];
    settings.precision.gather = dtypes[row["precision"]];
    return settings;
  };
  for (const NamedRow& row :
       covering_rows("model 4, sharding 4, checkpointing 4, offload 2, optimizer 2, precision 2, "
                     "accumulation 4")) {
    config::Settings run = with(row);
    const History reference = reference_run(run);
    apply_policy(row, run);
    expect_same_bits(train_history(run, MPI_COMM_WORLD), reference, row.text());
  }
}

TEST(Experts, SequencesHaveTheSameBitsInMicroBatchesOfAnySize) {
  for (config::Settings settings : small_mixtures()) {
    settings.training.leaf = Leaf::sequence;
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      settings.precision.gather = dtype;
      const History one = reference_run(settings);
      for (const std::int64_t size : {2, 4, 8}) {
        if (8 / size < world_ranks()) continue;
        config::Settings run = settings;
        run.training.micro_batch_size = size;
        expect_same_bits(train_history(run, MPI_COMM_WORLD), one,
                         text(size, " sequences of ", settings.model.experts.count, " experts"));
      }
    }
  }
}

TEST(Experts, PiecesHaveTheSameBitsAtEveryContext) {
  for (config::Settings settings : small_mixtures()) {
    settings.training.context_grain = 4;
    const History one = reference_run(settings);
    for (std::int64_t context = 1; context <= world_ranks(); context *= 2) {
      if (world_ranks() % context != 0) continue;
      config::Settings run = settings;
      run.context = context;
      run.parallel.sharding = plan::Sharding::full;
      expect_same_bits(train_history(run, MPI_COMM_WORLD), one, text("context ", context));
    }
  }
}

TEST(Experts, StagesHaveTheSameBits) {
  if (world_ranks() < 2) GTEST_SKIP() << "takes two stages";
  for (config::Settings settings : small_mixtures()) {
    // Tied weights on two stages are summed as those of leaves are.
    settings.training.leaf = Leaf::sequence;
    const History one = reference_run(settings);
    settings.pipeline = 2;
    expect_same_bits(train_history(settings, MPI_COMM_WORLD), one, "two stages");
  }
}

/// Small weights; of routers zero, so that all experts have equal scores.
class ZeroRouters : public checkpoint::ParameterSource {
 public:
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>&, std::int64_t first, std::int64_t count,
            float* values) override {
    const bool is_router = parameter.find("router") != std::string::npos;
    const std::uint64_t key = math::random_key(1, owner + "." + parameter);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t word =
          math::philox(key, static_cast<std::uint64_t>(first + i), 0).word[0];
      values[i] = is_router ? 0.0F : 0.1F * (static_cast<float>(word % 2001) / 1000.0F - 1.0F);
    }
  }
  void verify() override {}
};

/// All tokens go to the same experts, the first ones, on all steps: in the memory that was planned,
/// with the bits of one rank, and what goes to no expert changes nothing.
TEST(Experts, AllTokensMayGoToTheSameOnes) {
  for (config::Settings settings : small_mixtures()) {
    settings.optimizer.parameters = {{"*.mlp.router.*", true, {}, {}}};
    const model::ExpertSettings& experts = settings.model.experts;
    const auto run = [&](const config::Settings& own, MPI_Comm comm) {
      SmallRun one(own, comm);
      ZeroRouters weights;
      one.trainer.initialize(&weights);
      History history;
      const runtime::MemoryCount begun = runtime::memory_count();
      EXPECT_EQ(begun.bytes - one.before.bytes, one.trainer.planned_peak_bytes());
      for (std::int64_t step = 1; step <= own.training.steps; ++step) {
        const train::StepResult result = one.step(step);
        history.add(result, one.trainer);
        for (const train::ExpertLoad& load : result.expert_load) {
          EXPECT_EQ(load.least, 0.0);
          EXPECT_EQ(load.most,
                    static_cast<double>(experts.count) / static_cast<double>(experts.per_token));
        }
      }
      EXPECT_EQ(runtime::memory_count().all_allocations(), begun.all_allocations());
      EXPECT_EQ(runtime::memory_count().bytes, begun.bytes);
      return history;
    };
    const History reference = run(settings, MPI_COMM_SELF);
    EXPECT_LT(reference.losses.back(), reference.losses.front());
    for (const plan::Sharding sharding : {plan::Sharding::full, plan::Sharding::optimizer}) {
      settings.parallel.sharding = sharding;
      expect_same_bits(run(settings, MPI_COMM_WORLD), reference, name(sharding));
      // Where ranks share them, one rank computes them all.
      if (world_ranks() == 1 || experts.count % 2 != 0) continue;
      config::Settings shared = settings;
      shared.expert = 2;
      shared.expert_capacity = 0.5;
      expect_same_bits(run(shared, MPI_COMM_WORLD), reference,
                       text(name(sharding), ", experts over 2 ranks"));
    }
  }
}

/// Ranks have some of the experts each, and room for few rows at a time: one round or many, leaves
/// that are cut or computed together, every strategy for the rest.
TEST(Experts, RanksThatShareExpertsHaveTheBitsOfOne) {
  if (world_ranks() < 2) GTEST_SKIP() << "takes two ranks";
  std::vector<config::Settings> models = small_mixtures();
  models[0].model.experts.count = models[1].model.experts.count = 8;
  models[1].model.experts.groups = 4;
  models[2].model.experts.count = 4;
  models[3].model.experts.count = 8;
  models[3].model.experts.groups = 4;
  std::int64_t most_rounds = 1;
  for (config::Settings settings : models) {
    settings.training.leaf = Leaf::sequence;
    const History one = reference_run(settings);
    for (std::int64_t expert = 2; expert <= world_ranks(); expert *= 2)
      for (const std::int64_t sequences : {1, 2})
        for (const double capacity : {0.1, 1.0})
          for (const plan::Sharding sharding : {plan::Sharding::none, plan::Sharding::full}) {
            config::Settings run = settings;
            run.expert = expert;
            run.expert_capacity = capacity;
            run.training.micro_batch_size = sequences;
            run.parallel.sharding = sharding;
            const std::string what =
                text(settings.model.experts.count, " experts on ", expert, " ranks, ", sequences,
                     " sequences, room for ", capacity, ", ", plan::name(sharding));
            const History history = train_history(run, MPI_COMM_WORLD);
            most_rounds = std::max(most_rounds, history.most_rounds);
            expect_same_bits(history, one, what);
          }
  }
  EXPECT_GT(most_rounds, 1);
}

/// Each rank sums its micro-batches before ranks are summed, once in a step, also the gradients of
/// experts that it has for several ranks: up to rounding the sums of one rank.
TEST(Experts, RanksThatShareExpertsMaySumMicroBatchesFirst) {
  if (world_ranks() < 2) GTEST_SKIP() << "takes two ranks";
  std::vector<config::Settings> models = small_mixtures();
  models[0].model.experts.count = models[1].model.experts.count = 8;
  models[1].model.experts.groups = 4;
  for (config::Settings settings : {models[0], models[1]}) {
    settings.training.context_grain = 2;  // the loss for balance is of a leaf's tokens
    const History one = reference_run(settings);
    settings.expert = 2;
    settings.parallel.accumulation = plan::Accumulation::reduce_last;
    for (const std::int64_t context : {1, 2}) {
      settings.context = context;
      settings.parallel.sharding = plan::Sharding::none;
      const History reference = train_history(settings, MPI_COMM_WORLD);
      for (std::size_t i = 0; i < one.losses.size(); ++i) {
        EXPECT_NEAR(reference.losses[i], one.losses[i], 2e-6 * one.losses[i]) << i;
        EXPECT_NEAR(reference.norms[i], one.norms[i], 2e-5 * one.norms[i]) << i;
      }
      EXPECT_NE(reference.digests.back(), one.digests.back()) << "nothing is summed otherwise";
      for (const plan::Sharding sharding : {plan::Sharding::optimizer, plan::Sharding::full}) {
        settings.parallel.sharding = sharding;
        expect_same_bits(train_history(settings, MPI_COMM_WORLD), reference,
                         text("context ", context, ", ", plan::name(sharding)));
      }
    }
  }
}

/// Four experts or eight, blocks in four pieces.
std::vector<config::Settings> mixtures_in_pieces() {
  std::vector<config::Settings> all = small_mixtures();
  for (config::Settings& settings : all) {
    settings.model.heads = settings.model.kv_heads = 4;
    settings.model.width = 40;
    settings.tensor_grain = 4;
  }
  all[0].model.head_dim = 8;
  all[0].model.query_key_norm = model::QueryKeyNorm::head;
  all[1].model.experts.count = 8;
  all[1].model.experts.groups = 4;
  all[2].model.experts.count = 4;
  all[2].model.experts.shared = 1;  // with biases
  all[3].model.experts.count = 8;
  all[3].model.experts.groups = 4;
  return all;
}

/// Blocks in pieces compute what others do: only sums have another order.
TEST(Experts, PiecesOfBlocksChangeSumsAlone) {
  if (world_ranks() > 1) GTEST_SKIP() << "on one rank";
  for (config::Settings settings : mixtures_in_pieces()) {
    settings.training.steps = 6;
    // The loss for balance is of a leaf's tokens.
    if (settings.model.experts.balance == RouterBalance::loss)
      settings.model.experts.balance = RouterBalance::none;
    const History pieces = reference_run(settings);
    settings.tensor_grain = 1;
    const History whole = reference_run(settings);
    EXPECT_NE(pieces.digests.back(), whole.digests.back()) << "other sums";
    for (std::size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(pieces.losses[i], whole.losses[i], 2e-6 * whole.losses[i]) << i;
      EXPECT_NEAR(pieces.norms[i], whole.norms[i], 2e-5 * whole.norms[i]) << i;
    }
  }
}

/// Tensor ranks have whole experts, and share them with others: in few rounds or many, with what is
/// computed again, every strategy for the rest.
TEST(Experts, TensorRanksShareThemWithTheBitsOfOne) {
  if (world_ranks() < 2) GTEST_SKIP() << "takes two ranks";
  std::int64_t most_rounds = 1;
  int number = 0;
  for (config::Settings settings : mixtures_in_pieces()) {
    settings.training.leaf = Leaf::sequence;
    const History one = reference_run(settings);
    for (std::int64_t tensor = 2; tensor <= world_ranks(); tensor *= 2)
      for (std::int64_t expert = tensor; expert <= world_ranks(); expert *= 2)
        for (const double capacity : {0.1, 1.0})
          for (const plan::Sharding sharding : {plan::Sharding::none, plan::Sharding::full}) {
            config::Settings run = settings;
            run.tensor = tensor;
            run.expert = expert;
            run.expert_capacity = capacity;
            run.parallel.sharding = sharding;
            ++number;
            if (number % 2 == 0) run.training.micro_batch_size = 2;
            if (number % 3 == 0) run.recompute = {true, true, true};
            if (number % 4 == 0) run.tensor_chunks = 2;
            const std::string what =
                text(settings.model.experts.count, " experts on ", expert, " ranks, tensor ",
                     tensor, ", room for ", capacity, ", ", plan::name(sharding), ", ", number);
            const History history = train_history(run, MPI_COMM_WORLD);
            most_rounds = std::max(most_rounds, history.most_rounds);
            expect_same_bits(history, one, what);
          }
  }
  EXPECT_GT(most_rounds, 1);
}

/// All of a mixture but what is frozen.
TEST(Experts, WhatIsFrozenMayBeOnTensorRanks) {
  if (world_ranks() != 2 && world_ranks() != 4) GTEST_SKIP() << "takes two or four ranks";
  for (config::Settings settings : mixtures_in_pieces())
    for (const char* frozen : {"*.mlp.router.*", "*norm*", "*.mlp.experts.*", "*.mlp.shared.*",
                               "*.mlp.experts.*.down.*"}) {
      if (frozen == std::string("*.mlp.shared.*") && settings.model.experts.shared == 0) continue;
      settings.optimizer.parameters = {{frozen, true, {}, {}}};
      const History one = reference_run(settings);
      config::Settings run = settings;
      run.tensor = 2;
      run.expert = world_ranks();
      run.recompute.norms = run.recompute.mlp = world_ranks() == 4;
      expect_same_bits(train_history(run, MPI_COMM_WORLD), one, frozen);
    }
}

/// What is written does not depend on the padding that ranks' parts have.
TEST(Experts, WeightsAreWrittenAsThoseOfOneRank) {
  if (world_ranks() != 4) GTEST_SKIP() << "takes four ranks";
  const testing::SharedFolder folder;
  config::Settings settings = mixtures_in_pieces()[0];
  settings.model.experts.count = 6;  // the three of a part are no multiple of 128 elements
  settings.model.experts.width = 24;
  settings.tensor_grain = 2;
  const auto write = [&](const config::Settings& own, MPI_Comm comm, const std::string& name) {
    SmallRun run(own, comm);
    run.step(1);
    train::save_weights(run.trainer, run.mesh.world(), folder.file(name),
                        {config::write_deck(settings), 1, "bytes", ""}, [] {});
  };
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) write(settings, MPI_COMM_SELF, "one.h5");
  for (const std::int64_t tensor : {1, 2}) {
    config::Settings shared = settings;
    shared.tensor = tensor;
    shared.expert = 2;
    write(shared, MPI_COMM_WORLD, "shared.h5");
    if (rank != 0) continue;
    const checkpoint::WeightsReader one(folder.file("one.h5")), all(folder.file("shared.h5"));
    for (const checkpoint::WeightsReader::Entry& entry : one.parameters()) {
      std::int64_t elements = 1;
      for (const std::int64_t extent : entry.shape) elements *= extent;
      std::vector<float> expected(static_cast<std::size_t>(elements)), found(expected.size());
      one.read(entry.unit, entry.parameter, entry.shape, expected.data());
      all.read(entry.unit, entry.parameter, entry.shape, found.data());
      EXPECT_EQ(found, expected) << entry.unit << "." << entry.parameter << ", tensor " << tensor;
    }
  }
}

/// With all that divides ranks besides, and all that else a deck may say.
TEST(Experts, AllElseHasTheBitsOfOneRankWhereRanksShareThem) {
  const int ranks = world_ranks();
  if (ranks != 4) GTEST_SKIP() << "on four ranks";
  const std::string factors =
      "model 4, expert 2, context 2, pipeline 2, schedule 3, group 3, sharding 4, "
      "over 2, offload 4, host_activations 2, checkpointing 4, reshard 4, streams 2, "
      "accumulation 3, optimizer 3, frozen 3, precision 2, order 3, capacity 3, "
      "updates 2, nodes 2, tensor 3, chunks 2";
  std::vector<config::Settings> models = mixtures_in_pieces();
  models[0].model.experts.count = 8;
  const auto shard_group = [&](const NamedRow& row) {
    const int stage = ranks >> row["pipeline"], expert_ranks = 2 << row["expert"];
    const int smallest = std::max(expert_ranks, 1 << (row["context"] + row["tensor"]));
    return row["group"] == 0 ? stage : row["group"] == 1 ? smallest : std::min(stage, 2 * smallest);
  };
  const auto is_valid = [&](const NamedRow& row) {
    const int stage = ranks >> row["pipeline"], expert_ranks = 2 << row["expert"];
    if (expert_ranks > stage || (1 << (row["context"] + row["tensor"])) > stage) return false;
    if ((1 << row["tensor"]) > expert_ranks || (row["tensor"] == 0 && row["chunks"] != 0))
      return false;
    if (row["nodes"] == 1 && row["tensor"] > 1) return false;
    // Products of other rows may have other bits in 16 bits.
    if (row["precision"] == 1 && row["chunks"] != 0) return false;
    if (row["pipeline"] == 0 && row["schedule"] != 0) return false;
    if (row["updates"] == 1 && row["offload"] != 0) return false;
    // Groups of several nodes of several ranks have levels.
    if (row["nodes"] == 1 && (row["pipeline"] == 1 || shard_group(row) < 4)) return false;
    return row["sharding"] > 0 || row["over"] == 0;
  };
  for (const NamedRow& row : covering_rows(factors, is_valid)) {
    config::Settings settings = models[static_cast<std::size_t>(row["model"])];
    settings.training.steps = 2;
    settings.training.context_grain = 2;
    settings.precision.gather = row["precision"] == 1 ? DType::bf16 : DType::fp32;
    if (row["optimizer"] == 1) settings.optimizer.kind = optim::OptimizerKind::muon;
    if (row["optimizer"] == 2) settings.optimizer.kind = optim::OptimizerKind::lion;
    if (row["frozen"] == 1) settings.optimizer.parameters = {{"*.mlp.experts.*", true, {}, {}}};
    if (row["frozen"] == 2) settings.optimizer.parameters = {{"block.0.*", true, {}, {}}};
    const History one = reference_run(settings);
    config::Settings run = settings;
    run.expert = 2 << row["expert"];
    constexpr double capacities[] = {1.25, 0.3, 2.0};
    run.expert_capacity = capacities[row["capacity"]];
    run.context = 1 << row["context"];
    run.tensor = 1 << row["tensor"];
    run.tensor_chunks = 1 + row["chunks"];
    run.pipeline = 1 << row["pipeline"];
    run.shard_group = shard_group(row);
    plan::PolicyChoices& own = run.parallel;
    if (row["schedule"] == 1) {
      own.schedule = plan::ScheduleKind::interleaved;
      own.chunks = 2;
    }
    if (row["schedule"] == 2) own.schedule = plan::ScheduleKind::zero_bubble;
    apply_policy(row, run);
    if (row["nodes"] == 1) {
      run.ranks_per_node = 2;
      own.hierarchical.kind = plan::Hierarchical::always;
    }
    const std::string what = row.text();
    SCOPED_TRACE(what);
    const History history = train_history(run, MPI_COMM_WORLD);
    // Narrow 16-bit products of other rows have other bits, which is said before step 1.
    if (row["precision"] == 1 && row["context"] == 1)
      EXPECT_NEAR(history.losses.back(), one.losses.back(), 1e-3) << what;
    else
      expect_same_bits(history, one, what);
  }
}

TEST(Experts, LoadIsRelativeToTheMean) {
  config::Settings settings = small_mixtures()[0];
  const History some = reference_run(settings);
  ASSERT_EQ(some.loads.size(), 6u);  // two layers, three steps
  for (const train::ExpertLoad& load : some.loads) {
    EXPECT_LT(load.least, 1.0);
    EXPECT_GT(load.most, 1.0);
    EXPECT_LE(load.most, 2.0);  // half of four experts compute all tokens
  }
  settings.model.experts.per_token = 4;
  for (const train::ExpertLoad& load : reference_run(settings).loads) {
    EXPECT_EQ(load.least, 1.0);
    EXPECT_EQ(load.most, 1.0);
  }
  EXPECT_TRUE(reference_run(small_llama(8)).loads.empty());
}

/// Counts of tokens, and the biases that follow from them, are those of the layers with experts.
TEST(Experts, SomeLayersHaveLoads) {
  const History history = reference_run(small_mixtures()[3]);
  ASSERT_EQ(history.loads.size(), 6u);  // two layers of three, three steps
  for (const train::ExpertLoad& load : history.loads) {
    EXPECT_LE(load.least, 1.0);
    EXPECT_GE(load.most, 1.0);
  }
}

TEST(Experts, ABiasIsNoPartOfTheNorm) {
  config::Settings settings = small_mixtures()[1];
  settings.optimizer.clip_norm = 0.01;  // clips each step
  settings.model.experts.balance = RouterBalance::none;
  const History without = reference_run(settings);
  settings.model.experts.balance = RouterBalance::bias;
  settings.model.experts.balance_rate = 1e-30;  // chooses no other expert
  for (const plan::Offload offload : {plan::Offload::none, plan::Offload::all})
    for (const plan::Sharding sharding : all_shardings) {
      settings.parallel.offload = offload;
      settings.parallel.sharding = sharding;
      const History with = train_history(settings, MPI_COMM_WORLD);
      EXPECT_EQ(with.losses, without.losses);
      EXPECT_EQ(with.norms, without.norms);
    }
  settings.parallel = small_mixtures()[1].parallel;
  settings.model.experts.balance_rate = 0.1;
  EXPECT_NE(reference_run(settings).losses, without.losses);
}

TEST(Experts, AuxiliaryLossIsNoPartOfTheLoss) {
  config::Settings settings = small_mixtures()[0];
  settings.model.experts.balance = RouterBalance::none;
  const History without = reference_run(settings);
  settings.model.experts.balance = RouterBalance::loss;
  settings.model.experts.balance_rate = 0.0;
  const History idle = reference_run(settings);
  settings.model.experts.balance_rate = 0.5;
  const History with = reference_run(settings);
  EXPECT_EQ(idle.digests, without.digests);
  EXPECT_EQ(with.losses.front(), without.losses.front());
  EXPECT_NE(with.norms.front(), without.norms.front());
}

}  // namespace
}  // namespace ostrakon::tests
