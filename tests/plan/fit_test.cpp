// SPDX-License-Identifier: Apache-2.0

// The search for what fits against planning every candidate.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/report.hpp>
#include <random>
#include <tuple>
#include <vector>

#include "fit_figures.hpp"
#include "naive_timing.hpp"
#include "random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;

constexpr int ranks = 4;
constexpr int ranks_per_node = 2;
/// So that no term of the estimate drowns the others.
constexpr Rates rates = {1e3, 1e6, 1e5, 4e5, 2e6};

ModelDescription make_recomputing_model(int blocks, bool tied, std::uint64_t seed) {
  ModelDescription model = make_model(blocks, tied, seed);
  for (std::size_t u = 1; u + 1 < model.units.size(); ++u) {
    model.units[u].recomputes = true;
    model.units[u].forward.front().recompute_flops = 0.9 * model.units[u].forward.front().flops;
  }
  model.element_bytes = seed % 2 == 0 ? 4 : 2;
  return model;
}

/// Candidates of different models, leaves and policies.
struct Many {
  std::vector<ModelDescription> models;
  std::vector<Candidate> candidates;
};

Many make_many(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  Many many;
  for (std::uint64_t m = 0; m < 4; ++m)
    many.models.push_back(make_recomputing_model(5, seed % 2 == 1, 10 * seed + m));
  for (std::size_t m : {1, 3}) many.models[m].units.back().sums_tied_apart = true;
  vary(random, many.models.back());
  for (int c = 0; c < count; ++c) {
    Candidate candidate;
    candidate.model = &many.models[random() % many.models.size()];
    const std::int64_t leaves = ranks * static_cast<std::int64_t>(1 + random() % 9);
    candidate.policy = random_policy(random, *candidate.model, ranks, leaves);
    vary(random, *candidate.model, candidate.policy);
    if (random() % 3 == 0) add_grain(random, ranks, candidate.policy);
    candidate.policy.activation_checkpointing.every = static_cast<int>(random() % 4);
    candidate.policy.ranks_per_node = ranks_per_node;
    candidate.policy.hierarchical.bytes = random() % 2 == 0 ? 1 : std::int64_t{1} << 40;
    many.candidates.push_back(candidate);
  }
  // Some twice, and families of all sizes, some of them of one.
  for (int c = 10; c < count; c += 7)
    many.candidates[static_cast<std::size_t>(c)] = many.candidates[static_cast<std::size_t>(c - 9)];
  for (Candidate& candidate : many.candidates)
    candidate.family = static_cast<int>(random() % static_cast<std::uint64_t>(count / 3)) - 2;
  return many;
}

/// By the way of every plan.
Fit plan_all(const Candidate& candidate, int index) {
  Fit fit;
  fit.candidate = index;
  for (Purpose purpose : purposes) {
    const StepPlan plan = build_step_plan(*candidate.model, ranks, candidate.policy, purpose);
    const MemoryPlan memory = plan_memory(plan), host_memory = plan_memory(plan, Space::host);
    fit.arena_bytes = std::max(fit.arena_bytes, memory.arena_bytes);
    fit.host_arena_bytes = std::max(fit.host_arena_bytes, host_memory.arena_bytes);
    if (purpose != Purpose::train) continue;
    const Report report = make_report(plan, memory, host_memory, ranks_per_node);
    fit.flops = plan.flops();
    fit.bits_of_one_rank = plan.has_the_bits_of_one_rank();
    fit.bytes_inside_nodes = report.bytes_inside_nodes;
    fit.bytes_across_nodes = report.bytes_across_nodes;
    for (const Action& action : plan.actions) {
      if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host)
        fit.bytes_copied += action.elements * action.element_bytes;
    }
    fit.bytes_on_host = report.bytes_on_host;
    const Timing timing = naive_timing(plan, ranks_per_node, rates);
    fit.seconds = timing.seconds;
    fit.exposed_communication = timing.exposed_communication;
  }
  return fit;
}

std::vector<Fit> plan_all(const std::vector<Candidate>& candidates) {
  std::vector<Fit> fits;
  for (const Candidate& candidate : candidates)
    fits.push_back(plan_all(candidate, static_cast<int>(fits.size())));
  return fits;
}

