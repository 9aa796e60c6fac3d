// SPDX-License-Identifier: Apache-2.0
// These tests are of which elements a rank has, over random models, grids and policies: no ranks,
// no arrays.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/model_description.hpp>
#include <ostrakon/trainer/state/saved_slices.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <random>
#include <set>
#include <vector>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {
namespace {

using train::ParameterSlice;
using train::ShardLayout;

constexpr int cases = 150;

/// How often each element of each parameter is in some slice.
using Cover = std::map<const model::Parameter*, std::vector<int>>;

void add(Cover& cover, const model::Parameter& parameter, std::int64_t first, std::int64_t count) {
  std::vector<int>& times = cover[&parameter];
  times.resize(static_cast<std::size_t>(parameter.elements()));
  for (std::int64_t i = first; i < first + count; ++i) ++times.at(static_cast<std::size_t>(i));
}

bool is_covered_once(const Cover& cover, const model::Parameter& parameter) {
  const auto found = cover.find(&parameter);
  return found != cover.end() &&
         std::all_of(found->second.begin(), found->second.end(), [](int n) { return n == 1; });
}

/// A small decoder of random sizes, some of it frozen, its optimizer, and a plan to train it.
struct RandomCase {
  explicit RandomCase(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::int64_t count) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(count));
    };
    model::DecoderSettings& decoder = settings.model;
    decoder.heads = decoder.kv_heads = 2;
    decoder.width = 2 * decoder.heads * (1 + below(8));
    decoder.layers = 1 + below(4);
    decoder.ffn_width = 1 + below(70);
    decoder.vocabulary = 2 + below(90);
    decoder.bias = below(2) == 0;
    decoder.tie_embeddings = below(2) == 0;
    decoder.blocks_per_unit = 1 + below(2);
    settings.training.sequence_length = 4;
    const char* const rules[] = {"", "*.mlp.*: frozen", "block.0.*: frozen; *norm*: frozen",
                                 "*.attention.*: learning_rate 0.1, weight_decay 0.3"};
    settings.optimizer.parameters = config::read_parameter_rules(rules[below(4)]);
    settings.optimizer.kind =
        below(2) == 0 ? optim::OptimizerKind::muon : optim::OptimizerKind::adamw;
    model = train::make_decoder(settings);
    const plan::ModelDescription description = train::describe(*model, settings.optimizer);
    ranks = 1 + static_cast<int>(below(12));
    plan::Policy policy = random_policy(random, description, ranks, ranks * (1 + below(3)));
    vary(random, description, policy);
    place_on_nodes(random, ranks, policy);
    policy.moment_count = 2;
    policy.averages = averages = seed % 2 == 0;
    moments = policy.moments.dtype;
    plan = plan::build_step_plan(description, ranks, policy, plan::Purpose::train);
    stages = {plan};
  }

  ShardLayout layout(int rank) const { return {stages, *model, settings.optimizer, rank}; }
  int units() const { return model->units(); }
  bool has(checkpoint::State state, const model::Parameter& parameter) const {
    switch (state) {
      case checkpoint::State::parameters:
        return true;
      case checkpoint::State::first_moment:
        return !parameter.frozen;
      case checkpoint::State::second_moment:
        return !parameter.frozen && !is_muon(parameter);
      case checkpoint::State::average:
        return !parameter.frozen && averages;
    }
    return false;
  }
  bool is_muon(const model::Parameter& parameter) const {
    return optim::rule_of(settings.optimizer, parameter) == optim::OptimizerKind::muon;
  }

  config::Settings settings;
  std::unique_ptr<model::Model> model;
  int ranks = 1;
  DType moments = DType::fp32;
  bool averages = false;
  plan::StepPlan plan;
  std::vector<plan::StepPlan> stages;  ///< the one
};

/// What arrays of a plan are divided over, and on the way to it.
std::vector<plan::Spans> divisions(const plan::StepPlan& plan) {
  std::vector<plan::Spans> all;
  for (const plan::Layout* layout :
       {&plan.layouts.masters, &plan.layouts.compute, &plan.layouts.gradient, &plan.layouts.update})
    for (plan::Spans part = layout->divided;; part = part.outer()) {
      all.push_back(part);
      if (part.empty()) break;
    }
  return all;
}

