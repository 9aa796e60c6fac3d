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

#include "random_plans.hpp"

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
    model.units[u].recompute_flops = 0.9 * model.units[u].forward_flops;
  }
  model.element_bytes = seed % 2 == 0 ? 4 : 2;
  return model;
}

/// Of different models, leaves and policies.
struct Many {
  std::vector<ModelDescription> models;
  std::vector<Candidate> candidates;
};

Many make_many(std::uint64_t seed, int count) {
  std::mt19937_64 random(seed);
  Many many;
  for (std::uint64_t m = 0; m < 4; ++m)
    many.models.push_back(make_recomputing_model(5, seed % 2 == 1, 10 * seed + m));
  vary(random, many.models.back());
  for (int c = 0; c < count; ++c) {
    Candidate candidate;
    candidate.model = &many.models[random() % many.models.size()];
    const std::int64_t leaves = ranks * static_cast<std::int64_t>(1 + random() % 9);
    candidate.policy = random_policy(random, *candidate.model, ranks, leaves);
    vary(random, *candidate.model, candidate.policy);
    candidate.policy.activation_checkpointing.every = static_cast<int>(random() % 4);
    many.candidates.push_back(candidate);
  }
  // Some twice, a chain of three, and pairs.
  for (int c = 10; c < count; c += 7)
    many.candidates[static_cast<std::size_t>(c)] = many.candidates[static_cast<std::size_t>(c - 9)];
  for (int c = 1; c < count; ++c)
    if (c % 2 == 0 || c < 3) many.candidates[static_cast<std::size_t>(c)].rather = c - 1;
  return many;
}

/// A candidate's figures and the hash of its step.
struct Planned : Fit {
  std::uint64_t hash = 0;
};

/// By the way of every plan.
Planned plan_all(const Candidate& candidate, int index) {
  Planned fit;
  fit.candidate = index;
  for (Purpose purpose : purposes) {
    const StepPlan plan = build_step_plan(*candidate.model, ranks, candidate.policy, purpose);
    const MemoryPlan memory = plan_memory(plan), host_memory = plan_memory(plan, Space::host);
    fit.arena_bytes = std::max(fit.arena_bytes, memory.arena_bytes);
    fit.host_arena_bytes = std::max(fit.host_arena_bytes, host_memory.arena_bytes);
    if (purpose != Purpose::train) continue;
    const Report report = make_report(plan, memory, host_memory, ranks_per_node);
    fit.hash = plan.hash();
    fit.flops = plan.flops();
    fit.bytes_inside_nodes = report.bytes_inside_nodes;
    fit.bytes_across_nodes = report.bytes_across_nodes;
    for (const Action& action : plan.actions) {
      if (action.stream == Stream::upload || action.stream == Stream::download)
        fit.bytes_copied += action.elements * action.element_bytes;
    }
    fit.bytes_on_host = report.bytes_on_host;
  }
  fit.seconds = fit.flops / rates.flops +
                static_cast<double>(fit.bytes_inside_nodes) / rates.bytes_inside_nodes +
                static_cast<double>(fit.bytes_across_nodes) / rates.bytes_across_nodes +
                static_cast<double>(fit.bytes_copied) / rates.bytes_copied +
                static_cast<double>(fit.bytes_on_host) / rates.bytes_on_host;
  return fit;
}

std::vector<Planned> plan_all(const std::vector<Candidate>& candidates) {
  std::vector<Planned> fits;
  for (const Candidate& candidate : candidates)
    fits.push_back(plan_all(candidate, static_cast<int>(fits.size())));
  return fits;
}

/// What find_fits says that it finds, from the figures of all.
std::vector<Planned> choose(const std::vector<Candidate>& candidates,
                            const std::vector<Planned>& all, const Room& room, std::size_t most) {
  const auto has_room = [&](const Fit& fit) {
    return fit.arena_bytes <= room.device_bytes && fit.host_arena_bytes <= room.host_bytes;
  };
  std::vector<Planned> chosen;
  for (const Planned& fit : all) {
    bool is_chosen = has_room(fit);
    for (int other = candidates[static_cast<std::size_t>(fit.candidate)].rather; other >= 0;
         other = candidates[static_cast<std::size_t>(other)].rather) {
      const Fit& rather = all[static_cast<std::size_t>(other)];
      if (has_room(rather) && rather.seconds <= fit.seconds) is_chosen = false;
    }
    if (is_chosen) chosen.push_back(fit);
  }
  std::sort(chosen.begin(), chosen.end(), [](const Fit& a, const Fit& b) {
    return std::tie(a.seconds, a.arena_bytes, a.candidate) <
           std::tie(b.seconds, b.arena_bytes, b.candidate);
  });
  std::vector<Planned> different;
  for (const Planned& fit : chosen)
    if (std::none_of(different.begin(), different.end(), [&](const Planned& other) {
          return other.hash == fit.hash && other.seconds == fit.seconds;
        }))
      different.push_back(fit);
  different.resize(std::min(different.size(), most));
  return different;
}

void expect_same(const Fit& a, const Fit& b) {
  EXPECT_EQ(a.candidate, b.candidate);
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.host_arena_bytes, b.host_arena_bytes);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes_inside_nodes, b.bytes_inside_nodes);
  EXPECT_EQ(a.bytes_across_nodes, b.bytes_across_nodes);
  EXPECT_EQ(a.bytes_copied, b.bytes_copied);
  EXPECT_EQ(a.bytes_on_host, b.bytes_on_host);
  EXPECT_EQ(a.seconds, b.seconds);
}

TEST(Fit, FindsWhatPlanningAllFinds) {
  int shown_rather = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Many many = make_many(seed, 150);
    const std::vector<Planned> all = plan_all(many.candidates);
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
        const std::vector<Planned> expected = choose(many.candidates, all, room, most);
        ASSERT_EQ(fits.best.size(), expected.size());
        for (std::size_t i = 0; i < expected.size(); ++i) expect_same(fits.best[i], expected[i]);
        if (most == 1000 && seed % 2 == 1)
          shown_rather += static_cast<int>(at + 1 - expected.size());
        if (!expected.empty()) {
          EXPECT_EQ(fits.planned + fits.too_large + fits.too_slow + fits.unneeded, 150);
        }
      }
  }
  EXPECT_GT(shown_rather, 0);
}

TEST(Fit, NamesTheSmallestWhereNothingFits) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Many many = make_many(seed, 60);
    const std::vector<Planned> all = plan_all(many.candidates);
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
  constexpr int count = 400;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Many many = make_many(seed, count);
    for (const Candidate& candidate : many.candidates) {
      const std::int64_t least = least_arena_bytes(*candidate.model, ranks, candidate.policy);
      std::int64_t alive = 0;
      for (Purpose purpose : purposes)
        alive = std::max(
            alive, plan_memory(build_step_plan(*candidate.model, ranks, candidate.policy, purpose))
                       .peak_live_bytes);
      EXPECT_LE(least, plan_all(candidate, 0).arena_bytes);
      share += static_cast<double>(least) / static_cast<double>(alive) / (4 * count);
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
  model.units.back().forward_workspace_bytes = before;
  const Planned planned = plan_all(candidate, 0);
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
  const Planned without = plan_all(candidate, 0);
  candidate.policy.checkpoint_staging = true;
  const Planned planned = plan_all(candidate, 0);
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

}  // namespace
}  // namespace ostrakon::tests
