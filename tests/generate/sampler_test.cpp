// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/generate/sampler.hpp>
#include <random>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

namespace ostrakon::train {
namespace {

using Logits = std::vector<float>;

SamplingSettings settings(double temperature, int top_k = 0, double top_p = 1.0,
                          double min_p = 0.0) {
  SamplingSettings result;
  result.min_p = min_p;
  result.temperature = temperature;
  result.top_k = top_k;
  result.top_p = top_p;
  return result;
}

/// Normal, with ties: rounded to eighths.
Logits random_logits(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  Logits logits(count);
  for (float& logit : logits) logit = std::round(8.0F * normal(generator)) / 8.0F;
  return logits;
}

/// The probability of every token, 0 where it can't come, by the definition and nothing else: the
/// likeliest of what is left is taken, again and again.
std::vector<double> plain_probabilities(const Logits& logits, const SamplingSettings& sampling) {
  const std::size_t count = logits.size();
  const auto best_left = [&](const std::vector<bool>& taken) {
    std::size_t best = count;
    for (std::size_t i = 0; i < count; ++i)
      if (!taken[i] && (best == count || logits[i] > logits[best])) best = i;
    return best;
  };
  std::vector<bool> taken(count, false), is_nucleus(count, false);
  const std::size_t allowed =
      sampling.top_k == 0 ? count : static_cast<std::size_t>(sampling.top_k);
  for (std::size_t i = 0; i < std::min(count, allowed); ++i) taken[best_left(taken)] = true;

  std::vector<double> probability(count, 0.0);
  double sum = 0.0;
  for (std::size_t i = 0; i < count; ++i)
    if (taken[i]) sum += std::exp(logits[i] / sampling.temperature);
  for (std::size_t i = 0; i < count; ++i)
    if (taken[i]) probability[i] = std::exp(logits[i] / sampling.temperature) / sum;

  std::vector<bool> gone(count);
  for (std::size_t i = 0; i < count; ++i) gone[i] = !taken[i];
  double nucleus = 0.0;
  // All of them sum to 1 but for rounding.
  const double wanted = sampling.top_p == 1.0 ? 2.0 : sampling.top_p;
  for (std::size_t best = best_left(gone); best < count && nucleus < wanted;
       best = best_left(gone)) {
    gone[best] = is_nucleus[best] = true;
    nucleus += probability[best];
  }
  const double likeliest = *std::max_element(probability.begin(), probability.end());
  double left = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_nucleus[i] || probability[i] < sampling.min_p * likeliest) probability[i] = 0.0;
    left += probability[i];
  }
  for (double& one : probability) one /= left;
  return probability;
}

std::vector<double> probabilities(const Logits& logits, const SamplingSettings& sampling) {
  std::vector<double> result(logits.size(), 0.0);
  double sum = 0.0;
  for (const Candidate& candidate : candidates(logits, sampling)) sum += candidate.weight;
  for (const Candidate& candidate : candidates(logits, sampling)) {
    EXPECT_EQ(result[static_cast<std::size_t>(candidate.token)], 0.0) << "given twice";
    result[static_cast<std::size_t>(candidate.token)] = candidate.weight / sum;
  }
  return result;
}

std::vector<std::int32_t> tokens(const Logits& logits, const SamplingSettings& sampling) {
  std::vector<std::int32_t> result;
  for (const Candidate& candidate : candidates(logits, sampling)) result.push_back(candidate.token);
  return result;
}

TEST(Sampler, AllTokensAreInOrderOfTheirLogits) {
  Logits logits = random_logits(5000, 3);
  for (const float odd : {0.0F, -0.0F, 1e-42F, -1e-42F, 3e38F, -3e38F, 1e-42F, -0.0F, 0.0F})
    logits.push_back(odd);
  std::vector<std::int32_t> expected(logits.size());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int32_t>(i);
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  std::vector<std::int32_t> found;
  for (const Candidate& candidate : candidates(logits, settings(1e30)))
    found.push_back(candidate.token);
  EXPECT_EQ(found, expected);
}

