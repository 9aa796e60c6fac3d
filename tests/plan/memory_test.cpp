// SPDX-License-Identifier: Apache-2.0

// How buffers share an arena: never two that are live at the same time, and in hardly more bytes
// than the peak of live bytes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

double overhead(const MemoryPlan& memory) {
  return static_cast<double>(memory.arena_bytes) / static_cast<double>(memory.peak_live_bytes) - 1;
}

bool is_in(const Buffer& buffer, Space space) {
  return buffer.space == space && (buffer.persistent || buffer.first >= 0);
}

bool alive_together(const Buffer& a, const Buffer& b) {
  return a.persistent || b.persistent || (a.first <= b.last && b.first <= a.last);
}

void expect_apart(const StepPlan& plan, const MemoryPlan& memory) {
  std::int64_t end = memory.persistent_bytes;
  for (std::size_t x = 0; x < plan.buffers.size(); ++x) {
    if (!is_in(plan.buffers[x], memory.space)) {
      ASSERT_EQ(memory.offsets[x], -1);
      continue;
    }
    const std::int64_t begin_x = memory.offsets[x], end_x = begin_x + plan.buffers[x].bytes;
    ASSERT_EQ(begin_x % buffer_alignment, 0);
    ASSERT_EQ(begin_x < memory.persistent_bytes, plan.buffers[x].persistent);
    ASSERT_LE(end_x, memory.arena_bytes);
    end = std::max(end, end_x);
    for (std::size_t y = x + 1; y < plan.buffers.size(); ++y) {
      if (!is_in(plan.buffers[y], memory.space)) continue;
      if (!alive_together(plan.buffers[x], plan.buffers[y])) continue;
      const std::int64_t begin_y = memory.offsets[y], end_y = begin_y + plan.buffers[y].bytes;
      ASSERT_TRUE(end_x <= begin_y || end_y <= begin_x)
          << plan.buffers[x].name << " and " << plan.buffers[y].name;
    }
  }
  EXPECT_LT(memory.arena_bytes - end, buffer_alignment);
}

TEST(MemoryPlan, BuffersWithOverlappingLifetimesShareNothing) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < tests::trials(300); ++trial) {
    const int ranks = static_cast<int>(1 + random() % 4);
    const ModelDescription model =
        make_model(static_cast<int>(1 + random() % 4), random() % 2 == 0, random());
    const std::int64_t leaves = ranks * static_cast<std::int64_t>(1 + random() % 7);
    for (Purpose purpose : purposes) {
      StepPlan plan;
      Policy policy = random_policy(random, model, ranks, leaves);
      place_on_nodes(random, ranks, policy);
      try {
        plan = build_step_plan(model, ranks, policy, purpose);
      } catch (const Error&) {
        continue;  // a limit that is too low
      }
      for (Space space : {Space::device, Space::host}) {
        expect_apart(plan, plan_memory(plan, space));
        if (HasFatalFailure()) FAIL() << "trial " << trial;
      }
    }
  }
}

TEST(MemoryPlan, PeakIsTheMostThatIsLiveAtOneAction) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 20; ++trial) {
    const ModelDescription model = make_model(2, random() % 2 == 0, random());
    const StepPlan plan =
        build_step_plan(model, 2, make_policy(4, random() % choices), Purpose::train);
    for (Space space : {Space::device, Space::host}) {
      const MemoryPlan memory = plan_memory(plan, space);
      std::int64_t most = 0;
      for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
        std::int64_t live_bytes = 0;
        std::array<std::int64_t, categories> by_category{};
        for (const Buffer& buffer : plan.buffers) {
          if (buffer.space != space) continue;
          if (!buffer.persistent && (a < buffer.first || a > buffer.last)) continue;
          const std::int64_t bytes =
              (buffer.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
          live_bytes += bytes;
          by_category[static_cast<std::size_t>(buffer.category)] += bytes;
        }
        most = std::max(most, live_bytes);
        if (a == memory.peak_action) {
          EXPECT_EQ(live_bytes, memory.peak_live_bytes);
          EXPECT_EQ(by_category, memory.peak_by_category);
        }
      }
      EXPECT_EQ(most, memory.peak_live_bytes);
    }
  }
}

TEST(MemoryPlan, ASpaceWithoutBuffersNeedsNothing) {
  StepPlan plan;
  plan.actions.resize(1);
  const MemoryPlan memory = plan_memory(plan, Space::host);
  EXPECT_EQ(memory.arena_bytes, 0);
  EXPECT_EQ(memory.peak_action, -1);
  EXPECT_NO_THROW(prove_memory(plan, memory));
  EXPECT_NE(memory_table(plan, memory).find("no action"), std::string::npos);
}

// ---- plans of all policies, and memory that is broken on purpose

