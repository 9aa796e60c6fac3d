// SPDX-License-Identifier: Apache-2.0

// The search for what fits among pipelines, and among models with experts over ranks, against
// planning every candidate.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_least.hpp>
#include <ostrakon/plan/fit_order.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/stages.hpp>
#include <random>
#include <vector>

#include "fit_figures.hpp"
#include "random_pipelines.hpp"
#include "support/trials.hpp"

// Names are those of fit_test.cpp, too.
namespace ostrakon::tests::pipelines {
namespace {

using namespace ostrakon::plan;

constexpr int ranks = 8;
constexpr int ranks_per_node = 2;
/// So that no term of the estimate drowns the others.
constexpr Rates rates = {1e3, 1e6, 1e5, 4e5, 2e6};

/// How much is in a model and in policies, besides pipelines.
struct Contents {
  bool varies = false;   // frozen parameters, matrices, offload, and so on
  bool phases = false;   // with exchanges
  bool experts = false;  // over ranks
};

struct Many {
  std::deque<ModelDescription> models;
  std::vector<Candidate> candidates;
};

/// Models for one candidate each, or for several that differ in their policies.
Many make_many(std::uint64_t seed, int count, const Contents& contents) {
  std::mt19937_64 random(seed);
  const auto below = [&](int most) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(most));
  };
  Many many;
  while (static_cast<int>(many.candidates.size()) < count) {
    many.models.push_back(make_model(2 + below(9), below(3) == 0, random()));
    ModelDescription& model = many.models.back();
    for (UnitDescription& unit : model.units) {
      unit.recomputes = unit.saved_bytes > 0 && below(3) > 0;
      if (unit.recomputes) unit.forward.front().recompute_flops = 0.9 * unit.forward.front().flops;
      // Like blocks can be divided in several ways.
      if (below(2) == 0 || unit.saved_bytes == 0) continue;
      unit.forward.front().flops = 500.0;
      unit.backward.front().flops = 1000.0;
    }
    if (contents.varies) vary(random, model);
    const bool defers = below(2) == 0;
    const int stages = 1 << below(3), ranks_of_stage = ranks / stages;
    std::optional<Policy> first;
    for (int more = contents.phases || contents.experts ? 1 : 4; more > 0; --more) {
      Candidate candidate;
      candidate.model = &model;
      Policy& policy = candidate.policy;
      policy = random_policy(random, model, ranks_of_stage,
                             std::int64_t{ranks_of_stage} * (1 + below(12)));
      if (contents.varies) vary(random, model, policy);
      if (below(3) == 0) add_grain(random, ranks_of_stage, policy);
      const int group = policy.shard_group > 0 ? policy.shard_group : ranks_of_stage;
      if (contents.phases) divide_into_phases(random, model, ranks_of_stage, group);
      if (contents.experts) divide_into_parts(random, model, group, policy);
      if (defers && more == 1 && !first) defer_gradients(random, model);
      policy.activation_checkpointing.every = below(4);
      policy.ranks_per_node = ranks_per_node;
      policy.hierarchical.bytes = below(2) == 0 ? 1 : std::int64_t{1} << 40;
      policy.stages = stages;
      const int kind = below(4);
      if (stages > 1 && kind == 1) policy.chunks = 2;
      if (stages > 1 && kind == 1) policy.schedule = ScheduleKind::interleaved;
      if (stages > 1 && kind > 1) policy.schedule = ScheduleKind::zero_bubble;
      if (kind == 3) policy.zero_bubble_memory = ZeroBubbleMemory::unlimited;
      first = policy;
      many.candidates.push_back(candidate);
    }
  }
  for (Candidate& candidate : many.candidates) candidate.family = below(count / 3) - 2;
  return many;
}

