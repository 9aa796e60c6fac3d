// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// Appends `name`.weight (outputs, inputs) and, with `bias`, `name`.bias (outputs).
void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation);
/// Appends `name`.weight (width) and, for a layer norm with `bias`, `name`.bias (width).
void add_norm(std::vector<Parameter>& parameters, const std::string& name, math::NormKind kind,
              std::int64_t width, bool bias);

/// The parameters of a transformer block, see Decoder, not laid out, with or without those of its
/// experts; and those of these alone.
std::vector<Parameter> block_parameters(const DecoderSettings& settings, bool with_experts = true);
std::vector<Parameter> expert_parameters(const DecoderSettings& settings);
/// The layer of an MLP before the activation: "mlp.up", or "mlp.gate_up".
std::string name_of_up(const DecoderSettings& settings, const std::string& mlp = "mlp");
/// "mlp.experts.3"
std::string name_of_expert(std::int64_t index);

}  // namespace ostrakon::model
