// SPDX-License-Identifier: Apache-2.0
// Losses of pairs of answers and their gradients, through all units.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>

#include "math/check_gradient.hpp"
#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

constexpr double beta = 0.7;

/// Pairs in sequences of 20 tokens: where the second answer begins, and where padding does.
struct Ends {
  std::int64_t second, padding;
};
constexpr Ends ends[] = {{9, 20}, {4, 15}};

std::vector<ModelCase> pair_cases() {
  std::vector<ModelCase> cases = model_cases();
  cases.resize(2);
  for (ModelCase& which : cases) {
    which.settings.max_positions = 20;
    which.leaf = {2, 20};
    which.leaf.has_documents = which.leaf.restarts_positions = true;
    which.leaf.pair_beta = beta;
  }
  return cases;
}

/// Sets a batch of pairs, with references of so much; the first three tokens of each answer are the
/// prompt.
template <class T>
void set_pairs(ModelRun<T>& run, double reference) {
  std::vector<std::int32_t> begins;
  for (const Ends& end : ends)
    for (std::int64_t i = 0; i < 20; ++i) {
      const std::int64_t begin = i >= end.padding ? i : i >= end.second ? end.second : 0;
      const auto row = begins.size();
      if (i >= end.padding || i - begin < 2) run.target_ids[row] = -1;
      begins.push_back(static_cast<std::int32_t>(begin));
    }
  for (float& one : run.references) one = static_cast<float>(reference *= 1.1);
  run.set_batch(run.token_ids, run.target_ids, begins);
}

TEST(PairGradient, AgreesWithFiniteDifferences) {
  for (ModelCase which : pair_cases())
    for (const bool by_sequence : {false, true}) {
      SCOPED_TRACE(text(which.name, by_sequence ? ", by sequence" : ""));
      which.leaf.by_sequence = by_sequence;
      ModelRun<double> run(which);
      set_pairs(run, -20.0);
      const double scale = 0.25;
      run.forward();
      const std::vector<double> outputs = run.head_output();
      run.outputs[run.head()].assign_unwritten();
      run.backward(scale);
      run.expect_guards_intact();
      EXPECT_LE(relative_distance(run.head_output(), outputs), 1e-14);
      std::vector<std::vector<double>> gradients;
      for (const auto& gradient : run.gradients) gradients.push_back(gradient.values());
      run.for_each_parameter([&](int u, const model::Parameter& p) {
        const std::vector<double> before = run.parameters[u].values();
        std::vector<double> x, of_x;
        std::vector<std::size_t> places;
        for (std::int64_t i = 0; i < p.elements(); i += 1 + p.elements() / 12) {
          places.push_back(static_cast<std::size_t>(p.offset + i));
          x.push_back(before[places.back()]);
          of_x.push_back(gradients[u][places.back()]);
        }
        const auto loss = [&] {
          std::vector<double> values = before;
          for (std::size_t i = 0; i < x.size(); ++i) values[places[i]] = x[i];
          run.parameters[u].assign(values);
          run.forward();
          const std::vector<double> all = run.head_output();
          return scale * (all[0] + all[1]);
        };
        EXPECT_TRUE(gradient_agrees(p.full_name(), x, of_x, loss));
        run.parameters[u].assign(before);
      });
    }
}

/// Log-ratios are sums of what a model that predicts tokens finds, less the references.
TEST(PairGradient, LossesAreThoseOfTheTokens) {
  for (const ModelCase& which : pair_cases()) {
    ModelRun<float> pairs(which);
    set_pairs(pairs, -20.0);
    pairs.forward();
    const std::vector<float> found = pairs.head_output();
    ASSERT_EQ(found.size(), 2u * math::pair_outputs);
    ModelCase plain = which;
    plain.leaf.pair_beta = 0.0;
    ModelRun<float> tokens(plain);
    tokens.set_batch(pairs.token_ids, pairs.target_ids, pairs.document_begins());
    tokens.forward();
    const std::vector<float> losses = tokens.losses();
    for (int p = 0; p < 2; ++p) {
      double ratios[2];
      for (int answer = 0; answer < 2; ++answer) {
        ratios[answer] = -static_cast<double>(pairs.references[2 * p + answer]);
        const std::int64_t begin = answer == 0 ? 0 : ends[p].second;
        const std::int64_t end = answer == 0 ? ends[p].second : ends[p].padding;
        for (std::int64_t i = begin; i < end; ++i)
          ratios[answer] -= static_cast<double>(losses[20 * p + i]);
        EXPECT_NEAR(found[2 * (1 + answer) + p], ratios[answer], 2e-5);
      }
      const double margin = beta * (ratios[0] - ratios[1]);
      EXPECT_NEAR(found[p], std::log1p(std::exp(-margin)), 2e-5);
    }
  }
}

TEST(PairGradient, IsRefusedWhereASequenceOrWordsAreDivided) {
  ModelCase which = pair_cases()[1];
  which.leaf.tensor_grain = 2;
  EXPECT_THROW(model::Decoder<float>(which.settings, which.leaf), Error);
  which.leaf.tensor_grain = 1;
  which.leaf.restarts_positions = false;
  EXPECT_THROW(model::Decoder<float>(which.settings, which.leaf), Error);
}

}  // namespace
}  // namespace ostrakon::test
