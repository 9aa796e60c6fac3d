// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/optim/parameter_rules.hpp>

#include <ostrakon/plan/ir/policy.hpp>

namespace ostrakon::optim {

ParamGroup treatment_of(const std::vector<ParameterRule>& rules, const model::Parameter& parameter,
                        double learning_rate, double weight_decay) {
  ParamGroup treatment;
  treatment.learning_rate = parameter.sign_rate > 0.0 ? parameter.sign_rate : learning_rate;
  treatment.weight_decay = parameter.decays ? weight_decay : 0.0;
  const std::string name = parameter.full_name();
  for (const ParameterRule& rule : rules) {
    if (!plan::matches(rule.pattern, name)) continue;
    treatment.frozen = rule.frozen.value_or(treatment.frozen);
    treatment.learning_rate = rule.learning_rate.value_or(treatment.learning_rate);
    treatment.weight_decay = rule.weight_decay.value_or(treatment.weight_decay);
  }
  return treatment;
}

bool is_frozen(const std::vector<ParameterRule>& rules, const std::string& full_name) {
  bool frozen = false;
  for (const ParameterRule& rule : rules)
    if (plan::matches(rule.pattern, full_name)) frozen = rule.frozen.value_or(frozen);
  return frozen;
}

}  // namespace ostrakon::optim