TEST(ShardLayout, PartsOfAllRanksHaveEachElementOnce) {
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    for (int flat = 0; flat < static_cast<int>(one.plan.flats.size()); ++flat)
      for (const plan::Spans& divided : divisions(one.plan)) {
        Cover cover;
        std::set<std::int64_t> parts;
        for (int rank = 0; rank < one.ranks; ++rank) {
          const std::int64_t begin = one.plan.first_element(flat, divided, rank);
          const std::int64_t count = one.plan.elements({flat, flat + 1}, divided);
          const bool is_new = parts.insert(begin).second;  // else a replica
          for (const ParameterSlice& slice : one.layout(rank).slices_of_part(flat, divided)) {
            if (is_new) add(cover, *slice.parameter, slice.first, slice.count);
            EXPECT_EQ(begin + slice.offset, slice.parameter->offset + slice.first);
            EXPECT_GT(slice.count, 0);
            EXPECT_LE(slice.offset + slice.count, count);
          }
        }
        EXPECT_EQ(static_cast<std::int64_t>(parts.size()), divided.parts());
        const plan::FlatParameter& whole = one.plan.flats[flat];
        for (const model::Parameter& parameter : one.model->parameters(whole.unit))
          EXPECT_EQ(is_covered_once(cover, parameter), parameter.frozen != whole.trained) << seed;
      }
  }
}

/// Where an unpacked buffer has an element: its flat parameters' parts lie one after the other.
std::int64_t offset_by_hand(const plan::StepPlan& plan, int buffer, int rank,
                            const ParameterSlice& slice, int unit) {
  const plan::Buffer& where = plan.buffers[buffer];
  std::int64_t offset = 0;
  int flat = where.flats.first;
  while (plan.flats[flat].unit != unit || plan.flats[flat].trained == slice.parameter->frozen)
    offset += plan.flats[flat++].padded / where.divided.parts();
  return offset + slice.parameter->offset + slice.first -
         plan.first_element(flat, where.divided, rank);
}

TEST(ShardLayout, BuffersHaveElementsWhereThePlanSays) {
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    const plan::Spans& finest = one.plan.layouts.gradient.divided;
    for (int rank = 0; rank < one.ranks; ++rank) {
      const ShardLayout layout = one.layout(rank);
      for (int u = 0; u < one.units(); ++u) {
        const plan::PlannedUnit& unit = one.plan.units[u];
        for (const int buffer : {unit.masters, unit.compute_copy, unit.first_moments}) {
          if (buffer < 0) continue;
          for (const plan::Spans& divided : {one.plan.buffers[buffer].divided, finest})
            for (const ParameterSlice& slice : layout.slices_in_buffer(buffer, divided))
              EXPECT_EQ(slice.offset, offset_by_hand(one.plan, buffer, rank, slice, u)) << seed;
        }
      }
    }
  }
}

TEST(ShardLayout, PackedMomentsLieSideBySideWithoutWholeMatrices) {
  int packed = 0;
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    for (int rank = 0; rank < one.ranks; ++rank) {
      const ShardLayout layout = one.layout(rank);
      for (int u = 0; u < one.units(); ++u) {
        const int buffer = one.plan.units[u].second_moments;
        if (buffer < 0) continue;
        packed += layout.is_packed(buffer);
        const plan::Buffer& moments = one.plan.buffers[buffer];
        const std::vector<ParameterSlice> slices = layout.slices_in_buffer(buffer, moments.divided);
        std::int64_t end = 0;
        for (const ParameterSlice& slice : slices) {
          EXPECT_FALSE(one.is_muon(*slice.parameter));
          EXPECT_GE(slice.offset, end) << seed;
          end = slice.offset + slice.count;
        }
        EXPECT_LE(end * bytes_of(one.moments), moments.bytes) << seed;
        // A smaller part of it is at the same place.
        for (const ParameterSlice& part :
             layout.slices_in_buffer(buffer, one.plan.layouts.gradient.divided)) {
          const auto whole = std::find_if(slices.begin(), slices.end(), [&](const auto& slice) {
            return slice.parameter == part.parameter && slice.first <= part.first &&
                   part.first + part.count <= slice.first + slice.count;
          });
          ASSERT_NE(whole, slices.end());
          EXPECT_EQ(part.offset - whole->offset, part.first - whole->first);
        }
      }
    }
  }
  EXPECT_GT(packed, 100);
}