void expect_same(const Fit& a, const Fit& b) {
  expect_same_counts(a, b);
  EXPECT_NEAR(a.seconds, b.seconds, 1e-9 * b.seconds);
  EXPECT_NEAR(a.exposed_communication, b.exposed_communication, 1e-9 * b.seconds);
}

/// Whether `fit` has less memory than `other`, somewhere, by more than a per cent.
bool is_leaner(const Fit& fit, const Fit& other) {
  const auto per_cent = [](std::int64_t bytes) { return 0.01 * static_cast<double>(bytes); };
  return static_cast<double>(other.arena_bytes - fit.arena_bytes) >
             per_cent(other.arena_bytes) - 1 ||
         static_cast<double>(other.host_arena_bytes - fit.host_arena_bytes) >
             per_cent(other.arena_bytes + other.host_arena_bytes) - 1;
}

/// Expects that a list is what find_fits says, by the figures of all candidates. `slack` is for
/// figures that are equal but for rounding.
void expect_chosen(const std::vector<Candidate>& candidates, const std::vector<Fit>& all,
                   const Room& room, std::size_t most, const std::vector<Fit>& best) {
  constexpr double slack = 1.0 + 1e-8;
  ASSERT_LE(best.size(), most);
  const auto family = [&](const Fit& fit) {
    return candidates[static_cast<std::size_t>(fit.candidate)].family;
  };
  for (std::size_t i = 0; i < best.size(); ++i) {
    const Fit& fit = best[i];
    expect_same(fit, all[static_cast<std::size_t>(fit.candidate)]);
    EXPECT_TRUE(has_room(fit, room));
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_LE(best[j].seconds, 1.001 * fit.seconds);
      EXPECT_TRUE(family(fit) < 0 || family(fit) != family(best[j]));
      EXPECT_TRUE(is_leaner(fit, best[j]) || fit.bits_of_one_rank > best[j].bits_of_one_rank);
    }
    // What is wanted more would be slower by more than a per cent.
    for (const Fit& other : all)
      if (family(fit) >= 0 && family(other) == family(fit) && other.candidate < fit.candidate &&
          has_room(other, room)) {
        EXPECT_GT(other.seconds * 0.99 * 0.99 * slack, fit.seconds * 0.99);
      }
  }
  // Nothing that is not listed is worth a line.
  for (const Fit& fit : all) {
    if (!has_room(fit, room)) continue;
    if (best.size() == most &&
        (most == 0 || fit.seconds * 1.001 * slack > best.back().seconds * 0.99))
      continue;
    // Another one of its family, hardly slower, is listed or like one that is.
    EXPECT_TRUE(std::any_of(best.begin(), best.end(), [&](const Fit& listed) {
      return listed.seconds <= fit.seconds / 0.99 * 1.001 * slack;
    })) << fit.candidate;
    if (family(fit) >= 0) continue;
    EXPECT_TRUE(std::any_of(best.begin(), best.end(), [&](const Fit& listed) {
      return listed.candidate == fit.candidate ||
             (listed.seconds <= fit.seconds * 1.001 * slack &&
              listed.bits_of_one_rank >= fit.bits_of_one_rank &&
              fit.arena_bytes >= 0.99 * static_cast<double>(listed.arena_bytes) - 1);
    })) << fit.candidate;
  }
}

