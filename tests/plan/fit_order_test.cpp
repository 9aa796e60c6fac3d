// SPDX-License-Identifier: Apache-2.0

// Candidates that fit and differ in whether their sums over leaves are those of one rank.

#include <gtest/gtest.h>

#include <cstdint>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/fit_order.hpp>
#include <vector>

#include "random_plans.hpp"

namespace ostrakon::tests {
namespace {

using namespace ostrakon::plan;

Fit fit_with(bool bits, std::int64_t arena_bytes, double seconds) {
  Fit fit;
  fit.bits_of_one_rank = bits;
  fit.arena_bytes = arena_bytes;
  fit.seconds = seconds;
  return fit;
}

TEST(FitOrder, BitsOfOneRankAreWorthALineAndChangeNoOrder) {
  const Fit keeps = fit_with(true, 1000, 2.0), loses = fit_with(false, 1000, 1.0);
  EXPECT_FALSE(is_needless(keeps, loses));
  EXPECT_TRUE(is_needless(loses, keeps));
  EXPECT_TRUE(is_needless(keeps, fit_with(true, 1000, 1.0)));
  EXPECT_TRUE(is_needless(loses, fit_with(false, 1000, 0.5)));
  EXPECT_FALSE(is_needless(fit_with(false, 900, 3.0), keeps)) << "it needs less memory";
  EXPECT_TRUE(is_better(loses, keeps));
  // With the same time the smaller arena comes first, with those bits or without.
  for (bool bits : {false, true})
    EXPECT_TRUE(is_better(fit_with(bits, 999, 1.0), fit_with(!bits, 1000, 1.0)));
}

// On 4 ranks with 4 leaves each and a grain of 2, sums over micro-batches first are not one rank's.
TEST(FitOrder, AListHasTheFastestThatKeepsTheBitsOfOneRank) {
  constexpr int ranks = 4, ranks_per_node = 2;
  constexpr std::int64_t leaves = 16;
  const ModelDescription model = make_model(3, false, 1);
  ModelDescription larger = model;
  for (UnitDescription& unit : larger.units) unit.backward.front().workspace_bytes += 1 << 20;
  std::vector<Candidate> candidates(2);
  for (Candidate& candidate : candidates) {
    candidate.model = &model;
    candidate.policy.leaves = leaves;
    candidate.policy.sharding = Sharding::gradients;
    candidate.policy.sum_grain = 2;
  }
  candidates[0].policy.accumulation = Accumulation::reduce_last;
  candidates[1].policy.accumulation = Accumulation::reduce_each;
  candidates[1].model = &larger;
  // Sending takes nearly all of the time, and reduce_each sends a gradient for each micro-batch.
  const Rates slow_links = {1e9, 1e3, 1e3, 1e9, 1e9};
  const Room plenty = {std::int64_t{1} << 40};
  const auto list = [&] {
    return find_fits(candidates, ranks, ranks_per_node, plenty, slow_links, 10).best;
  };
  const auto expect_bits = [&](const std::vector<Fit>& fits) {
    for (const Fit& fit : fits) {
      const Candidate& candidate = candidates[static_cast<std::size_t>(fit.candidate)];
      const StepPlan plan =
          build_step_plan(*candidate.model, ranks, candidate.policy, Purpose::train);
      EXPECT_EQ(fit.bits_of_one_rank, plan.has_the_bits_of_one_rank()) << fit.candidate;
    }
  };
  const std::vector<Fit> best = list();
  ASSERT_EQ(best.size(), 2u);
  expect_bits(best);
  EXPECT_EQ(best[0].candidate, 0);
  EXPECT_FALSE(best[0].bits_of_one_rank);
  EXPECT_TRUE(best[1].bits_of_one_rank);
  EXPECT_GT(best[1].seconds, 1.5 * best[0].seconds);
  EXPECT_GE(best[1].arena_bytes, best[0].arena_bytes) << "nothing but the bits is better";

  // One tree over all leaves has them either way: then the slower one is no use.
  for (Candidate& candidate : candidates) candidate.policy.sum_grain = 0;
  const std::vector<Fit> one_tree = list();
  expect_bits(one_tree);
  ASSERT_EQ(one_tree.size(), 1u);
  EXPECT_TRUE(one_tree[0].bits_of_one_rank);
  EXPECT_EQ(one_tree[0].candidate, 0);

  // Rounded to be sent, gradients are one rank's in no order.
  for (Candidate& candidate : candidates) candidate.policy.reduce = DType::bf16;
  const std::vector<Fit> rounded = list();
  expect_bits(rounded);
  ASSERT_EQ(rounded.size(), 1u);
  EXPECT_FALSE(rounded[0].bits_of_one_rank);

  // Where nothing fits, the smallest says it, too.
  const Fits none = find_fits(candidates, ranks, ranks_per_node, {1}, slow_links, 10);
  EXPECT_TRUE(none.best.empty());
  expect_bits({none.smallest});
}

}  // namespace
}  // namespace ostrakon::tests
