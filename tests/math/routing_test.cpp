// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/experts/expert_rows.hpp>
#include <ostrakon/math/experts/routing.hpp>
#include <string>
#include <vector>

#include "math/check_gradient.hpp"
#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using math::Router;
using math::RouterScore;
using test::DeviceArray;
using test::random_values;

/// All arrays of the routes of some rows.
template <class C>
struct RouteArrays {
  RouteArrays(const Router& router, std::int64_t rows, std::int64_t leaves,
              const std::vector<C>& logits)
      : rows_(rows),
        experts_(router.experts),
        scores(logits),
        chosen(rows * router.per_token),
        weights(rows * router.per_token),
        slots(rows * router.per_token),
        assignments(rows * router.per_token),
        offsets(router.experts * leaves + 1) {}

  math::Routes<C> routes() const {
    return {scores.matrix(rows_, experts_), chosen, weights, slots, assignments, offsets};
  }

  std::int64_t rows_, experts_;
  DeviceArray<C> scores;
  DeviceArray<std::int32_t> chosen;
  DeviceArray<C> weights;
  DeviceArray<std::int32_t> slots, assignments;
  DeviceArray<std::int64_t> offsets;
};

using Indices = std::vector<std::int32_t>;

TEST(Routing, TiesGoToTheLowerIndexAndWeightsAreShares) {
  const Router router{4, 2, RouterScore::softmax, true, 3.0};
  const RouteArrays<double> made(router, 3, 1,
                                 {1, 1, 1, 1,  //
                                  0, 5, 2, 5,  //
                                  9, 0, 9, 9});
  math::choose_experts<double>(Exec(), router, {}, made.routes());
  EXPECT_EQ(made.chosen.host(), (Indices{0, 1, 1, 3, 0, 2}));
  for (const double weight : made.weights.host()) EXPECT_DOUBLE_EQ(weight, 1.5);
}

/// Experts are chosen in two of four groups of two: those with the highest sums. Ties go to the
/// lower index.
TEST(Routing, ExpertsAreOfTheBestGroups) {
  Router router{8, 3, RouterScore::sigmoid, false, 1.0};
  router.groups = 4;
  router.groups_per_token = 2;
  const RouteArrays<double> made(router, 3, 1,
                                 {9, -9, 2, 2, 3, 1, 8, -9,  // two highest, in low groups
                                  1, 1,  1, 1, 1, 1, 1, 1,   //
                                  0, 1,  0, 2, 0, 3, 0, 4});
  math::choose_experts<double>(Exec(), router, {}, made.routes());
  EXPECT_EQ(made.chosen.host(), (Indices{2, 3, 4, 0, 1, 2, 4, 5, 7}));
  // The bias also counts for groups.
  const RouteArrays<double> again(router, 1, 1, {9, -9, 2, 2, 3, 1, 8, -9});
  const DeviceArray<double> bias({0, 0, 0, 0, 0, 0, 0, 1});
  math::choose_experts<double>(Exec(), router, bias, again.routes());
  EXPECT_EQ(again.chosen.host(), (Indices{2, 6, 7}));
  // Those with the highest score.
  router.group_score = math::RouterGroupScore::max;
  const RouteArrays<double> best(router, 2, 1, {9, -9, 2, 2, 3, 1, 8, -9, 1, 1, 1, 1, 1, 1, 1, 1});
  math::choose_experts<double>(Exec(), router, {}, best.routes());
  EXPECT_EQ(best.chosen.host(), (Indices{0, 1, 6, 0, 1, 2}));
  router.group_score = math::RouterGroupScore::sum_of_two;
  // Groups of one expert.
  Router one{3, 1, RouterScore::softmax, false, 1.0};
  one.groups = 3;
  const RouteArrays<double> single(one, 1, 1, {1, 3, 2});
  math::choose_experts<double>(Exec(), one, {}, single.routes());
  EXPECT_EQ(single.chosen.host(), (Indices{1}));
  router.groups = 3;
  EXPECT_THROW(math::choose_experts<double>(Exec(), router, {}, made.routes()), Error);
  router.groups = 4;
  router.groups_per_token = 1;
  EXPECT_THROW(math::choose_experts<double>(Exec(), router, {}, made.routes()), Error);
}

TEST(Routing, BiasChangesTheChoiceAlone) {
  const Router router{3, 1, RouterScore::sigmoid, false, 1.0};
  const RouteArrays<double> made(router, 1, 1, {2, 1, 0});
  const DeviceArray<double> bias({-1, 0, 0});
  math::choose_experts<double>(Exec(), router, bias, made.routes());
  EXPECT_EQ(made.chosen.host(), (Indices{1}));
  EXPECT_NEAR(made.weights.host()[0], 1 / (1 + std::exp(-1.0)), 1e-15);
}