TEST(Fit, FindsWhatPlanningAllFinds) {
  std::int64_t unplanned = 0, unneeded = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Many many = make_many(seed, 150);
    const std::vector<Fit> all = plan_all(many.candidates);
    std::vector<std::int64_t> arenas, host_arenas;
    for (const Fit& fit : all) {
      arenas.push_back(fit.arena_bytes);
      host_arenas.push_back(fit.host_arena_bytes);
    }
    std::sort(arenas.begin(), arenas.end());
    std::sort(host_arenas.begin(), host_arenas.end());
    for (std::size_t at : {0, 3, 20, 75, 149})
      for (std::size_t most : {1, 10, 1000}) {
        Room room;
        room.device_bytes = arenas[at];
        if (seed % 2 == 0) room.host_bytes = host_arenas[120];
        const Fits fits = find_fits(many.candidates, ranks, ranks_per_node, room, rates, most);
        expect_chosen(many.candidates, all, room, most, fits.best);
        EXPECT_EQ(fits.best.empty(), std::none_of(all.begin(), all.end(), [&](const Fit& fit) {
                    return has_room(fit, room);
                  }));
        if (fits.best.empty()) continue;
        EXPECT_EQ(fits.planned + fits.too_large + fits.too_slow + fits.unneeded, 150);
        unplanned += fits.too_slow;
        unneeded += fits.unneeded;
      }
  }
  EXPECT_GT(unplanned, 0);
  EXPECT_GT(unneeded, 0);
}

/// Two blocks between an embedding and a head, all of the same size: 256 KiB of parameters.
ModelDescription make_even_model() {
  ModelDescription model;
  model.batch_bytes = model.gradient_bytes = 256;
  model.sums_bytes = 64;
  for (const char* name : {"embedding", "block.0", "block.1", "head"}) {
    UnitDescription unit;
    unit.name = name;
    unit.parameter_elements = 1 << 16;
    unit.output_bytes = unit.saved_bytes = unit.backward.front().workspace_bytes = 256;
    unit.forward.front().flops = 1.0;
    unit.backward.front().flops = 2.0;
    model.units.push_back(unit);
  }
  return model;
}

// With 4 units of 3 flops each, and as long for a gather as for a forward, a step without overlap
// takes 12 for computing (3 forwards, 4 backwards of 2: 11), 7 gathers and 4 reductions.
TEST(Fit, APlanThatHidesItsGathersComesBeforeOneThatDoesNot) {
  const ModelDescription model = make_even_model();
  std::vector<Candidate> candidates(2);
  for (Candidate& candidate : candidates) {
    candidate.model = &model;
    candidate.policy.leaves = ranks;
  }
  Policy& without = candidates[0].policy;
  without.forward_prefetch.depth = without.backward_prefetch.depth = 0;
  without.in_flight_reductions = 0;
  without.reshard_after_forward.kind = Reshard::never;
  candidates[1].policy.reshard_after_forward.kind = Reshard::always;
  // 3/4 of 256 KiB in a second.
  Rates even = rates;
  even.flops = 1.0;
  even.bytes_copied = 1e15;
  even.bytes_inside_nodes = even.bytes_across_nodes = 3.0 / 4 * (1 << 18);
  const Room plenty = {std::int64_t{1} << 40};
  const std::vector<Fit> best = find_fits(candidates, ranks, ranks_per_node, plenty, even, 10).best;
  ASSERT_EQ(best.size(), 2u);
  // The one without sends less, and would come first if all were added up.
  EXPECT_EQ(best[0].candidate, 1);
  EXPECT_GT(best[0].bytes_inside_nodes + best[0].bytes_across_nodes,
            best[1].bytes_inside_nodes + best[1].bytes_across_nodes);
  EXPECT_EQ(best[0].flops, 11.0);
  EXPECT_EQ(best[1].flops, 11.0);
  // 11 of computing, 4 gathers, 4 reductions, one after the other.
  EXPECT_NEAR(best[1].seconds, 19.0, 1e-9);
  EXPECT_NEAR(best[1].exposed_communication, 8.0, 1e-9);
  // Hidden are all but the first gather and the last reduction.
  EXPECT_NEAR(best[0].seconds, 13.0, 1e-9);
  EXPECT_NEAR(best[0].exposed_communication, 2.0, 1e-9);
}

