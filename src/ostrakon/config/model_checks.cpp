// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/model_checks.hpp>

#include <ostrakon/base/numbers.hpp>
#include <ostrakon/config/factors.hpp>
#include <utility>

namespace ostrakon::config {
namespace {

/// Checks that the layers that a pattern names exist.
void check_patterns(const model::DecoderSettings& model, const std::string& name) {
  const std::pair<const char*, const model::LayerPattern&> patterns[] = {
      {"expert_layers", model.expert_layers},
      {"rotary_layers", model.rotary_layers},
      {"window_layers", model.window_layers}};
  for (const auto& [key, pattern] : patterns)
    require(pattern.least_layers() <= model.layers, name, ": model.", key, " = ", pattern.text(),
            " names layers that model.layers = ", model.layers, " has not; expected layers up to ",
            model.layers - 1);
}

}  // namespace

void check_model(const model::DecoderSettings& model, const std::string& name) {
  require(model.head_dim > 0 || model.width % model.heads == 0, name,
          ": model.heads = ", model.heads, " does not divide model.width = ", model.width, " (",
          division(model.width, model.heads), "); expected a divisor, or model.head_width");
  require_divides(name, {"model.kv_heads", model.kv_heads}, {"model.heads", model.heads});
  require(model.blocks_per_unit <= model.layers, name,
          ": model.blocks_per_unit = ", model.blocks_per_unit,
          " is more than model.layers = ", model.layers);
  require(model.positions != model::Positions::rotary || model.head_width() % 2 == 0, name,
          ": model.positions = rotary rotates pairs of elements, so a head's width must be even: ",
          model.head_width() * model.heads == model.width
              ? text("model.width / model.heads = ", model.width, " / ", model.heads, " = ")
              : "model.head_width = ",
          model.head_width());
  check_patterns(model, name);
}

void check_experts(const Settings& settings, const std::string& name) {
  const model::ExpertSettings& experts = settings.model.experts;
  require(experts.exist() || settings.expert == 1, name, ": parallel.expert = ", settings.expert,
          " with model.experts = 0; expected 1, or some experts");
  if (!experts.exist()) return;
  require(
      experts.per_token <= experts.count, name, ": model.experts_per_token = ", experts.per_token,
      " is more than model.experts = ", experts.count, "; expected ", experts.count, " at most");
  require(experts.count % experts.groups == 0, name, ": model.router_groups = ", experts.groups,
          " does not divide model.experts = ", experts.count, " (",
          division(experts.count, experts.groups), "); expected a divisor");
  const std::int64_t of_group = experts.count / experts.groups;
  require(experts.groups_per_token <= experts.groups, name,
          ": model.router_groups_per_token = ", experts.groups_per_token,
          " is more than model.router_groups = ", experts.groups, "; expected ", experts.groups,
          " at most");
  require(experts.per_token <= experts.groups_per_token * of_group, name,
          ": model.experts_per_token = ", experts.per_token,
          " is more than the experts of model.router_groups_per_token = ", experts.groups_per_token,
          " groups of ", of_group, " (model.router_groups = ", experts.groups, "); expected ",
          experts.groups_per_token * of_group, " at most");
  require(experts.balance != model::RouterBalance::bias || experts.balance_rate > 0.0, name,
          ": model.router_balance = bias with model.router_balance_rate = ", experts.balance_rate,
          ", by which the bias would never change; expected more than 0");
  const std::int64_t sharing = settings.expert, tensor = settings.tensor;
  require(is_power_of_two(tensor), name, ": parallel.tensor = ", tensor,
          " with model.experts = ", experts.count,
          ", whose sums ranks add in pairs; expected a power of two");
  require(is_power_of_two(sharing) && experts.count % sharing == 0, name,
          ": parallel.expert = ", sharing, " for model.experts = ", experts.count,
          "; expected a power of two that divides it");
  require(sharing % tensor == 0, name, ": parallel.expert = ", sharing,
          " with parallel.tensor = ", tensor, " and model.experts = ", experts.count,
          ": tensor ranks share the experts; expected a multiple of ", tensor);
  require(tensor == 1 || settings.parallel.rank_order != plan::RankOrder::shard_first, name,
          ": parallel.rank_order = shard_first with parallel.tensor = ", tensor,
          " and model.experts = ", experts.count,
          ": ranks that share experts are neighbours; expected tensor_in_node or tensor_first");
  require(!has_expert_units(settings) || settings.model.blocks_per_unit <= 1, name,
          ": model.blocks_per_unit = ", settings.model.blocks_per_unit,
          sharing > 1 ? text(" with parallel.expert = ", sharing)
                      : text(" with model.tensor_grain = ", settings.tensor_grain),
          ", where experts are units of their own; expected 1");
}

}  // namespace ostrakon::config
