// SPDX-License-Identifier: Apache-2.0
// Losses of pairs of answers, and the factors of their tokens, against the formula.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>
#include <random>
#include <vector>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using test::DeviceArray;

constexpr int tokens = 75;
constexpr double beta = 0.3;

/// Pairs whose chosen answers have so many rows, then as many rows of rejected ones, then padding.
struct Pairs {
  explicit Pairs(const std::vector<int>& chosen_rows) {
    std::mt19937 random(5);
    std::exponential_distribution<double> loss(0.4);
    std::normal_distribution<double> reference(-60.0, 5.0);
    for (const int rows : chosen_rows) {
      for (int i = 0; i < tokens; ++i) {
        const bool is_padding = i >= 2 * rows, is_prompt = i % rows < 2;
        losses.push_back(is_padding || is_prompt ? 0.0 : loss(random));
        begins.push_back(is_padding ? i : i < rows ? 0 : rows);
      }
      for (int answer = 0; answer < 2; ++answer)
        references.push_back(static_cast<float>(reference(random)));
    }
  }
  int count() const { return static_cast<int>(references.size()) / 2; }

  std::vector<double> losses;
  std::vector<std::int32_t> begins;
  std::vector<float> references;
};

struct Found {
  std::vector<double> outputs, factors;
};

template <class C>
Found compute(const Pairs& pairs) {
  const DeviceArray<C> losses(std::vector<C>(pairs.losses.begin(), pairs.losses.end()));
  const DeviceArray<std::int32_t> begins(pairs.begins);
  const DeviceArray<float> references(pairs.references);
  const DeviceArray<C> outputs(math::pair_outputs * pairs.count()), factors(losses.size());
  math::pair_losses<C>(Exec(), beta, losses, begins, references,
                       outputs.matrix(math::pair_outputs, pairs.count()), factors);
  const auto doubles = [](const std::vector<C>& values) {
    return std::vector<double>(values.begin(), values.end());
  };
  return {doubles(outputs.host()), doubles(factors.host())};
}

TEST(PairLosses, AreThoseOfTheFormula) {
  const Pairs pairs({30, 37, 3, 12});
  const Found of_double = compute<double>(pairs), of_float = compute<float>(pairs);
  const int count = pairs.count();
  for (int p = 0; p < count; ++p) {
    long double ratios[2] = {-static_cast<long double>(pairs.references[2 * p]),
                             -static_cast<long double>(pairs.references[2 * p + 1])};
    for (int i = p * tokens; i < (p + 1) * tokens; ++i)
      ratios[pairs.begins[i] == 0 ? 0 : 1] -= pairs.losses[i];
    const long double margin = beta * (ratios[0] - ratios[1]);
    const long double expected[] = {-std::log(1 / (1 + std::exp(-margin))), ratios[0], ratios[1],
                                    ratios[0] > ratios[1] ? 1.0L : 0.0L};
    for (int array = 0; array < math::pair_outputs; ++array) {
      const auto value = static_cast<double>(expected[array]);
      const double size = std::max(1.0, std::abs(value));
      EXPECT_NEAR(of_double.outputs[array * count + p], value, 1e-13 * size) << p << " " << array;
      EXPECT_NEAR(of_float.outputs[array * count + p], value, 2e-5 * size) << p << " " << array;
    }
  }
}

TEST(PairLosses, HaveTheDerivativesOfTheirSum) {
  Pairs pairs({30, 37, 3, 12});
  const Found found = compute<double>(pairs);
  const auto sum = [&] {
    const std::vector<double> outputs = compute<double>(pairs).outputs;
    double all = 0.0;
    for (int p = 0; p < pairs.count(); ++p) all += outputs[p];
    return all;
  };
  // The losses of padding are always 0, so that it makes no difference what factors they have.
  std::vector<double> factors = found.factors;
  EXPECT_TRUE(test::gradient_agrees("token_losses", pairs.losses, factors, sum));
  const Found rounded = compute<float>(pairs);
  for (std::size_t i = 0; i < factors.size(); ++i)
    EXPECT_NEAR(rounded.factors[i], factors[i], 1e-5 * beta);
}

/// Also where one answer is nearly impossible.
TEST(PairLosses, AreFiniteForAnyMargin) {
  Pairs pairs({30, 30});
  pairs.references = {5000.0f, -5000.0f, -5000.0f, 5000.0f};
  const Found found = compute<float>(pairs);
  EXPECT_NEAR(found.outputs[0], 10000 * beta, 100 * beta);
  EXPECT_EQ(found.outputs[1], 0.0);
  EXPECT_NEAR(found.factors[0], beta, 1e-6);
  EXPECT_NEAR(found.factors[30], -beta, 1e-6);
  EXPECT_EQ(found.factors[tokens], 0.0);
}

/// A model that is the reference has margins of exactly 0.
TEST(PairLosses, OfTheReferenceAreLog2) {
  Pairs pairs({30, 37, 3, 12});
  const int count = pairs.count();
  pairs.references.assign(pairs.references.size(), 0.0f);
  const std::vector<double> own = compute<float>(pairs).outputs;
  for (int p = 0; p < count; ++p)
    for (int answer = 0; answer < 2; ++answer)
      pairs.references[2 * p + answer] = static_cast<float>(own[(1 + answer) * count + p]);
  const std::vector<double> outputs = compute<float>(pairs).outputs;
  for (int p = 0; p < count; ++p) {
    EXPECT_EQ(outputs[p], static_cast<double>(std::log(2.0f)));
    for (int array = 1; array < math::pair_outputs; ++array)
      EXPECT_EQ(outputs[array * count + p], 0.0);
  }
}

}  // namespace