TEST(Fit, ListsWhatIsSlowerOnlyWhereItSavesMemory) {
  const ModelDescription model = make_even_model();
  ModelDescription like = model, slower = model, leaner = model;
  like.units[1].forward.front().flops += 0.05;
  slower.units[1].forward.front().flops += 1.0;
  leaner.units[1].forward.front().flops += 0.05;
  for (std::size_t u = 0; u < 4; ++u) leaner.units[u].backward.front().workspace_bytes = 0;
  std::vector<Candidate> candidates(4);
  candidates[0].model = &model;
  candidates[1].model = &like;
  candidates[2].model = &slower;
  candidates[3].model = &leaner;
  for (Candidate& candidate : candidates) candidate.policy.leaves = ranks;
  const Room plenty = {std::int64_t{1} << 40};
  const Rates fast = {1.0, 1e12, 1e12, 1e12, 1e12};
  const auto listed = [&] {
    std::vector<int> numbers;
    for (const Fit& fit : find_fits(candidates, ranks, ranks_per_node, plenty, fast, 10).best)
      numbers.push_back(fit.candidate);
    return numbers;
  };
  // 256 bytes of workspace are no per cent of this arena.
  EXPECT_EQ(listed(), (std::vector<int>{0}));
  for (std::size_t u = 0; u < 4; ++u)
    for (ModelDescription* one : {&like, &slower})
      one->units[u].backward.front().workspace_bytes = 1 << 20;
  ModelDescription fat = model;
  for (UnitDescription& unit : fat.units) unit.backward.front().workspace_bytes = 1 << 20;
  candidates[0].model = &fat;
  EXPECT_EQ(listed(), (std::vector<int>{0, 3}));
  for (UnitDescription& unit : slower.units) unit.backward.front().workspace_bytes = 1 << 18;
  EXPECT_EQ(listed(), (std::vector<int>{0, 3})) << "leaner is faster and needs less";
  for (UnitDescription& unit : leaner.units) unit.backward.front().workspace_bytes = 1 << 19;
  EXPECT_EQ(listed(), (std::vector<int>{0, 3, 2}));
  // In one family the first is enough, unless a later one is faster by more than a per cent.
  for (Candidate& candidate : candidates) candidate.family = 7;
  EXPECT_EQ(listed(), (std::vector<int>{0}));
  std::swap(candidates[0], candidates[2]);
  EXPECT_EQ(listed(), (std::vector<int>{1}));
}

TEST(Fit, NamesTheSmallestWhereNothingFits) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Many many = make_many(seed, 60);
    const std::vector<Fit> all = plan_all(many.candidates);
    const Fit& least = *std::min_element(all.begin(), all.end(), [](const Fit& a, const Fit& b) {
      return a.arena_bytes < b.arena_bytes;
    });
    for (std::int64_t bytes : {std::int64_t{1}, least.arena_bytes - 1}) {
      const Fits fits = find_fits(many.candidates, ranks, ranks_per_node, {bytes}, rates, 10);
      EXPECT_TRUE(fits.best.empty());
      EXPECT_EQ(fits.smallest.arena_bytes, least.arena_bytes);
      expect_same(fits.smallest, all[static_cast<std::size_t>(fits.smallest.candidate)]);
    }
    EXPECT_EQ(find_fits(many.candidates, ranks, ranks_per_node, {least.arena_bytes}, rates, 10)
                  .best.size(),
              1u);
  }
}

TEST(Fit, TheLeastArenaIsNeverMoreThanTheArena) {
  double share = 0.0;
  const int count = tests::trials(400), seeds = tests::takes_every_case() ? 4 : 2;
  for (int seed = 0; seed < seeds; ++seed) {
    const Many many = make_many(static_cast<std::uint64_t>(seed), count);
    for (const Candidate& candidate : many.candidates) {
      const std::int64_t least = least_arena_bytes(*candidate.model, ranks, candidate.policy);
      std::int64_t live_bytes = 0;
      for (Purpose purpose : purposes)
        live_bytes = std::max(live_bytes, plan_memory(build_step_plan(*candidate.model, ranks,
                                                                      candidate.policy, purpose))
                                              .peak_live_bytes);
      EXPECT_LE(least, plan_all(candidate, 0).arena_bytes);
      share += static_cast<double>(least) / static_cast<double>(live_bytes) / (seeds * count);
    }
  }
  EXPECT_GT(share, 0.75);
}

