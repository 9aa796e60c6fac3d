// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/optim/parameter_rules.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::config {

// Rules by name in the syntax of decks. Written rules read back to equal ones.

/// Splits text at blanks.
std::vector<std::string> words(const std::string& text);

/// Rules separated by ';', each `PATTERN: SETTING VALUE, SETTING VALUE ...`, for example
///     block.*: reshard_after_forward never, backward_prefetch 2; head: forward_prefetch block.1
/// Settings are those of plan::UnitRule. A prefetch is an integer or names of units. Throws Error
/// that names the rule and what was expected there.
std::vector<plan::UnitRule> read_unit_rules(const std::string& text);
/// Omits rules that set nothing.
std::string write_unit_rules(const std::vector<plan::UnitRule>& rules);

/// Reads rules for parameters, with the settings of optim::ParameterRule, separated as unit rules
/// are:
///     embedding.*: frozen; *.norm.*: weight_decay 0, learning_rate 1e-4; block.0.*: trained
/// `trained` undoes an earlier `frozen`.
std::vector<optim::ParameterRule> read_parameter_rules(const std::string& text);
std::string write_parameter_rules(const std::vector<optim::ParameterRule>& rules);

}  // namespace ostrakon::config