/// Rows that are not finite still choose distinct experts: the step is skipped or ends.
TEST(Routing, WhatIsNotANumberComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Router router{3, 2, RouterScore::sigmoid, false, 1.0};
  const RouteArrays<float> made(router, 2, 1, {nan, 0, 1, nan, nan, nan});
  math::choose_experts<float>(Exec(), router, {}, made.routes());
  EXPECT_EQ(made.chosen.host(), (Indices{1, 2, 0, 1}));
}

TEST(Routing, SortsByExpertThenByRow) {
  const Router router{5, 2, RouterScore::softmax, true, 1.0};
  const std::int64_t rows = 12, leaves = 3, all = rows * router.per_token;
  const RouteArrays<float> made(router, rows, leaves, random_values<float>(rows * 5, 4));
  math::choose_experts<float>(Exec(), router, {}, made.routes());
  math::sort_by_expert<float>(Exec(), router, leaves, made.routes());
  const Indices chosen = made.chosen.host(), slots = made.slots.host();
  Indices expected(all);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(),
                   [&](std::int32_t a, std::int32_t b) { return chosen[a] < chosen[b]; });
  EXPECT_EQ(made.assignments.host(), expected);
  for (std::int32_t slot = 0; slot < all; ++slot) EXPECT_EQ(slots[expected[slot]], slot);
  const math::OffsetsOnHost on_host(Exec(), made.routes().offsets);
  const auto offsets = on_host.view();
  for (std::int64_t e = 0; e < router.experts; ++e)
    for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
      for (std::int64_t s = offsets[e * leaves + leaf]; s < offsets[e * leaves + leaf + 1]; ++s) {
        EXPECT_EQ(chosen[expected[s]], e);
        EXPECT_EQ(expected[s] / router.per_token / (rows / leaves), leaf);
      }
  EXPECT_EQ(offsets[router.experts * leaves], all);
}

TEST(Routing, ExcessIsWhatIsAboveTheMean) {
  const Router router{4, 1, RouterScore::softmax, false, 1.0};
  // The choices are experts 0, 0, 0, 2 | 1, 1, 2, 3.
  std::vector<float> logits(8 * 4, 0.0f);
  const int choices[] = {0, 0, 0, 2, 1, 1, 2, 3};
  for (int r = 0; r < 8; ++r) logits[r * 4 + choices[r]] = 1.0f;
  for (const std::int64_t leaves : {1, 2, 4}) {
    const RouteArrays<float> made(router, 8, leaves, logits);
    const DeviceArray<float> excess(4), workspace(math::excess_workspace(router, leaves));
    math::choose_experts<float>(Exec(), router, {}, made.routes());
    math::sort_by_expert<float>(Exec(), router, leaves, made.routes());
    math::load_imbalance<float>(Exec(), router, leaves, made.routes(), excess, workspace);
    EXPECT_EQ(excess.host(), (std::vector<float>{1, 0, 0, -1}));
  }
}

/// Returns the auxiliary loss of each leaf, multiplied by its rows, in plain loops. `shares`: f,
/// (leaves, experts).
double auxiliary(const std::vector<double>& logits, const std::vector<double>& shares,
                 const Router& router, std::int64_t rows, std::int64_t leaves) {
  const std::int64_t experts = router.experts, of_leaf = rows / leaves;
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<double> scores;
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const double power = std::exp(logits[r * experts + e]);
      scores.push_back(router.score == RouterScore::sigmoid ? power / (1 + power) : power);
      sum += scores.back();
    }
    for (std::int64_t e = 0; e < experts; ++e)
      loss += static_cast<double>(experts) * shares[r / of_leaf * experts + e] * scores[e] / sum;
  }
  return loss;
}

TEST(Routing, CountsAreAdded) {
  // Two leaves and three experts: 2 + 1, 0 + 3 and 1 + 0 rows.
  const DeviceArray<std::int64_t> offsets({0, 2, 3, 3, 6, 7, 7});
  const DeviceArray<std::int64_t> counts({10, 20, 30});
  math::add_counts(Exec(), 2, offsets, counts);
  EXPECT_EQ(counts.host(), (std::vector<std::int64_t>{13, 23, 31}));
  EXPECT_THROW(math::add_counts(Exec(), 3, offsets, counts), Error);
}

