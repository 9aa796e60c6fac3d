// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/parameter_rules.hpp>

#include <ostrakon/plan/ir/policy.hpp>

namespace ostrakon::optim {

ParamGroup param_group_of(const std::vector<ParameterRule>& rules,
                          const model::Parameter& parameter, double learning_rate,
                          double weight_decay) {
  ParamGroup group;
  group.learning_rate = parameter.sign_rate > 0.0 ? parameter.sign_rate : learning_rate;
  group.weight_decay = parameter.decays ? weight_decay : 0.0;
  const std::string name = parameter.full_name();
  for (const ParameterRule& rule : rules) {
    if (!plan::matches(rule.pattern, name)) continue;
    group.frozen = rule.frozen.value_or(group.frozen);
    group.learning_rate = rule.learning_rate.value_or(group.learning_rate);
    group.weight_decay = rule.weight_decay.value_or(group.weight_decay);
  }
  return group;
}

bool is_frozen(const std::vector<ParameterRule>& rules, const std::string& full_name) {
  bool frozen = false;
  for (const ParameterRule& rule : rules)
    if (plan::matches(rule.pattern, full_name)) frozen = rule.frozen.value_or(frozen);
  return frozen;
}

}  // namespace ostrakon::optim
