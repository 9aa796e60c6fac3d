// SPDX-License-Identifier: Apache-2.0
// Every unit's backward, and the chain's, against finite differences in double.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "math/check_gradient.hpp"
#include "model/model_run.hpp"

namespace ostrakon::test {
namespace {

constexpr std::size_t samples = 40;

/// Up to `samples` elements of [begin, begin + count), spread at random.
std::vector<std::size_t> sample(std::size_t begin, std::size_t count) {
  std::vector<std::size_t> all(count), chosen;
  std::iota(all.begin(), all.end(), begin);
  std::mt19937 generator(7);
  std::sample(all.begin(), all.end(), std::back_inserter(chosen), samples, generator);
  return chosen;
}

std::vector<double> pick(const std::vector<double>& values, const std::vector<std::size_t>& at) {
  std::vector<double> picked;
  for (std::size_t i : at) picked.push_back(values[i]);
  return picked;
}

/// Checks some elements of [begin, begin + count) of `gradient`, that of `function` by `array`.
void expect_gradient(const std::string& name, GuardedArray<double>& array,
                     const std::vector<double>& gradient, std::size_t begin, std::size_t count,
                     const std::function<double()>& function) {
  const std::vector<std::size_t> chosen = sample(begin, count);
  const std::vector<double> before = array.values();
  std::vector<double> x = pick(before, chosen);
  const auto moved = [&] {
    std::vector<double> values = before;
    for (std::size_t i = 0; i < chosen.size(); ++i) values[chosen[i]] = x[i];
    array.assign(values);
    return function();
  };
  EXPECT_TRUE(gradient_agrees(name, x, pick(gradient, chosen), moved));
  array.assign(before);
}

void expect_parameter_gradients(const std::string& name, ModelRun<double>& run, int u,
                                const std::vector<double>& gradients,
                                const std::function<double()>& function) {
  for (const model::Parameter& p : run.decoder.unit(u).parameters())
    expect_gradient(name + ", " + p.full_name(), run.parameters[u], gradients, p.offset,
                    p.elements(), function);
}

TEST(UnitGradient, Embedding) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<double> run(which);
    const std::vector<double> weights = run.random(run.gradient.size());
    const auto function = [&] {
      run.forward(0);
      return weighted_sum(run.outputs[0].values(), weights);
    };
    run.gradient.assign(weights);
    run.backward(0, 1.0, false);
    run.expect_guards_intact();
    expect_parameter_gradients(which.name, run, 0, run.gradients[0].values(), function);
  }
}

TEST(UnitGradient, EmbeddingAddsToOpenedGradients) {
  ModelRun<double> run(model_cases()[0]);
  run.gradient.assign(run.random(run.gradient.size()));
  run.backward(0, 1.0, false);
  const std::vector<double> alone = run.gradients[0].values();
  const std::vector<double> before = run.random(run.gradients[0].size());
  run.gradients[0].assign(before);
  run.backward(0, 1.0, true);
  const std::vector<double> together = run.gradients[0].values();
  for (std::size_t i = 0; i < alone.size(); ++i)
    ASSERT_NEAR(together[i], before[i] + (std::isnan(alone[i]) ? 0.0 : alone[i]), 1e-13) << i;
}

void expect_gradients_of_blocks(ModelCase which, const model::Recompute& recompute) {
  which.name += ", " + to_string(recompute);
  ModelRun<double> run(which, recompute);
  run.outputs[0].assign(run.random(run.gradient.size()));
  const std::vector<double> weights = run.random(run.gradient.size());
  const auto function = [&] {
    run.forward(1);
    return weighted_sum(run.outputs[1].values(), weights);
  };
  run.forward(1);
  run.gradient.assign(weights);
  run.backward(1, 1.0, false);
  run.expect_guards_intact();
  const std::vector<double> input_gradient = run.gradient.values();
  expect_parameter_gradients(which.name, run, 1, run.gradients[1].values(), function);
  expect_gradient(which.name + ", input of " + run.description.units[1].name, run.outputs[0],
                  input_gradient, 0, input_gradient.size(), function);
}

TEST(UnitGradient, Blocks) {
  for (const ModelCase& which : model_cases()) expect_gradients_of_blocks(which, {});
}

TEST(UnitGradient, BlocksThatComputeAgain) {
  const std::vector<ModelCase> cases = model_cases();
  for (const model::Recompute& recompute : recompute_choices())
    for (const std::size_t i : {0, 1, 8, 9})  // both families, and stacks of both
      expect_gradients_of_blocks(cases[i], recompute);
}

TEST(UnitGradient, Head) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<double> run(which);
    const int head = run.head();
    const double scale = 0.37;
    run.outputs[head - 1].assign(run.random(run.gradient.size()));
    const auto function = [&] {
      run.forward(head);
      const std::vector<double> losses = run.outputs[head].values();
      return scale * std::accumulate(losses.begin(), losses.end(), 0.0);
    };
    run.backward(head, scale, false);
    run.expect_guards_intact();
    const std::vector<double> input_gradient = run.gradient.values();
    expect_parameter_gradients(which.name, run, head, run.gradients[head].values(), function);
    expect_gradient(which.name + ", input of head", run.outputs[head - 1], input_gradient, 0,
                    input_gradient.size(), function);
    if (!which.settings.tie_embeddings) continue;

    // All gradients of the unit that it is tied to are written: the weight's, and zeros elsewhere.
    const std::vector<double> lent = run.gradients[0].values();
    const std::size_t weight = which.settings.vocabulary * which.settings.width;
    expect_gradient(which.name + ", lent weight", run.parameters[0], lent, 0, weight, function);
    for (std::size_t i = weight; i < lent.size(); ++i) ASSERT_EQ(lent[i], 0.0) << which.name;
  }
}

TEST(ChainGradient, AllParameters) {
  for (const ModelCase& which : model_cases()) {
    ModelRun<double> run(which);
    const double scale = 0.25;
    const auto function = [&] {
      run.forward();
      const std::vector<double> losses = run.outputs[run.head()].values();
      return scale * std::accumulate(losses.begin(), losses.end(), 0.0);
    };
    run.forward();
    run.backward(scale);
    run.expect_guards_intact();
    std::vector<std::vector<double>> gradients;
    for (int u = 0; u < run.units(); ++u) gradients.push_back(run.gradients[u].values());
    for (int u = 0; u < run.units(); ++u)
      expect_parameter_gradients(which.name, run, u, gradients[u], function);
  }
}

TEST(ChainGradient, LongSequences) {
  ModelCase which = model_cases()[1];
  which.name = "llama, long";
  which.settings.layers = 1;
  which.leaf = {1, 70};
  ModelRun<double> run(which);
  run.outputs[0].assign(run.random(run.gradient.size()));
  const std::vector<double> weights = run.random(run.gradient.size());
  const auto function = [&] {
    run.forward(1);
    return weighted_sum(run.outputs[1].values(), weights);
  };
  run.forward(1);
  run.gradient.assign(weights);
  run.backward(1, 1.0, false);
  const std::vector<double> input_gradient = run.gradient.values();
  expect_parameter_gradients(which.name, run, 1, run.gradients[1].values(), function);
  expect_gradient(which.name + ", input", run.outputs[0], input_gradient, 0, input_gradient.size(),
                  function);
}

}  // namespace
}  // namespace ostrakon::test
