// SPDX-License-Identifier: Apache-2.0

// How buffers share an arena: never two that are live at the same time, and in hardly more bytes
// than the peak of live bytes.

#include <fstream>
#include <iterator>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/trainer/make_trainer.hpp>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

TEST(MemoryPlan, ASpaceWithoutBuffersNeedsNothing) {
  StepPlan plan;
  plan.actions.resize(1);
  const MemoryPlan memory = plan_memory(plan, Space::host);
  EXPECT_EQ(memory.arena_bytes, 0);
  EXPECT_EQ(memory.peak_action, -1);
  EXPECT_NO_THROW(prove_memory(plan, memory));
  EXPECT_HAS(memory_table(plan, memory), "no action");
}

TEST(MemoryPlan, ArenasOfPlansThatAreAlikeAreKnown) {
  ArenaSizeCache known;
  const auto plan_with = [](int layers, bool tied) {
    return train_plan(make_model(layers, tied, 13), 2, make_policy(16));
  };
  for (int again = 0; again < 2; ++again)
    for (const int layers : {2, 3, 5})
      for (const bool tied : {false, true}) {
        StepPlan plan = plan_with(layers, tied);
        EXPECT_EQ(known.arena_bytes(plan), plan_memory(plan).arena_bytes);
        // One buffer is larger, or lives longer.
        for (Buffer& buffer : plan.buffers) {
          if (buffer.persistent || buffer.first < 0 || buffer.space != Space::device) continue;
          buffer.bytes += 4096;
          EXPECT_EQ(known.arena_bytes(plan), plan_memory(plan).arena_bytes);
          buffer.last = static_cast<int>(plan.actions.size()) - 1;
          EXPECT_EQ(known.arena_bytes(plan), plan_memory(plan).arena_bytes);
          break;
        }
      }
}

TEST(MemoryPlan, LongPlansArePlacedToo) {
  const StepPlan plan = train_plan(make_model(60, true, 13), 2, make_policy(512));
  ASSERT_GT(plan.buffers.size(), 50000u);
  const MemoryPlan memory = plan_memory(plan);
  EXPECT_NO_THROW(prove_memory(plan, memory));
  EXPECT_LT(static_cast<double>(memory.arena_bytes),
            1.25 * static_cast<double>(memory.peak_live_bytes));
}

TEST(MemoryPlan, TableNamesThePeak) {
  const StepPlan plan = train_plan(make_model(2, false, 10), 2, make_policy(4));
  const std::string table = memory_table(plan, plan_memory(plan));
  EXPECT_HAS(table, "optimizer state");
  EXPECT_HAS(table, "peak at ");
}

// ---- real models

struct RealModel {
  std::string name;
  ModelDescription description;
  std::int64_t leaves = 1;
};

RealModel read_deck(const std::string& name) {
  const std::string path = std::string(OSTRAKON_SOURCE_DIR) + "/input_decks/" + name + ".yaml";
  std::ifstream file(path);
  const std::string deck((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The policies below are the tests' own; sizes are those of fp32, with all that is saved.
  const config::Settings settings =
      config::read_settings(deck, path,
                            {config::parse_override("precision.gather=fp32"),
                             config::parse_override("memory.activation_checkpointing=none")});
  return {name, train::describe(*train::make_decoder(settings), settings.optimizer),
          settings.training.micro_batches()};
}

/// Plans a step of `model`; the arena may be `most` over what no layout can do without.
void expect_tight(const RealModel& model, int ranks, Policy policy, double most) {
  // At least one leaf for each rank.
  policy.leaves = std::max<std::int64_t>(model.leaves, ranks);
  const StepPlan plan = train_plan(model.description, ranks, policy);
  for (Space space : both_spaces) {
    const MemoryPlan memory = plan_memory(plan, space);
    ASSERT_NO_THROW(prove_memory(plan, memory)) << model.name << ", " << ranks << " ranks";
    EXPECT_LE(static_cast<double>(memory.arena_bytes),
              (1.0 + most) * static_cast<double>(memory.peak_live_bytes))
        << model.name << ", " << ranks << " ranks";
  }
}

const char* const decks[] = {"gpt2-124m", "llama3-8b", "llama3-70b", "llama3-405b"};

TEST(MemoryPlan, RealModelsNeedHardlyMoreThanTheirLiveBytes) {
  for (const char* name : decks) {
    const RealModel model = read_deck(name);
    for (int ranks : {8, 64, 512, 4096}) expect_tight(model, ranks, {}, 0.005);
  }
}

TEST(MemoryPlan, SoDoTheyWithOtherPolicies) {
  const auto prefetch = [](Policy& policy, int depth, int in_flight) {
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
    policy.in_flight_reductions = in_flight;
  };
  const std::vector<std::function<void(Policy&)>> changes = {
      [](Policy& policy) { policy.sharding = Sharding::none; },
      [](Policy& policy) { policy.sharding = Sharding::gradients; },
      [&](Policy& policy) { prefetch(policy, 0, 0); },
      [&](Policy& policy) { prefetch(policy, 2, 3); },
      [](Policy& policy) { policy.reshard_after_forward.kind = Reshard::never; },
      [](Policy& policy) {
        policy.reshard_after_forward = {Reshard::partly, 4};
      },
      [](Policy& policy) { policy.accumulation = Accumulation::reduce_each; },
      [](Policy& policy) { policy.accumulation = Accumulation::reduce_last; },
      [](Policy& policy) { policy.leaf_order = LeafOrder::shuffled; },
      [](Policy& policy) { policy.shard_group = 8; },
      [](Policy& policy) { policy.offload = Offload::optimizer; },
      [](Policy& policy) { policy.offload = Offload::parameters; },
      [](Policy& policy) { policy.offload = Offload::all; },
      [](Policy& policy) { policy.offload_activations = true; },
      [](Policy& policy) {
        policy.offload = Offload::all;
        policy.offload_activations = policy.early_updates = true;
      }};
  for (const char* name : decks) {
    const RealModel model = read_deck(name);
    for (int ranks : {8, 64, 512}) {
      if (ranks == 64 && !takes_every_case()) continue;
      // More micro-batches are more of the same, and take long where sanitizers run.
      if (model.leaves / ranks > 64) continue;
      for (std::size_t c = 0; c < changes.size(); ++c) {
        SCOPED_TRACE(text("change ", c));
        Policy policy;
        changes[c](policy);
        // What comes back from the host begins one by one, where much else has ended.
        expect_tight(model, ranks, policy, policy.offload_activations ? 0.08 : 0.03);
      }
    }
  }
}

// What is gathered far ahead is live across micro-batches.
TEST(MemoryPlan, SoDoTheyWithDeepPrefetch) {
  const std::pair<const char*, int> layouts[] = {
      {"llama3-8b", 8}, {"llama3-70b", 64}, {"llama3-405b", 64}, {"llama3-405b", 512}};
  for (const auto& [name, ranks] : layouts) {
    if (!takes_every_case() && ranks == 64) continue;
    const RealModel model = read_deck(name);
    for (int depth : {8, 16, 40, 130}) {
      if (!takes_every_case() && depth == 40) continue;
      for (int kind : {Reshard::automatic, Reshard::always, Reshard::never, Reshard::partly}) {
        SCOPED_TRACE(text("prefetch ", depth, ", reshard ", kind));
        Policy policy;
        policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
        policy.reshard_after_forward = {static_cast<Reshard::Kind>(kind), 2};
        policy.in_flight_reductions = depth == 16 ? 3 : 1;
        expect_tight(model, ranks, policy, 0.03);
      }
    }
  }
}

}  // namespace
}  // namespace ostrakon::tests
