// SPDX-License-Identifier: Apache-2.0

// Gradients are summed by one tree over the leaves, whatever the layout.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostrakon/plan/ir/reduction_tree.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan/random_plans.hpp"
#include "plan/traffic.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

std::string sum_of(const std::string& a, const std::string& b) {
  return a < b ? "(" + a + "+" + b + ")" : "(" + b + "+" + a + ")";  // addition commutes
}

/// Follows what a unit's gradient buffers hold, as expressions over leaves, through the plan of
/// every rank at once; returns the expression that each rank's optimizer sees. Leaves of tied
/// gradients are capitals.
std::set<std::string> gradient_expressions(const StepPlan& plan, int unit) {
  const int ranks = plan.grid.ranks();
  std::vector<std::map<int, std::string>> held(static_cast<std::size_t>(ranks));
  std::set<std::string> results;
  for (const Action& action : plan.actions) {
    const bool is_tied =
        action.kind == Kind::backward && unit == 0 && action.buffer(Role::tied_gradients) >= 0;
    if (action.unit != unit && !is_tied) continue;
    const int gradients = action.buffer(is_tied ? Role::tied_gradients : Role::parameter_gradients);
    const int shard = action.buffer(Role::gradient_shard);
    for (int rank = 0; rank < ranks; ++rank) {
      auto& mine = held[static_cast<std::size_t>(rank)];
      if (action.kind == Kind::backward) {
        const auto letter = (is_tied ? 'A' : 'a') + plan.leaf(rank, action.micro_batch);
        const std::string leaf(1, static_cast<char>(letter));
        mine[gradients] = action.gradients_opened && !is_tied ? mine.at(gradients) + leaf : leaf;
      }
      if (action.kind == Kind::accumulate)
        mine[gradients] = sum_of(mine.at(gradients), mine.at(action.buffer(Role::source)));
      if (action.kind == Kind::gather_gradients && shard >= 0) mine[gradients] = mine.at(shard);
      if (action.kind == Kind::optimize) results.insert(mine.at(shard));
    }
    if (action.kind != Kind::reduce_scatter) continue;
    std::vector<std::string> reduced;
    for (int rank = 0; rank < ranks; ++rank) {
      // The ordered tree over the ranks of this rank's group.
      std::vector<std::string> pieces;
      for (int partner : tests::ranks_of_group(plan, action.span, rank))
        pieces.push_back(held[static_cast<std::size_t>(partner)].at(gradients));
      const auto tree = [&](const auto& self, std::int64_t begin,
                            std::int64_t count) -> std::string {
        if (count == 1) return pieces[static_cast<std::size_t>(begin)];
        const std::int64_t left = left_leaves(count);
        return sum_of(self(self, begin, left), self(self, begin + left, count - left));
      };
      reduced.push_back(tree(tree, 0, static_cast<std::int64_t>(pieces.size())));
    }
    for (int rank = 0; rank < ranks; ++rank)
      held[static_cast<std::size_t>(rank)][shard] = reduced[static_cast<std::size_t>(rank)];
  }
  return results;
}

/// Over eight leaves: of one use, of two that are added in each leaf, or of two that are added
/// last.
std::string expected_sum(int ties) {
  const auto tree = [](const std::string(&leaves)[8]) {
    return sum_of(sum_of(sum_of(leaves[0], leaves[1]), sum_of(leaves[2], leaves[3])),
                  sum_of(sum_of(leaves[4], leaves[5]), sum_of(leaves[6], leaves[7])));
  };
  const std::string own = tree({"a", "b", "c", "d", "e", "f", "g", "h"});
  if (ties == 0) return own;
  if (ties == 1) return tree({"Aa", "Bb", "Cc", "Dd", "Ee", "Ff", "Gg", "Hh"});
  return sum_of(own, tree({"A", "B", "C", "D", "E", "F", "G", "H"}));
}

TEST(StepPlan, GradientsAreTheSameTreeOnEveryLayout) {
  int in_levels = 0, count = 0;
  for (int ties : {0, 1, 2}) {
    ModelDescription model = make_model(1, ties > 0, 2);
    model.units.back().sums_tied_apart = ties == 2;
    for (int unit : {0, 1}) {
      const auto reference =
          gradient_expressions(build_step_plan(model, 1, make_policy(8), Purpose::train), unit);
      EXPECT_EQ(reference, std::set<std::string>{expected_sum(unit == 0 ? ties : 0)});
      for (std::uint64_t choice = 0; choice < choices; ++choice)
        for (int ranks : {1, 2, 4, 8})
          for (int group : groups_of(ranks))
            for (int node : {0, 2, 4}) {
              if (count++ % every_nth(7) != 0) continue;
              Policy policy = make_policy(8, choice);
              policy.shard_group = group;
              policy.ranks_per_node = node;
              policy.hierarchical.bytes = 1;
              const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
              EXPECT_TRUE(plan.has_the_bits_of_one_rank());
              EXPECT_EQ(gradient_expressions(plan, unit), reference)
                  << "choice " << choice << " ranks " << ranks << " group " << group << " node "
                  << node;
              in_levels += plan.grid.has_levels() ? 1 : 0;
            }
    }
  }
  EXPECT_GT(in_levels, 1000 / every_nth(7));
}

// Whatever the numbers of ranks and leaves: with levels, the bits are those without.
TEST(StepPlan, GradientsAreTheSameTreeInTwoLevels) {
  const ModelDescription model = make_model(1, false, 3);
  int in_levels = 0;
  for (int ranks : {6, 8, 12})
    for (std::uint64_t choice = 0; choice < 32; ++choice)
      for (int group : groups_of(ranks))
        for (int node : groups_of(ranks)) {
          Policy policy = make_policy(2 * ranks, choice);
          policy.shard_group = group;
          const StepPlan flat = build_step_plan(model, ranks, policy, Purpose::train);
          policy.ranks_per_node = node;
          policy.hierarchical.bytes = 1;
          const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
          ASSERT_EQ(flat.grid.has_levels(), false);
          if (!plan.grid.has_levels()) continue;
          ++in_levels;
          EXPECT_EQ(plan.has_the_bits_of_one_rank(), flat.has_the_bits_of_one_rank());
          EXPECT_EQ(gradient_expressions(plan, 1), gradient_expressions(flat, 1))
              << "ranks " << ranks << " choice " << choice << " group " << group << " node "
              << node;
        }
  EXPECT_GT(in_levels, 200);
}

TEST(StepPlan, KnowWhetherTheirTreeIsThatOfOneRank) {
  // Numbers that are no powers of two: six or twelve leaves on two, three or six ranks.
  const ModelDescription model = make_model(1, false, 3);
  int same = 0, other = 0;
  for (std::int64_t leaves : {6, 12}) {
    const auto reference =
        gradient_expressions(build_step_plan(model, 1, make_policy(leaves), Purpose::train), 1);
    for (std::uint64_t choice = 0; choice < 16; ++choice)
      for (int ranks : {2, 3, 6})
        for (int group : groups_of(ranks)) {
          Policy policy = make_policy(leaves, choice);
          policy.shard_group = group;
          const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
          // What it promises holds; what it does not promise may hold by chance.
          if (plan.has_the_bits_of_one_rank()) {
            EXPECT_EQ(gradient_expressions(plan, 1), reference)
                << "leaves " << leaves << " choice " << choice << " ranks " << ranks << " group "
                << group;
          }
          (gradient_expressions(plan, 1) == reference ? same : other) += 1;
        }
  }
  EXPECT_GT(same, 0);
  EXPECT_GT(other, 0);
}

}  // namespace
