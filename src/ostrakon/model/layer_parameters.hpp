// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/layer_settings.hpp>
#include <ostrakon/model/unit.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// `name`.weight (outputs, inputs) and, with a bias, `name`.bias (outputs), not laid out. Where
/// inputs are cut into tensor pieces the bias is not.
std::vector<Parameter> linear_parameters(const std::string& name, std::int64_t outputs,
                                         std::int64_t inputs, const LinearSettings& settings,
                                         const Cut& cut = {});

/// The MLPs of all experts of a mixture, whole, for rows of so many columns.
std::vector<Parameter> expert_parameters(const std::string& mixture, const ExpertSettings& settings,
                                         const MlpSettings& expert, std::int64_t columns);

/// Throws Error unless these can compute so many rows. `name`: whose experts they are.
void require_possible(const std::string& name, const ExpertSettings& experts, std::int64_t rows);

/// The layer of an MLP before the activation: `mlp`.up, or `mlp`.gate_up.
std::string name_of_up(Activation activation, const std::string& mlp);
/// `mixture`.experts.3
std::string name_of_expert(const std::string& mixture, std::int64_t index);

/// The outputs of that layer for so many inner columns.
constexpr std::int64_t columns_of_up(Activation activation, std::int64_t columns) {
  return is_gated(activation) ? 2 * columns : columns;
}

}  // namespace ostrakon::model
