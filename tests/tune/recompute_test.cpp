// SPDX-License-Identifier: Apache-2.0
// What memory.activation_checkpointing = auto stands for: the least is computed again that fits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <ostrakon/tune/choose.hpp>
#include <ostrakon/tune/recompute.hpp>
#include <string>
#include <support/messages.hpp>
#include <vector>

namespace ostrakon::tune {
namespace {

config::Settings deck_with(const std::string& sections) {
  return config::read_settings(
      "ostrakon:\n"
      "  model: {layers: 6, width: 64, heads: 4, vocabulary: 61, norm: rmsnorm}\n"
      "  data: {dataset: synthetic}\n"
      "  training: {global_batch_size: 8, micro_batch_size: 1, sequence_length: 128}\n" +
          sections,
      "deck.yaml", {{"memory.activation_checkpointing", "auto"}});
}

config::Settings with(config::Settings deck, const std::string& value) {
  const config::Varied key{"memory", "activation_checkpointing"};
  key.set(deck, value);
  return deck;
}

RankCounts on(int ranks) { return {ranks, ranks}; }

struct Planned {
  std::int64_t bytes = 0;  ///< the largest arenas of any stage and purpose, of both kinds
  double flops = 0.0;      ///< of all stages
};

/// Plans without the search: what a run of the deck would do.
Planned plan(const config::Settings& deck, int ranks) {
  const plan::Policy policy = train::resolve(deck, ranks, ranks);
  const plan::ModelDescription model = train::describe(*train::make_decoder(deck), deck.optimizer);
  const int of_stage = ranks / policy.stages;
  const auto of_stages = plan::find_chunks(model, of_stage, policy);
  Planned planned;
  std::int64_t device = 0, host = 0;
  std::vector<plan::Purpose> purposes = {plan::Purpose::train, plan::Purpose::evaluate,
                                         plan::Purpose::export_parameters};
  if (deck.runtime.audit > 0) purposes.push_back(plan::Purpose::audit);
  for (const plan::Purpose purpose : purposes)
    for (const plan::StepPlan& stage :
         plan::build_stage_plans(model, of_stages, of_stage, policy, purpose)) {
      device = std::max(device, plan::plan_memory(stage).arena_bytes);
      host = std::max(host, plan::plan_memory(stage, plan::Space::host).arena_bytes);
      if (purpose == plan::Purpose::train) planned.flops += stage.flops();
    }
  planned.bytes = device + (deck.processor.is_device ? 0 : host);
  return planned;
}

constexpr const char* some_values[] = {"keep norms activations", "none",    "selective attention",
                                       "selective mlp",          "every 2", "full"};

TEST(ChooseRecompute, TakesTheLeastThatFits) {
  const struct {
    const char* sections;
    int ranks;
  } cases[] = {{"", 1},
               {"  parallel: {sharding: optimizer}\n  precision: {gather: bf16}\n", 4},
               {"  runtime: {audit: 10}\n", 2},
               {"  parallel: {pipeline: 2, reshard_after_forward: always}\n", 4}};
  for (const auto& [sections, ranks] : cases) {
    const config::Settings deck = deck_with(sections);
    std::map<std::string, Planned> planned;
    for (const char* value : some_values) planned[value] = plan(with(deck, value), ranks);
    for (const auto& [name, room] : planned) {
      SCOPED_TRACE(std::string(sections) + name);
      const RecomputeChoice kept = choose_recompute(deck, on(ranks), {room.bytes, any_bytes}, 1);
      const Planned chosen = plan(kept.settings, ranks);
      EXPECT_FALSE(kept.settings.chooses_recompute);
      EXPECT_EQ(chosen.bytes, kept.arenas.device);
      EXPECT_LE(chosen.bytes, room.bytes);
      for (const auto& [other, takes] : planned)
        if (takes.flops < chosen.flops) {
          EXPECT_GT(takes.bytes, room.bytes) << other;
        }
    }
    const RecomputeChoice any = choose_recompute(deck, on(ranks), any_memory, 1);
    EXPECT_EQ(any.changes.front(), "memory.activation_checkpointing=keep norms activations");
  }
}

// A rank casts or gathers parameters once for all micro-batches where it has the memory, and a
// deck that says otherwise is obeyed.
TEST(ChooseRecompute, KeepsGatheredParametersWhereTheyFit) {
  const config::Settings deck = deck_with("  precision: {gather: bf16}\n");
  const RecomputeChoice all = choose_recompute(deck, on(1), any_memory, 1);
  EXPECT_EQ(all.settings.parallel.reshard_after_forward.kind, plan::Reshard::end_of_step);
  const RecomputeChoice most = choose_recompute(deck, on(1), {all.arenas.device - 1, any_bytes}, 1);
  EXPECT_LT(most.arenas.device, all.arenas.device);
  EXPECT_EQ(most.settings.recompute.norm_outputs, all.settings.recompute.norm_outputs);
  EXPECT_NE(most.settings.parallel.reshard_after_forward.kind, plan::Reshard::end_of_step);

  const config::Settings said = deck_with("  parallel: {reshard_after_forward: always}\n");
  EXPECT_EQ(
      choose_recompute(said, on(2), any_memory, 1).settings.parallel.reshard_after_forward.kind,
      plan::Reshard::always);
  // Without gathers the key would change nothing.
  const config::Settings whole = deck_with("  parallel: {sharding: none}\n");
  EXPECT_EQ(choose_recompute(whole, on(2), any_memory, 1).changes.size(), 1u);
}

TEST(ChooseRecompute, SaysWhereNothingFits) {
  const config::Settings deck = deck_with("");
  const std::int64_t least = plan(with(deck, "full"), 2).bytes;
  EXPECT_NO_THROW(choose_recompute(deck, on(2), {least, any_bytes}, 1));
  const std::string message = testing::error_of<Error>([&] {
    choose_recompute(deck, on(2), {least / 2, any_bytes}, 1);
  });
  EXPECT_HAS(message, "memory.activation_checkpointing = auto: nothing fits ");
  EXPECT_HAS(message, format_bytes(least));
}

// With parallel.choose, or --choose, it is one of the settings that are searched.
TEST(ChooseRecompute, IsLeftToTheSearchOfAllSettings) {
  Request request;
  request.on = {simulate::machine_with({}), 2, 2};
  request.kept = {"memory.activation_checkpointing"};
  config::Settings deck = deck_with("");
  const Result any = choose(deck, request);
  EXPECT_FALSE(any.best.front().settings.chooses_recompute);
  EXPECT_EQ(any.best.front().changes.back().rfind("memory.activation_checkpointing=", 0), 0u);
  deck.memory_limit = any.best.front().arenas.device - 1;
  EXPECT_LE(choose(deck, request).best.front().arenas.device, deck.memory_limit);
}

}  // namespace
}  // namespace ostrakon::tune
