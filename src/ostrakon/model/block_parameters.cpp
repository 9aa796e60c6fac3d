// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/block_parameters.hpp>

#include <cmath>

namespace ostrakon::model {

void add_linear(std::vector<Parameter>& parameters, const std::string& name, std::int64_t outputs,
                std::int64_t inputs, bool bias, double deviation) {
  parameters.push_back({name + ".weight", {outputs, inputs}, Initializer::normal, deviation, true});
  if (bias) parameters.push_back({name + ".bias", {outputs}, Initializer::zeros});
}

void add_norm(std::vector<Parameter>& parameters, const std::string& name, math::NormKind kind,
              std::int64_t width, bool bias) {
  parameters.push_back({name + ".weight", {width}, Initializer::ones});
  if (bias && kind == math::NormKind::layernorm)
    parameters.push_back({name + ".bias", {width}, Initializer::zeros});
}

std::string name_of_up(const DecoderSettings& settings, const std::string& mlp) {
  return mlp + (settings.activation == Activation::gelu ? ".up" : ".gate_up");
}

std::string name_of_expert(std::int64_t index) { return "mlp.experts." + std::to_string(index); }

namespace {

/// Each block adds two projections to the residual stream; its variance must not grow with depth.
double residual_deviation(const DecoderSettings& settings) {
  return settings.initializer_deviation / std::sqrt(2.0 * settings.layers);
}

/// Cuts of the parameters of a layer into tensor pieces: of its outputs, those of each section by
/// themselves; or of its inputs.
void cut_outputs(std::vector<Parameter>& parameters, const std::string& name,
                 const std::vector<std::int64_t>& sections) {
  for (Parameter& parameter : parameters)
    if (parameter.name == name + ".weight" || parameter.name == name + ".bias")
      parameter.cut = {false, sections};
}
void cut_inputs(std::vector<Parameter>& parameters, const std::string& name) {
  for (Parameter& parameter : parameters)
    if (parameter.name == name + ".weight") parameter.cut = {true, {}};
}

/// An MLP whose inner columns are cut.
void add_mlp(std::vector<Parameter>& parameters, const DecoderSettings& settings,
             const std::string& name, std::int64_t inner) {
  const std::int64_t up = settings.activation == Activation::gelu ? inner : 2 * inner;
  add_linear(parameters, name_of_up(settings, name), up, settings.width, settings.mlp_bias(),
             settings.initializer_deviation);
  add_linear(parameters, name + ".down", settings.width, inner, settings.mlp_bias(),
             residual_deviation(settings));
  cut_outputs(parameters, name_of_up(settings, name),
              up == inner ? std::vector{inner} : std::vector{inner, inner});
  cut_inputs(parameters, name + ".down");
}

}  // namespace

std::vector<Parameter> expert_parameters(const DecoderSettings& settings) {
  std::vector<Parameter> parameters;
  for (std::int64_t e = 0; e < settings.experts.count; ++e)
    add_mlp(parameters, settings, name_of_expert(e), settings.experts.width);
  for (Parameter& parameter : parameters) parameter.cut = {};  // whole experts are divided
  return parameters;
}

std::vector<Parameter> block_parameters(const DecoderSettings& settings, bool with_experts) {
  const std::int64_t width = settings.width;
  const std::int64_t heads = settings.query_width();
  const std::int64_t qkv = heads + 2 * settings.kv_heads * settings.head_width();
  const double deviation = settings.initializer_deviation;
  std::vector<Parameter> parameters;
  add_norm(parameters, "attention.norm", settings.norm, width, settings.bias);
  add_linear(parameters, "attention.qkv", qkv, width, settings.bias, deviation);
  cut_outputs(parameters, "attention.qkv", {heads, (qkv - heads) / 2, (qkv - heads) / 2});
  if (settings.query_key_norm)
    for (const char* name : {"attention.query_norm", "attention.key_norm"})
      add_norm(parameters, name, math::NormKind::rmsnorm, settings.head_width(), false);
  add_linear(parameters, "attention.out", width, heads, settings.bias,
             residual_deviation(settings));
  cut_inputs(parameters, "attention.out");
  add_norm(parameters, "mlp.norm", settings.norm, width, settings.bias);
  const ExpertSettings& experts = settings.experts;
  if (!experts.exist()) {
    add_mlp(parameters, settings, "mlp", settings.ffn_width);
    return parameters;
  }
  add_linear(parameters, "mlp.router", experts.count, width, false, deviation);
  parameters.back().orthogonalize = false;  // its rows give logits
  if (experts.balance == RouterBalance::bias) {
    parameters.push_back(Parameter::zeros("mlp.router.balance", {experts.count}));
    parameters.back().sign_rate = experts.balance_rate;
  }
  if (with_experts)
    for (Parameter& parameter : expert_parameters(settings))
      parameters.push_back(std::move(parameter));
  if (experts.shared > 0) add_mlp(parameters, settings, "mlp.shared", experts.shared_width());
  return parameters;
}

}  // namespace ostrakon::model