TEST(Routing, BackwardIsTheGradient) {
  const std::int64_t rows = 6, leaves = 2;
  for (const RouterScore score : {RouterScore::softmax, RouterScore::sigmoid})
    for (const bool normalize : {false, true})
      for (const double balance : {0.0, 0.7}) {
        const Router router{5, 2, score, normalize, 1.5};
        std::vector<double> logits = random_values<double>(rows * 5, 9);
        for (double& logit : logits) logit *= 3;  // far from ties
        const std::vector<double> dweights = random_values<double>(rows * 2, 10);
        const RouteArrays<double> made(router, rows, leaves, logits);
        math::choose_experts<double>(Exec(), router, {}, made.routes());
        math::sort_by_expert<double>(Exec(), router, leaves, made.routes());
        const DeviceArray<double> dlogits(rows * 5), given(dweights);
        math::router_backward<double>(Exec(), router, leaves, balance, made.routes(), given,
                                      dlogits.matrix(rows, 5));
        const Indices chosen = made.chosen.host();
        std::vector<double> shares(leaves * 5, 0.0);
        for (std::size_t a = 0; a < chosen.size(); ++a)
          shares[a / 2 / (rows / leaves) * 5 + chosen[a]] += 1.0 / (2.0 * rows / leaves);
        const auto loss = [&] {
          const RouteArrays<double> moved(router, rows, leaves, logits);
          math::choose_experts<double>(Exec(), router, {}, moved.routes());
          EXPECT_EQ(moved.chosen.host(), chosen) << "too near a tie for finite differences";
          const std::vector<double> weights = moved.weights.host();
          return std::inner_product(weights.begin(), weights.end(), dweights.begin(), 0.0) +
                 balance * auxiliary(logits, shares, router, rows, leaves);
        };
        EXPECT_TRUE(test::gradient_agrees(
            text(name(score), normalize ? ", normalized" : "", ", balance ", balance), logits,
            dlogits.host(), loss));
      }
}

TEST(ExpertRows, CopiesComeBackToTheirRows) {
  const Router router{3, 2, RouterScore::softmax, true, 1.0};
  const std::int64_t rows = 7, columns = 130;  // more than an item of work has
  const RouteArrays<float> made(router, rows, 1, random_values<float>(rows * 3, 5));
  math::choose_experts<float>(Exec(), router, {}, made.routes());
  math::sort_by_expert<float>(Exec(), router, 1, made.routes());
  const std::vector<float> values = random_values<float>(rows * columns, 6);
  const DeviceArray<float> x(values), copies(rows * 2 * columns), y(rows * columns);
  math::gather_rows<float>(Exec(), x.matrix(rows, columns), made.assignments,
                           copies.matrix(rows * 2, columns));
  // Weights sum to 1, so each row is doubled.
  math::combine_outputs<float>(Exec(), x.matrix(rows, columns), {}, made.routes(),
                               copies.matrix(rows * 2, columns), y.matrix(rows, columns));
  std::vector<float> twice = values;
  for (float& value : twice) value *= 2;
  EXPECT_LE(test::largest_difference(y.host(), twice), 1e-6);
  math::combine_gradients<float>(Exec(), x.matrix(rows, columns), x.matrix(rows, columns),
                                 made.routes(), copies.matrix(rows * 2, columns),
                                 y.matrix(rows, columns));
  for (float& value : twice) value *= 2;
  EXPECT_LE(test::largest_difference(y.host(), twice), 1e-6);
}

/// Checks rows that experts in a separate unit receive and weigh.
template <class T>
void expect_weighed_copies() {
  using C = compute_t<T>;
  const Router router{3, 2, RouterScore::softmax, true, 1.5};
  const std::int64_t rows = 7, columns = 130;
  const RouteArrays<C> made(router, rows, 1, random_values<C>(rows * 3, 5));
  math::choose_experts<C>(Exec(), router, {}, made.routes());
  math::sort_by_expert<C>(Exec(), router, 1, made.routes());
  const DeviceArray<T> x(random_values<T>(rows * columns, 6));
  const DeviceArray<T> copies(rows * 2 * columns), weighed(rows * 2 * columns);
  const DeviceArray<T> activated(rows * 2), dactivated(rows * 2);
  const DeviceArray<C> dweights(rows * 2);
  math::gather_rows<T>(Exec(), x.matrix(rows, columns), made.assignments,
                       copies.matrix(rows * 2, columns));
  const DeviceArray<C> weights(rows * 2);
  math::gather_weights<C>(Exec(), made.routes().weights, made.assignments, weights);
  const DeviceArray<T> elsewhere(rows * 2 * columns);
  math::weigh_rows<T>(Exec(), weights, activated.matrix(rows * 2, 1), {},
                      dactivated.matrix(rows * 2, 1), copies.matrix(rows * 2, columns),
                      elsewhere.matrix(rows * 2, columns), dweights);
  math::gather_weighed_rows<T>(Exec(), x.matrix(rows, columns), made.routes(),
                               weighed.matrix(rows * 2, columns));
  EXPECT_TRUE(test::same_bits(weighed.host(), elsewhere.host()));
}

TEST(ExpertRows, WeighedCopiesAreThoseOfExpertsElsewhere) {
  expect_weighed_copies<float>();
  expect_weighed_copies<bf16>();
}

TEST(Routing, RefusesArraysThatDoNotFit) {
  const Router router{4, 5, RouterScore::softmax, true, 1.0};
  const RouteArrays<float> made(router, 2, 1, random_values<float>(8, 1));
  EXPECT_THROW(math::choose_experts<float>(Exec(), router, {}, made.routes()), Error);
  const Router two{4, 2, RouterScore::softmax, true, 1.0};
  const RouteArrays<float> fits(two, 3, 1, random_values<float>(12, 1));
  EXPECT_THROW(math::sort_by_expert<float>(Exec(), two, 2, fits.routes()), Error);
}

}  // namespace