TEST(Sampler, IsThePlainDefinition) {
  int cut = 0;
  for (unsigned seed = 0; seed < 8; ++seed)
    for (const double temperature : {0.3, 0.8, 1.0, 2.5})
      for (const int top_k : {0, 1, 5, 40, 1000})
        for (const auto& [top_p, min_p] : {std::pair{0.05, 0.0},
                                           {0.37, 0.3},
                                           {0.9, 0.0},
                                           {0.9, 0.11},
                                           {0.999, 0.03},
                                           {1.0, 0.0},
                                           {1.0, 0.21}}) {
          const Logits logits = random_logits(97, seed);
          const SamplingSettings sampling = settings(temperature, top_k, top_p, min_p);
          const std::vector<double> expected = plain_probabilities(logits, sampling);
          const std::vector<double> found = probabilities(logits, sampling);
          for (std::size_t i = 0; i < logits.size(); ++i) {
            ASSERT_EQ(found[i] > 0.0, expected[i] > 0.0)
                << "token " << i << " at temperature " << temperature << ", top-k " << top_k
                << ", top-p " << top_p << ", min-p " << min_p;
            ASSERT_NEAR(found[i], expected[i], 1e-14);
            cut += expected[i] == 0.0;
          }
        }
  EXPECT_GT(cut, 1000);
}