TEST(MemoryPlan, IsProvenForEveryPolicyAndCloseToTheLowerBound) {
  std::mt19937_64 random(8);
  double worst = 1.0;
  for (std::uint64_t trial = 0; trial < static_cast<std::uint64_t>(tests::trials(400)); ++trial) {
    const int ranks = 1 << random() % 4;
    const std::int64_t leaves = ranks * static_cast<std::int64_t>(1 + random() % 6);
    const ModelDescription model =
        make_model(static_cast<int>(1 + random() % 6), random() % 2 == 0, random());
    Policy policy = make_policy(leaves, random() % choices);
    const std::vector<int> groups = groups_of(ranks);
    policy.shard_group = groups[random() % groups.size()];
    place_on_nodes(random, ranks, policy);
    for (Purpose purpose : purposes) {
      const StepPlan plan = build_step_plan(model, ranks, policy, purpose);
      const MemoryPlan memory = plan_memory(plan);
      ASSERT_NO_THROW(prove_memory(plan, memory)) << "trial " << trial;
      ASSERT_GE(memory.arena_bytes, memory.peak_live_bytes);
      if (purpose == Purpose::train)
        worst = std::max(worst, static_cast<double>(memory.arena_bytes) /
                                    static_cast<double>(memory.peak_live_bytes));
    }
  }
  // Sizes at random are the hard case; those of a transformer, all alike, are the easy one.
  EXPECT_LT(worst, 1.25);
}

TEST(MemoryPlan, ArenasOfPlansThatAreAlikeAreKnown) {
  KnownArenas known;
  const auto plan_with = [](int layers, bool tied) {
    return build_step_plan(make_model(layers, tied, 13), 2, make_policy(16), Purpose::train);
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
  const StepPlan plan =
      build_step_plan(make_model(60, true, 13), 2, make_policy(512), Purpose::train);
  ASSERT_GT(plan.buffers.size(), 50000u);
  const MemoryPlan memory = plan_memory(plan);
  EXPECT_NO_THROW(prove_memory(plan, memory));
  EXPECT_LT(static_cast<double>(memory.arena_bytes),
            1.25 * static_cast<double>(memory.peak_live_bytes));
}

TEST(MemoryPlan, ProofFindsOverlap) {
  const StepPlan plan = build_step_plan(make_model(2, false, 9), 2, make_policy(4), Purpose::train);
  const MemoryPlan good = plan_memory(plan);
  int caught = 0, tried = 0;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    for (std::size_t other = 0; other < plan.buffers.size(); ++other) {
      const Buffer &x = plan.buffers[b], &y = plan.buffers[other];
      if (b == other || x.space != Space::device || y.space != Space::device) continue;
      const bool together =
          (x.persistent && y.persistent) ||
          (!x.persistent && !y.persistent && x.first <= y.last && y.first <= x.last);
      if (!together) continue;
      MemoryPlan broken = good;
      broken.offsets[b] = good.offsets[other];
      broken.arena_bytes += x.bytes + y.bytes;
      ++tried;
      try {
        prove_memory(plan, broken);
      } catch (const std::logic_error&) {
        ++caught;
      }
    }
  }
  EXPECT_GT(tried, 500);
  EXPECT_EQ(caught, tried);
}

TEST(MemoryPlan, ProofFindsShortLifetimes) {
  const StepPlan good = build_step_plan(make_model(2, true, 10), 2, make_policy(4), Purpose::train);
  for (std::size_t b = 0; b < good.buffers.size(); ++b) {
    if (good.buffers[b].persistent || good.buffers[b].first == good.buffers[b].last) continue;
    StepPlan broken = good;
    broken.buffers[b].last -= 1;
    EXPECT_THROW(prove_memory(broken, plan_memory(broken)), std::logic_error)
        << good.buffers[b].name;
  }
}

TEST(MemoryPlan, ProofFindsReadsOfWhatNothingWrote) {
  const StepPlan good =
      build_step_plan(make_model(2, false, 11), 2, make_policy(4), Purpose::train);
  int dropped = 0;
  for (std::size_t a = 0; a < good.actions.size(); ++a) {
    const Kind kind = good.actions[a].kind;
    if (kind != Kind::gather && kind != Kind::load && kind != Kind::copy_to_device &&
        kind != Kind::copy_to_host)
      continue;
    StepPlan broken = good;
    broken.actions[a].uses.clear();
    const auto prove = [&] {
      for (const Space space : {Space::device, Space::host})
        prove_memory(broken, plan_memory(good, space));
    };
    EXPECT_THROW(prove(), std::logic_error) << good.describe(good.actions[a]);
    ++dropped;
  }
  EXPECT_GT(dropped, 4);
}

