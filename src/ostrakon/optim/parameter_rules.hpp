// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::optim {

/// Settings of a deck for the parameters whose full name (model::Parameter::full_name) matches
/// `pattern`, in which * stands for any text. If several rules set the same value, the last
/// applies.
struct ParameterRule {
  std::string pattern;
  std::optional<bool> frozen;
  std::optional<double> learning_rate;  ///< peak rate, where the schedule is 1
  std::optional<double> weight_decay;   ///< also for parameters that don't decay by default
};

/// Learning rate and weight decay of one parameter.
struct ParamGroup {
  bool frozen = false;
  double learning_rate = 0.0;  ///< peak rate
  double weight_decay = 0.0;   ///< 0 for parameters that do not decay
};

/// Returns the settings of `parameter` by `rules`. Without a rule they are the given learning rate
/// (or the parameter's own sign_rate) and, if it decays, the given weight decay.
ParamGroup param_group_of(const std::vector<ParameterRule>& rules,
                          const model::Parameter& parameter, double learning_rate,
                          double weight_decay);

/// Whether `rules` freeze the parameter with that full name.
bool is_frozen(const std::vector<ParameterRule>& rules, const std::string& full_name);

}  // namespace ostrakon::optim
