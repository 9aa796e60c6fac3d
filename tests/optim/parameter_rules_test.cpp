// SPDX-License-Identifier: Apache-2.0
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <ostrakon/model/decoder.hpp>
#include <ostrakon/optim/parameter_rules.hpp>
#include <random>
#include <string>
#include <vector>

namespace ostrakon::optim {
namespace {

constexpr double base_rate = 3e-4;
constexpr double decay = 0.1;

model::Parameter parameter(const std::string& owner, const std::string& name, bool decays) {
  model::Parameter out;
  out.owner = owner;
  out.name = name;
  out.decays = decays;
  return out;
}

ParameterRule freeze(const std::string& pattern, bool frozen = true) {
  ParameterRule rule;
  rule.pattern = pattern;
  rule.frozen = frozen;
  return rule;
}

ParameterRule with_rate(const std::string& pattern, double learning_rate) {
  ParameterRule rule;
  rule.pattern = pattern;
  rule.learning_rate = learning_rate;
  return rule;
}

ParameterRule with_decay(const std::string& pattern, double weight_decay) {
  ParameterRule rule;
  rule.pattern = pattern;
  rule.weight_decay = weight_decay;
  return rule;
}

void expect_param_group(const std::vector<ParameterRule>& rules, const model::Parameter& of,
                        bool frozen, double learning_rate, double weight_decay) {
  const ParamGroup group = param_group_of(rules, of, base_rate, decay);
  EXPECT_EQ(group.frozen, frozen) << of.full_name();
  EXPECT_EQ(group.learning_rate, learning_rate) << of.full_name();
  EXPECT_EQ(group.weight_decay, weight_decay) << of.full_name();
  EXPECT_EQ(is_frozen(rules, of.full_name()), frozen) << of.full_name();
}

const model::Parameter matrix = parameter("block.1", "mlp.down.weight", true);
const model::Parameter norm = parameter("block.1", "mlp.norm.weight", false);

TEST(ParameterRules, WithoutARuleOnlyTheDecayDiffers) {
  for (const std::vector<ParameterRule>& rules :
       {std::vector<ParameterRule>(), {freeze("block.2.*"), with_rate("head.*", 1.0)}}) {
    expect_param_group(rules, matrix, false, base_rate, decay);
    expect_param_group(rules, norm, false, base_rate, 0.0);
  }
}

TEST(ParameterRules, AreForFullNames) {
  expect_param_group({freeze("block.1.mlp.down.weight")}, matrix, true, base_rate, decay);
  for (const char* other : {"mlp.down.weight", "block.1", "block.1.mlp.down", "", "block.11.*"})
    expect_param_group({freeze(other)}, matrix, false, base_rate, decay);
  for (const char* pattern : {"*", "*.mlp.down.*", "block.*.weight", "block.1.*", "*weight"})
    expect_param_group({freeze(pattern)}, matrix, true, base_rate, decay);
}

TEST(ParameterRules, OfThoseThatSetTheSameTheLastHolds) {
  expect_param_group({freeze("*"), freeze("block.1.*", false)}, matrix, false, base_rate, decay);
  expect_param_group({freeze("block.1.*", false), freeze("*")}, matrix, true, base_rate, decay);
  expect_param_group({with_rate("*", 1.0), with_rate("*.weight", 2.0)}, norm, false, 2.0, 0.0);
  expect_param_group({with_rate("*.weight", 2.0), with_rate("*", 1.0)}, norm, false, 1.0, 0.0);
  // Values that the last rule does not set come from earlier rules, and 0 counts as set.
  expect_param_group({with_rate("*", 0.0), with_decay("*", 0.0), freeze("block.*")}, matrix, true,
                     0.0, 0.0);
  ParameterRule all = with_rate("*", 1.0);
  all.weight_decay = 0.5;
  all.frozen = true;
  expect_param_group({all, with_decay("block.*", 0.25), with_decay("head.*", 2.0)}, matrix, true,
                     1.0, 0.25);
}

TEST(ParameterRules, MakeDecayWhatOtherwiseDoesNot) {
  expect_param_group({with_decay("*.norm.*", 0.01)}, norm, false, base_rate, 0.01);
  expect_param_group({with_rate("*.norm.*", 0.01)}, norm, false, 0.01, 0.0);
}

/// Compares the patterns with std::regex, over the parameters of a whole model.
TEST(ParameterRules, AreAsRegularExpressionsSay) {
  model::DecoderSettings settings;
  settings.layers = 12;
  settings.bias = true;
  settings.tie_embeddings = false;
  settings.blocks_per_unit = 5;
  const model::Decoder<float> decoder(settings, {1, 8});
  std::vector<model::Parameter> parameters;
  for (int u = 0; u < decoder.units(); ++u)
    for (const model::Parameter& one : decoder.unit(u).parameters()) parameters.push_back(one);
  const std::vector<std::string> patterns = {
      "*",      "*.bias",     "*norm*",         "block.1*",          "block.*.mlp.*",
      "head.*", "*.1*weight", "block.4.*",      "embedding.*",       "block.*.attention.*.weight",
      "*t",     "**.out.**",  "block.11.mlp.*", "head.norm.weight*", "block.0.mlp.up.weight"};
  std::mt19937 random(3);
  int frozen = 0, changed = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<ParameterRule> rules;
    for (auto left = random() % 6; left > 0; --left) {
      ParameterRule rule;
      rule.pattern = patterns[random() % patterns.size()];
      if (random() % 2 == 0) rule.frozen = random() % 2 == 0;
      if (random() % 2 == 0) rule.learning_rate = static_cast<double>(random() % 8);
      if (random() % 2 == 0) rule.weight_decay = static_cast<double>(random() % 8);
      rules.push_back(rule);
    }
    for (const model::Parameter& one : parameters) {
      ParamGroup expected;
      expected.learning_rate = base_rate;
      expected.weight_decay = one.decays ? decay : 0.0;
      for (const ParameterRule& rule : rules) {
        if (fnmatch(rule.pattern.c_str(), one.full_name().c_str(), 0) != 0) continue;
        if (rule.frozen) expected.frozen = *rule.frozen;
        if (rule.learning_rate) expected.learning_rate = *rule.learning_rate;
        if (rule.weight_decay) expected.weight_decay = *rule.weight_decay;
      }
      expect_param_group(rules, one, expected.frozen, expected.learning_rate,
                         expected.weight_decay);
      frozen += expected.frozen ? 1 : 0;
      changed += expected.learning_rate != base_rate ? 1 : 0;
    }
  }
  EXPECT_GT(frozen, 1000);
  EXPECT_GT(changed, 1000);
}

}  // namespace
}  // namespace ostrakon::optim