TEST(ShardLayout, UpdateRangesHaveEachElementOnceWithItsOwnRule) {
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    const optim::OptimizerSettings& optimizer = one.settings.optimizer;
    const plan::Spans& divided = one.plan.layouts.update.divided;
    for (int rank = 0; rank < one.ranks; ++rank) {
      const ShardLayout layout = one.layout(rank);
      for (int u = 0; u < one.units(); ++u) {
        const std::vector<train::UpdateRange> ranges = layout.update_ranges(u, one.moments, 1);
        const plan::FlatRange trained = one.plan.trained(u);
        EXPECT_EQ(ranges.empty(),
                  trained.empty() || layout.slices_of_part(trained.first, divided).empty());
        if (trained.empty()) continue;
        std::int64_t end = 0;
        for (const train::UpdateRange& range : ranges) {
          EXPECT_GE(range.offset, end);
          end = range.offset + range.count;
        }
        std::map<const model::Parameter*, std::int64_t> second;
        for (const ParameterSlice& slice :
             layout.slices_in_buffer(one.plan.units[u].second_moments, divided))
          second[slice.parameter] = slice.offset;
        for (const ParameterSlice& slice : layout.slices_of_part(trained.first, divided)) {
          const auto range = std::find_if(ranges.begin(), ranges.end(), [&](const auto& r) {
            return r.offset <= slice.offset && slice.offset + slice.count <= r.offset + r.count;
          });
          ASSERT_NE(range, ranges.end()) << seed;
          const optim::ParamGroup group =
              optim::param_group_of(optimizer.parameters, *slice.parameter, optimizer.learning_rate,
                                    optimizer.weight_decay);
          EXPECT_EQ(range->rule, optim::rule_of(optimizer, *slice.parameter));
          EXPECT_EQ(range->param_group.learning_rate, group.learning_rate);
          EXPECT_EQ(range->param_group.weight_decay, group.weight_decay);
          if (one.moments != DType::fp32 || one.is_muon(*slice.parameter)) {
            EXPECT_EQ(range->parameter, slice.parameter);
            EXPECT_EQ(range->first, slice.first);
            EXPECT_EQ(range->count, slice.count);
          }
          if (second.count(slice.parameter) == 0) continue;
          EXPECT_EQ(range->second_offset + slice.offset - range->offset, second[slice.parameter])
              << seed;
        }
      }
    }
  }
}

TEST(ShardLayout, GapsAreWhatIsLeftOfAFlatParameter) {
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    for (int u = 0; u < one.units(); ++u) {
      const std::vector<train::Gap> gaps = one.layout(0).gaps(u);
      if (one.plan.trained(u).empty()) {
        EXPECT_TRUE(gaps.empty());
        continue;
      }
      std::vector<int> times(static_cast<std::size_t>(one.plan.padded(one.plan.trained(u))));
      const auto count = [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++times.at(static_cast<std::size_t>(i));
      };
      for (const train::Gap& gap : gaps) count(gap.begin, gap.end);
      for (const model::Parameter& parameter : one.model->parameters(u))
        if (!parameter.frozen) count(parameter.offset, parameter.offset + parameter.elements());
      EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](int n) { return n == 1; })) << seed;
    }
  }
}

TEST(SavedSlices, OfAllRanksHaveEachElementOfTheStateOnce) {
  for (int seed = 0; seed < cases; ++seed) {
    const RandomCase one(static_cast<std::uint64_t>(seed));
    std::vector<const model::Parameter*> table;
    for (int u = 0; u < one.units(); ++u)
      for (const model::Parameter& parameter : one.model->parameters(u))
        table.push_back(&parameter);
    std::map<checkpoint::State, Cover> covers;
    for (int rank = 0; rank < one.ranks; ++rank)
      for (const train::SavedSlice& saved : saved_slices(one.layout(rank))) {
        const checkpoint::Slice& slice = saved.slice;
        add(covers[slice.state], *table.at(static_cast<std::size_t>(slice.parameter)), slice.first,
            slice.count);
      }
    for (const model::Parameter* parameter : table)
      for (const checkpoint::State state : checkpoint::all_states) {
        EXPECT_EQ(is_covered_once(covers[state], *parameter), one.has(state, *parameter))
            << seed << ": " << checkpoint::name(state) << " of " << parameter->full_name();
      }
  }
}

TEST(SavedSlices, AreOfTheRankThatStandsThere) {
  const RandomCase one(3);
  const ShardLayout layout = one.layout(0);
  // Ranks of the world in another order than in plans, two on each node.
  std::vector<train::RankLocation> locations;
  for (int rank = 0; rank < one.ranks; ++rank)
    locations.push_back({one.ranks - 1 - rank, rank / 2});
  const checkpoint::ShardMap map = make_shard_map(layout, locations, one.moments);
  ASSERT_EQ(map.ranks(), one.ranks);
  EXPECT_EQ(map.dtypes[0], DType::fp32);
  EXPECT_EQ(map.dtypes[1], one.moments);
  for (int rank = 0; rank < one.ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::vector<train::SavedSlice> expected =
        saved_slices(layout.of_rank(one.ranks - 1 - rank));
    EXPECT_EQ(map.nodes[r], rank / 2);
    ASSERT_EQ(map.slices[r].size(), expected.size());
    for (std::size_t s = 0; s < expected.size(); ++s) {
      EXPECT_EQ(map.slices[r][s].parameter, expected[s].slice.parameter);
      EXPECT_EQ(map.slices[r][s].first, expected[s].slice.first);
      EXPECT_EQ(map.slices[r][s].count, expected[s].slice.count);
    }
  }
}

}  // namespace
}  // namespace ostrakon::tests