/// By the way of every plan; nothing where it can't be planned.
std::optional<Fit> plan_all(const Candidate& candidate, int index) {
  Fit fit;
  fit.candidate = index;
  try {
    const Policy& policy = candidate.policy;
    const int own = ranks / policy.stages;
    const std::vector<UnitRange> chunks = find_chunks(*candidate.model, own, policy);
    for (Purpose purpose : purposes) {
      const std::vector<StepPlan> plans =
          build_stage_plans(*candidate.model, chunks, own, policy, purpose);
      std::size_t largest = 0;
      std::vector<MemoryPlan> memory, host_memory;
      std::vector<const StepPlan*> stages;
      for (const StepPlan& plan : plans) {
        stages.push_back(&plan);
        memory.push_back(plan_memory(plan));
        host_memory.push_back(plan_memory(plan, Space::host));
        fit.arena_bytes = std::max(fit.arena_bytes, memory.back().arena_bytes);
        fit.host_arena_bytes = std::max(fit.host_arena_bytes, host_memory.back().arena_bytes);
        if (memory.back().arena_bytes > memory[largest].arena_bytes) largest = memory.size() - 1;
      }
      if (purpose != Purpose::train) continue;
      const StepPlan& shown = plans[largest];
      const Report report =
          make_report(shown, memory[largest], host_memory[largest], ranks_per_node);
      fit.flops = shown.flops();
      fit.bits_of_one_rank = shown.has_the_bits_of_one_rank();
      fit.bytes_inside_nodes = report.bytes_inside_nodes;
      fit.bytes_across_nodes = report.bytes_across_nodes;
      fit.bytes_on_host = report.bytes_on_host;
      for (const Action& action : shown.actions)
        if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host)
          fit.bytes_copied += action.elements * action.element_bytes;
      const Timing timing = estimate_times(stages, ranks_per_node, rates)[largest];
      fit.seconds = timing.seconds;
      fit.exposed_communication = timing.exposed_communication;
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return fit;
}

using Figures = std::vector<std::optional<Fit>>;  // of each candidate

Figures plan_all(const std::vector<Candidate>& candidates) {
  Figures figures;
  for (const Candidate& candidate : candidates)
    figures.push_back(plan_all(candidate, static_cast<int>(figures.size())));
  return figures;
}

/// What find_fits says, of the figures of all candidates, where the list has no end.
std::vector<Fit> choose(const std::vector<Candidate>& candidates, const Figures& figures,
                        const Room& room) {
  std::map<int, Fit> of_family;
  int alone = -1;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    if (!figures[c] || !has_room(*figures[c], room)) continue;
    const int family = candidates[c].family < 0 ? --alone : candidates[c].family;
    const auto [found, is_new] = of_family.emplace(family, *figures[c]);
    if (!is_new && is_faster(figures[c]->seconds, found->second)) found->second = *figures[c];
  }
  std::vector<Fit> chosen, best;
  for (const auto& [family, fit] : of_family) chosen.push_back(fit);
  std::sort(chosen.begin(), chosen.end(), is_better);
  for (const Fit& fit : chosen)
    if (std::none_of(best.begin(), best.end(),
                     [&](const Fit& other) { return is_needless(fit, other); }))
      best.push_back(fit);
  return best;
}

void expect_same(const Fit& a, const Fit& b) {
  expect_same_counts(a, b);
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.exposed_communication, b.exposed_communication);
}

/// Replaces zero_bubble in the memory of 1f1b by 1f1b.
std::vector<Candidate> in_memory_of_1f1b(std::vector<Candidate> candidates) {
  for (Candidate& candidate : candidates) {
    Policy& policy = candidate.policy;
    if (policy.schedule != ScheduleKind::zero_bubble ||
        policy.zero_bubble_memory == ZeroBubbleMemory::unlimited)
      continue;
    policy.chunk_units.clear();
    for (const UnitRange& chunk : make_chunks(*candidate.model, policy))
      policy.chunk_units.push_back(chunk.end - chunk.first);
    policy.schedule = ScheduleKind::one_forward_one_backward;
  }
  return candidates;
}

constexpr Contents all_contents[] = {{false, false, false},
                                     {true, false, false},
                                     {true, true, false},
                                     {false, true, true},
                                     {true, true, true}};