TEST(Fit, CountsAllPlansOfARun) {
  // The last unit has a forward in evaluation only.
  ModelDescription model = make_recomputing_model(3, false, 2);
  Candidate candidate;
  candidate.model = &model;
  candidate.policy.leaves = ranks;
  const std::int64_t before = plan_all(candidate, 0).arena_bytes;
  model.units.back().forward.front().workspace_bytes = before;
  const Fit planned = plan_all(candidate, 0);
  ASSERT_GT(planned.arena_bytes, before);
  const auto find = [&](std::int64_t bytes) {
    return find_fits({candidate}, ranks, ranks_per_node, {bytes}, rates, 1);
  };
  EXPECT_TRUE(find(planned.arena_bytes - 1).best.empty());
  ASSERT_EQ(find(planned.arena_bytes).best.size(), 1u);
  expect_same(find(planned.arena_bytes).best[0], planned);
}

TEST(Fit, CountsTheCopyOfACheckpointOnTheHost) {
  const ModelDescription model = make_recomputing_model(3, false, 2);
  Candidate candidate;
  candidate.model = &model;
  candidate.policy.leaves = ranks;
  const Fit without = plan_all(candidate, 0);
  candidate.policy.checkpoint_staging = true;
  const Fit planned = plan_all(candidate, 0);
  ASSERT_GT(planned.host_arena_bytes, without.host_arena_bytes);
  EXPECT_EQ(planned.arena_bytes, without.arena_bytes);
  const auto find = [&](std::int64_t host_bytes) {
    const Room room = {planned.arena_bytes, host_bytes};
    return find_fits({candidate}, ranks, ranks_per_node, room, rates, 1).best;
  };
  EXPECT_TRUE(find(planned.host_arena_bytes - 1).empty());
  ASSERT_EQ(find(planned.host_arena_bytes).size(), 1u);
  expect_same(find(planned.host_arena_bytes)[0], planned);
}

TEST(Fit, LeavesOutWhatCanNotBePlanned) {
  const ModelDescription model = make_recomputing_model(3, false, 1);
  std::vector<Candidate> candidates(2);
  for (Candidate& candidate : candidates) {
    candidate.model = &model;
    candidate.policy.leaves = ranks;
  }
  candidates[0].policy.in_flight_gathers.bytes = 1;
  const Room plenty = {std::int64_t{1} << 40};
  const Fits fits = find_fits(candidates, ranks, ranks_per_node, plenty, rates, 10);
  ASSERT_EQ(fits.best.size(), 1u);
  EXPECT_EQ(fits.best[0].candidate, 1);
  EXPECT_EQ(fits.planned, 1);
  EXPECT_EQ(fits.impossible, 1);
  candidates.pop_back();
  EXPECT_THROW(find_fits(candidates, ranks, ranks_per_node, plenty, rates, 10), Error);
  candidates[0].policy.leaves = ranks + 1;
  EXPECT_THROW(find_fits(candidates, ranks, ranks_per_node, plenty, rates, 10), Error);
}

// Times of another kind, bounded by rates: the list is sorted by them.
TEST(Fit, TakesTimesOfAnotherKind) {
  Rates slow = rates;
  for (double* rate : {&slow.flops, &slow.bytes_inside_nodes, &slow.bytes_across_nodes,
                       &slow.bytes_copied, &slow.bytes_on_host})
    *rate /= 3.0;
  const Many many = make_many(7, 60);
  const auto slowly = [&](const std::vector<const StepPlan*>& plans) {
    return estimate_times(plans, ranks_per_node, slow);
  };
  const Room plenty = {std::int64_t{1} << 40};
  const Fits expected = find_fits(many.candidates, ranks, ranks_per_node, plenty, slow, 10);
  const Fits found = find_fits(many.candidates, ranks, ranks_per_node, plenty, rates, 10, slowly);
  ASSERT_FALSE(found.best.empty());
  ASSERT_EQ(found.best.size(), expected.best.size());
  for (std::size_t i = 0; i < found.best.size(); ++i) {
    EXPECT_EQ(found.best[i].candidate, expected.best[i].candidate);
    EXPECT_DOUBLE_EQ(found.best[i].seconds, expected.best[i].seconds);
  }
}

}  // namespace
}  // namespace ostrakon::tests
