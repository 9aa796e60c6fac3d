// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::optim {

/// What a deck says of the parameters whose full name (model::Parameter::full_name) matches
/// `pattern`, in which * stands for any text. Of rules that match and set the same, the last
/// applies.
struct ParameterRule {
  std::string pattern;
  std::optional<bool> frozen;
  std::optional<double> learning_rate;  ///< at its peak, where the schedule is 1
  std::optional<double> weight_decay;   ///< also of those that otherwise don't decay
};

/// How one parameter is updated.
struct Treatment {
  bool frozen = false;
  double learning_rate = 0.0;  ///< at its peak
  double weight_decay = 0.0;   ///< 0 for parameters that do not decay
};

/// Without a rule: the learning rate (or the parameter's own sign_rate) and, of parameters that
/// decay, the weight decay given here.
Treatment treatment_of(const std::vector<ParameterRule>& rules, const model::Parameter& parameter,
                       double learning_rate, double weight_decay);

/// Whether `rules` freeze the parameter with that full name.
bool is_frozen(const std::vector<ParameterRule>& rules, const std::string& full_name);

}  // namespace ostrakon::optim