TEST(Sampler, TheNucleusIsTheFewestThatReachIt) {
  const Logits four(4, 1.5F);  // a quarter each, exactly
  EXPECT_EQ(tokens(four, settings(1.0, 0, 0.25)), (std::vector<std::int32_t>{0}));
  EXPECT_EQ(tokens(four, settings(1.0, 0, 0.2500001)), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(tokens(four, settings(1.0, 0, 0.5)), (std::vector<std::int32_t>{0, 1}));
  EXPECT_EQ(tokens(four, settings(1.0, 0, 0.9)), (std::vector<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(tokens(four, settings(1.0, 2, 0.5)), (std::vector<std::int32_t>{0}))
      << "half of the two that top-k leaves";
  EXPECT_EQ(tokens({0.0F, 3.0F, 1.0F}, settings(1.0, 0, 1e-300)), (std::vector<std::int32_t>{1}));
}

TEST(Sampler, TemperatureWidensTheNucleus) {
  const Logits logits = random_logits(500, 3);
  std::size_t before = 0;
  for (const double temperature : {0.1, 0.5, 1.0, 2.0, 10.0}) {
    const std::size_t size = candidates(logits, settings(temperature, 0, 0.9)).size();
    EXPECT_GT(size, before);
    before = size;
  }
}

TEST(Sampler, MinPKeepsWhatIsLikelyEnough) {
  const Logits logits = {std::log(2.0F), 0.0F, std::log(4.0F), std::log(3.0F)};
  EXPECT_EQ(tokens(logits, settings(1.0, 0, 1.0, 0.6)), (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(tokens(logits, settings(1.0, 0, 1.0, 0.8)), (std::vector<std::int32_t>{2}));
  EXPECT_EQ(tokens(logits, settings(0.5, 0, 1.0, 0.3)), (std::vector<std::int32_t>{2, 3}))
      << "probabilities behind the temperature";
  EXPECT_EQ(tokens({1.0F, 1.0F, 0.0F}, settings(1.0, 0, 1.0, 1.0)),
            (std::vector<std::int32_t>{0, 1}));
}

// Probabilities by the logits processors of transformers 5.24 in torch: softmax behind
// RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper and
// MinPLogitsWarper, which its generation calls in this order.
TEST(Sampler, HasTheProbabilitiesOfTransformers) {
  const Logits logits = {2.5F,  -1.25F, 0.75F, 3.125F, -0.5F,   1.875F,
                         0.25F, -2.75F, 2.0F,  1.0F,   -0.125F, 0.5F};
  struct Case {
    std::vector<std::int32_t> seen;
    double penalty, temperature;
    int top_k;
    double top_p, min_p;
    std::vector<double> expected;
  };
  for (const Case& one : std::vector<Case>{
           {{3, 3, 7, 1},
            1.3,
            1.0,
            0,
            1.0,
            0.0,
            {0.261202653, 0.00422194767, 0.0453902151, 0.237256734, 0.0130045144, 0.139811705,
             0.0275305571, 0.0006006738, 0.158427418, 0.0582821899, 0.0189214567, 0.0353499351}},
           {{3, 0, 4},
            1.8,
            0.7,
            0,
            1.0,
            0.0,
            {0.115336461, 0.00265916501, 0.0463006025, 0.189404557, 0.00438422192, 0.230972325,
             0.0226660748, 0.000311971006, 0.276129335, 0.0661746792, 0.0132653451, 0.0323952617}},
           {{3, 0, 4, 5},
            1.2,
            1.3,
            7,
            1.0,
            0.0,
            {0.19269376, 0, 0.0690935352, 0.287649624, 0, 0.12908371, 0, 0, 0.180729179,
             0.0837443645, 0, 0.0570058268}},
           {{8, 8, 8},
            1.5,
            0.9,
            8,
            0.8,
            0.0,
            {0.285555357, 0, 0, 0.571852061, 0, 0.142592582, 0, 0, 0, 0, 0, 0}},
           {{2},
            1.1,
            1.4,
            9,
            0.95,
            0.15,
            {0.210200654, 0, 0.0573608097, 0.328485016, 0, 0.134509393, 0, 0, 0.147071632,
             0.0719976897, 0, 0.0503748058}},
           {{0, 3},
            0.8,
            0.6,
            0,
            1.0,
            0.05,
            {0.213814577, 0, 0, 0.786185423, 0, 0, 0, 0, 0, 0, 0, 0}}}) {
    const std::vector<double> found =
        probabilities(penalized(logits, one.penalty, one.seen),
                      settings(one.temperature, one.top_k, one.top_p, one.min_p));
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(found[i], one.expected[i], 1e-6)
          << "token " << i << " with penalty " << one.penalty;
  }
}

TEST(Sampler, SeenTokensArePenalizedOnce) {
  const Logits logits = {2.0F, -2.0F, 0.0F, 3.0F, 0.7F};
  EXPECT_EQ(penalized(logits, 1.3, {0, 1, 2, 4, 0, 1}),
            (Logits{2.0F / 1.3F, -2.0F * 1.3F, 0.0F, 3.0F, 0.7F / 1.3F}));
  EXPECT_EQ(penalized(logits, 0.5, {1, 3}), (Logits{2.0F, -1.0F, 0.0F, 6.0F, 0.7F}));
  EXPECT_EQ(penalized(logits, 1.3, {}), logits);
}

TEST(Sampler, EverythingIsTheDefault) {
  Logits logits = random_logits(60, 1);
  logits[0] = -60.0F;  // exp(-65) is lost in a sum, but it may come
  EXPECT_EQ(candidates(logits, settings(1.0)).size(), 60U);
  EXPECT_EQ(candidates(logits, settings(1.0, 60, 1.0)).size(), 60U);
}

TEST(Sampler, TemperatureZeroTakesTheLikeliestAndTheFirstOfEqualOnes) {
  for (const double top_p : {0.1, 1.0})
    for (const int top_k : {0, 3})
      EXPECT_EQ(tokens({1.0F, 7.0F, 7.0F, 2.0F}, settings(0.0, top_k, top_p)),
                (std::vector<std::int32_t>{1}));
  EXPECT_EQ(draw({1.0F, 7.0F, 7.0F, 2.0F}, settings(0.0), 0.999), 1);
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const Logits logits = random_logits(30, 5);
  for (const SamplingSettings& sampling :
       {settings(1.0), settings(0.7, 6), settings(1.3, 0, 0.8), settings(1.3, 12, 0.8)}) {
    const std::vector<double> expected = plain_probabilities(logits, sampling);
    // An even grid of `uniform`: a token has its share of it, to one point at each end.
    constexpr int points = 20000;
    std::vector<int> counts(logits.size(), 0);
    for (int i = 0; i < points; ++i)
      ++counts[static_cast<std::size_t>(draw(logits, sampling, (i + 0.5) / points))];
    for (std::size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(counts[i], points * expected[i], 1.0 + 1e-9) << "token " << i;
  }
}

TEST(Sampler, LikelierTokensComeFirst) {
  const Logits logits = {0.0F, 2.0F, 1.0F};
  EXPECT_EQ(draw(logits, settings(1.0), 0.0), 1);
  EXPECT_EQ(draw(logits, settings(1.0), 0.999), 0);
  EXPECT_EQ(draw(logits, settings(1.0), 0.0), draw(logits, settings(1.0), 0.0));
}

TEST(Sampler, NumbersWithoutOrderAreRefused) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    const std::string error = testing::error_of([&] { draw({0.0F, bad}, settings(0.0), 0.5); });
    EXPECT_HAS(error, "logit of token 1");
  }
}

}  // namespace
}  // namespace ostrakon::train