TEST(FitPipelines, FindsWhatPlanningAllFinds) {
  std::int64_t unplanned = 0, needless = 0, too_large = 0, rows = 0, ends = 0;
  const std::uint64_t seeds = takes_every_case() ? 12 : 1;
  constexpr int count = 60;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (const Contents& contents : all_contents) {
      const Many many = make_many(seed, count, contents);
      const std::vector<Candidate> compared = in_memory_of_1f1b(many.candidates);
      const Figures all = plan_all(compared);
      std::vector<std::int64_t> arenas, host_arenas;
      for (const std::optional<Fit>& fit : all) {
        if (!fit) continue;
        arenas.push_back(fit->arena_bytes);
        host_arenas.push_back(fit->host_arena_bytes);
      }
      std::sort(arenas.begin(), arenas.end());
      std::sort(host_arenas.begin(), host_arenas.end());
      for (std::size_t part : {1, 4, 8}) {
        Room room;
        room.device_bytes = arenas[(arenas.size() - 1) * part / 8];
        if (seed % 2 == 1) room.host_bytes = host_arenas[host_arenas.size() * 3 / 4];
        std::vector<Fit> expected = choose(compared, all, room);
        for (Fit& fit : expected)
          fit = *plan_all(many.candidates[static_cast<std::size_t>(fit.candidate)], fit.candidate);
        expected.erase(std::remove_if(expected.begin(), expected.end(),
                                      [&](const Fit& fit) { return !has_room(fit, room); }),
                       expected.end());
        std::stable_sort(expected.begin(), expected.end(), is_better);
        const Fits found = find_fits(many.candidates, ranks, ranks_per_node, room, rates, 1000);
        ASSERT_EQ(found.best.size(), expected.size()) << seed;
        for (std::size_t i = 0; i < expected.size(); ++i) expect_same(found.best[i], expected[i]);
        rows += static_cast<std::int64_t>(expected.size());
        needless += found.needless;
        too_large += found.too_large;
        // A list that ends has the first of these.
        const Fits few = find_fits(many.candidates, ranks, ranks_per_node, room, rates, 2);
        const bool in_one_order =
            std::none_of(expected.begin(), expected.end(), [&](const Fit& fit) {
              const auto c = static_cast<std::size_t>(fit.candidate);
              return compared[c].policy.schedule != many.candidates[c].policy.schedule;
            });
        if (in_one_order && !expected.empty()) {
          EXPECT_EQ(few.best.at(0).candidate, expected[0].candidate) << seed;
          ++ends;
        }
        unplanned += few.too_slow;
      }
    }
  EXPECT_GT(rows, 0);
  EXPECT_GT(ends, 0);
  EXPECT_GT(unplanned, 0);
  EXPECT_GT(needless, 0);
  EXPECT_GT(too_large, 0);
}

TEST(FitPipelines, NothingTakesLessThanItsBounds) {
  double time = 0.0, memory = 0.0, host_memory = 0.0;
  int planned = 0;
  const std::uint64_t seeds = takes_every_case() ? 40 : 2;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (const Contents& contents : all_contents) {
      const Many many = make_many(100 + seed, 60, contents);
      LeastFinder finder(ranks, ranks_per_node, rates);
      for (std::size_t c = 0; c < many.candidates.size(); ++c) {
        const Candidate& candidate = many.candidates[c];
        const std::optional<Fit> fit = plan_all(candidate, static_cast<int>(c));
        if (!fit) continue;
        const Least least = finder.of(candidate);
        const std::string of =
            text("seed ", seed, ", candidate ", c, ", ", candidate.policy.stages, " stages, ",
                 name(candidate.policy.schedule), ", offload ", name(candidate.policy.offload));
        EXPECT_LE(least.device_bytes, fit->arena_bytes) << of;
        EXPECT_LE(least.host_bytes, fit->host_arena_bytes) << of;
        EXPECT_LE(least.seconds, fit->seconds) << of;
        EXPECT_GE(least.bits_of_one_rank, fit->bits_of_one_rank) << of;
        if (candidate.policy.stages == 1) continue;
        ++planned;
        time += least.seconds / fit->seconds;
        memory += static_cast<double>(least.device_bytes) / static_cast<double>(fit->arena_bytes);
        host_memory +=
            static_cast<double>(least.host_bytes) / static_cast<double>(fit->host_arena_bytes);
      }
    }
  // They are of use.
  EXPECT_GT(time / planned, 0.5);
  EXPECT_GT(memory / planned, 0.5);
  EXPECT_GT(host_memory / planned, 0.2);
}

}  // namespace
}  // namespace ostrakon::tests::pipelines