TEST(MemoryPlan, TableNamesThePeak) {
  const StepPlan plan =
      build_step_plan(make_model(2, false, 12), 2, make_policy(2), Purpose::train);
  const std::string table = memory_table(plan, plan_memory(plan));
  EXPECT_NE(table.find("optimizer state"), std::string::npos) << table;
  EXPECT_NE(table.find("peak at "), std::string::npos) << table;
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
void expect_tight(const RealModel& model, int ranks, Policy policy, double most,
                  const std::string& which) {
  // At least one leaf for each rank.
  policy.leaves = std::max<std::int64_t>(model.leaves, ranks);
  const StepPlan plan = build_step_plan(model.description, ranks, policy, Purpose::train);
  for (Space space : {Space::device, Space::host}) {
    const MemoryPlan memory = plan_memory(plan, space);
    ASSERT_NO_THROW(prove_memory(plan, memory)) << model.name << ", " << ranks << " ranks";
    EXPECT_LE(overhead(memory), most) << model.name << ", " << ranks << " ranks, " << which;
  }
}

TEST(MemoryPlan, RealModelsNeedHardlyMoreThanTheirLiveBytes) {
  for (const char* name : {"gpt2-124m", "llama3-8b", "llama3-70b", "llama3-405b"}) {
    const RealModel model = read_deck(name);
    for (int ranks : {8, 64, 512, 4096}) expect_tight(model, ranks, {}, 0.005, "as by default");
  }
}

TEST(MemoryPlan, SoDoTheyWithOtherPolicies) {
  std::vector<std::pair<std::string, Policy>> policies;
  const auto add = [&](const std::string& which, const std::function<void(Policy&)>& change) {
    Policy policy;
    change(policy);
    policies.emplace_back(which, policy);
  };
  add("sharding none", [](Policy& policy) { policy.sharding = Sharding::none; });
  add("sharding gradients", [](Policy& policy) { policy.sharding = Sharding::gradients; });
  add("no prefetch", [](Policy& policy) {
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = 0;
    policy.in_flight_reductions = 0;
  });
  add("much prefetch", [](Policy& policy) {
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = 2;
    policy.in_flight_reductions = 3;
  });
  add("reshard never", [](Policy& policy) { policy.reshard_after_forward.kind = Reshard::never; });
  add("reshard partly", [](Policy& policy) {
    policy.reshard_after_forward.kind = Reshard::partly;
    policy.reshard_after_forward.ranks = 4;
  });
  add("reduce each", [](Policy& policy) { policy.accumulation = Accumulation::reduce_each; });
  add("reduce last", [](Policy& policy) { policy.accumulation = Accumulation::reduce_last; });
  add("shuffled leaves", [](Policy& policy) { policy.leaf_order = LeafOrder::shuffled; });
  add("groups of 8", [](Policy& policy) { policy.shard_group = 8; });
  for (Offload offload : {Offload::optimizer, Offload::parameters, Offload::all})
    add("offload " + std::to_string(static_cast<int>(offload)),
        [=](Policy& policy) { policy.offload = offload; });
  add("activations on the host", [](Policy& policy) { policy.offload_activations = true; });
  add("early updates of everything on the host", [](Policy& policy) {
    policy.offload = Offload::all;
    policy.offload_activations = policy.early_updates = true;
  });
  for (const char* name : {"gpt2-124m", "llama3-8b", "llama3-70b", "llama3-405b"}) {
    const RealModel model = read_deck(name);
    for (int ranks : {8, 64, 512}) {
      if (ranks == 64 && !tests::takes_every_case()) continue;
      // More micro-batches are more of the same, and take long where sanitizers run.
      if (model.leaves / ranks > 64) continue;
      for (const auto& [which, policy] : policies)
        // What comes back from the host begins one by one, where much else has ended.
        expect_tight(model, ranks, policy, policy.offload_activations ? 0.08 : 0.03, which);
    }
  }
}

// What is gathered far ahead is live across micro-batches.
TEST(MemoryPlan, SoDoTheyWithDeepPrefetch) {
  const std::pair<const char*, int> layouts[] = {
      {"llama3-8b", 8}, {"llama3-70b", 64}, {"llama3-405b", 64}, {"llama3-405b", 512}};
  const bool every = tests::takes_every_case();
  for (const auto& [name, ranks] : layouts) {
    if (!every && ranks == 64) continue;
    const RealModel model = read_deck(name);
    for (int depth : {8, 16, 40, 130}) {
      if (!every && depth == 40) continue;
      for (int kind : {Reshard::automatic, Reshard::always, Reshard::never, Reshard::partly}) {
        Policy policy;
        policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
        policy.reshard_after_forward.kind = static_cast<Reshard::Kind>(kind);
        policy.reshard_after_forward.ranks = 2;
        policy.in_flight_reductions = depth == 16 ? 3 : 1;
        expect_tight(model, ranks, policy, 0.03,
                     "prefetch " + std::to_string(depth) + ", reshard " + std::to_string(kind));
      }
    }
  }
}

}  // namespace
