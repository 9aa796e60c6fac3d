// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/layer_parameters.hpp>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::model {

std::vector<Parameter> linear_parameters(const std::string& name, std::int64_t outputs,
                                         std::int64_t inputs, const LinearSettings& settings,
                                         const Cut& cut) {
  std::vector<Parameter> layer = {
      Parameter::normal(name + ".weight", {outputs, inputs}, settings.deviation)};
  layer.back().cut = cut;
  if (!settings.bias) return layer;
  layer.push_back(Parameter::zeros(name + ".bias", {outputs}));
  if (!cut.by_columns) layer.back().cut = cut;
  return layer;
}

std::vector<Parameter> expert_parameters(const std::string& mixture, const ExpertSettings& settings,
                                         const MlpSettings& expert, std::int64_t columns) {
  std::vector<Parameter> all;
  const auto add = [&](std::vector<Parameter> layer) {
    for (Parameter& parameter : layer) all.push_back(std::move(parameter));
  };
  for (std::int64_t e = 0; e < settings.count; ++e) {
    const std::string name = name_of_expert(mixture, e);
    add(linear_parameters(name_of_up(expert.activation, name),
                          columns_of_up(expert.activation, settings.width), columns, expert.up));
    add(linear_parameters(name + ".down", columns, settings.width, expert.down));
  }
  return all;
}

void require_possible(const std::string& name, const ExpertSettings& experts, std::int64_t rows) {
  require(experts.count >= 0 && experts.count <= most_experts, name, " experts is ", experts.count,
          ", expected 0 for none, or up to ", most_experts);
  if (!experts.exist()) return;
  require(experts.width > 0, name, " expert width is ", experts.width, ", expected at least 1");
  require(experts.shared >= 0, name, " shared experts is ", experts.shared,
          ", expected at least 0");
  require(experts.own_shared_width >= 0, name, " width of shared experts is ",
          experts.own_shared_width, ", expected 0 for as wide as others, or more");
  require(experts.per_token >= 1 && experts.per_token <= experts.count, name, " ",
          experts.per_token, " experts per token of ", experts.count,
          ", expected at least 1 and at most all");
  require(experts.groups >= 1 && experts.groups <= math::most_router_groups &&
              experts.count % experts.groups == 0,
          name, " router groups is ", experts.groups, ", expected a divisor of the ", experts.count,
          " experts, at most ", math::most_router_groups);
  require(experts.groups_per_token >= 1 && experts.groups_per_token <= experts.groups &&
              experts.per_token <= experts.groups_per_token * (experts.count / experts.groups),
          name, " router groups per token is ", experts.groups_per_token, " of ", experts.groups,
          ", expected no more than all, with the ", experts.per_token,
          " experts of a token or more in them");
  require(experts.balance != RouterBalance::bias || experts.balance_rate > 0.0, name,
          " router balance rate is ", experts.balance_rate,
          ", by which a bias never changes; expected more than 0");
  require(rows <= std::numeric_limits<std::int32_t>::max() / experts.per_token, rows,
          " tokens at once, each by ", experts.per_token,
          " experts; expected fewer than 2^31 in all");
}

std::string name_of_up(Activation activation, const std::string& mlp) {
  return mlp + (is_gated(activation) ? ".gate_up" : ".up");
}

std::string name_of_expert(const std::string& mixture, std::int64_t index) {
  return mixture + ".experts." + std::to_string(index);
}

}  // namespace ostrakon::model
