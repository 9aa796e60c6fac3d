// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/families/model_settings.hpp>

#include <cmath>
#include <nlohmann/json.hpp>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;
using math::RotaryScaling;
using model::DecoderSettings;
using model::LayerPattern;

Json query_key_norm(const DecoderSettings& s) {
  switch (s.query_key_norm) {
    case model::QueryKeyNorm::none:
      return false;
    case model::QueryKeyNorm::head:
      return true;
    case model::QueryKeyNorm::each_head:
      return "each_head";
    case model::QueryKeyNorm::whole:
      return "whole";
    case model::QueryKeyNorm::rotated:
      return "rotated";
  }
  return nullptr;
}

/// The auxiliary loss of a router changes gradients alone.
Json router_balance(const DecoderSettings& s) {
  return s.experts.balance == model::RouterBalance::bias ? "bias" : "none or loss";
}

LayerPattern shortest(const LayerPattern& pattern, std::int64_t layers) {
  std::vector<bool> all;
  for (std::int64_t l = 0; l < layers; ++l) all.push_back(pattern.has(l));
  return LayerPattern::of(all);
}

void settle_rotary(DecoderSettings& s) {
  const DecoderSettings defaults;
  s.rotary_layers = shortest(s.rotary_layers, s.layers);
  if (s.positions != model::Positions::rotary) {
    s.rotary = defaults.rotary;
    s.rotary_layers = LayerPattern();
    s.window_rotary_base = 0.0;
    return;
  }
  math::RotarySettings used;
  used.base = s.rotary.base;
  used.share = s.rotary.share;
  used.scaling = s.rotary.scaling;
  const RotaryScaling scaling = used.scaling;
  const bool has_length = scaling == RotaryScaling::llama3 || scaling == RotaryScaling::yarn ||
                          scaling == RotaryScaling::longrope;
  if (scaling != RotaryScaling::none) used.factor = s.rotary.factor;
  if (has_length) used.original_length = s.rotary.original_length;
  if (scaling == RotaryScaling::llama3) {
    used.low_factor = s.rotary.low_factor;
    used.high_factor = s.rotary.high_factor;
  }
  if (scaling == RotaryScaling::yarn) {
    used.beta_fast = s.rotary.beta_fast;
    used.beta_slow = s.rotary.beta_slow;
    used.truncate = s.rotary.truncate;
    used.attention_factor = s.rotary.attention_factor;
  }
  if (scaling == RotaryScaling::longrope) {
    used.attention_factor = s.rotary.attention_factor;
    used.short_factors = s.rotary.short_factors;
    used.long_factors = s.rotary.long_factors;
  }
  s.rotary = used;
  const bool is_same = s.window_rotary_base == used.base && scaling == RotaryScaling::none;
  if (is_same || s.attention_window == 0) s.window_rotary_base = 0.0;
}

void settle_window(DecoderSettings& s, std::int64_t tokens) {
  s.window_layers = shortest(s.window_layers, s.layers);
  const bool has_own_base =
      s.positions == model::Positions::rotary && s.window_rotary_base > 0.0 &&
      (s.window_rotary_base != s.rotary.base || s.rotary.scaling != RotaryScaling::none);
  const bool changes_nothing = s.attention_window >= tokens && !has_own_base;
  if (s.attention_window == 0 || changes_nothing || s.window_layers.count(s.layers) == 0) {
    s.attention_window = 0;
    s.window_layers = LayerPattern();
  }
}

/// Shared experts are one MLP: by a count if it is as wide as so many experts, else as one.
void settle_shared(model::ExpertSettings& experts) {
  const std::int64_t width = experts.shared_width();
  const bool is_even = experts.width > 0 && width % experts.width == 0;
  if (experts.shared > 0) experts.shared = is_even ? width / experts.width : 1;
  if (is_even || experts.shared == 0) experts.own_shared_width = 0;
  if (experts.shared == 0) experts.shared_gate = false;
}

void settle_experts(DecoderSettings& s) {
  const DecoderSettings defaults;
  s.expert_layers = shortest(s.expert_layers, s.layers);
  if (!s.experts.exist() || s.expert_layers.count(s.layers) == 0) {
    s.experts = defaults.experts;
    s.expert_layers = LayerPattern();
  }
  if (!s.has_dense_layers()) s.ffn_width = defaults.ffn_width;
  if (s.experts.groups == 1) {
    s.experts.groups_per_token = 1;
    s.experts.group_score = defaults.experts.group_score;
  }
  settle_shared(s.experts);
}

void settle_delta_nets(DecoderSettings& s) {
  s.delta_layers = shortest(s.delta_layers, s.layers);
  if (s.has_delta_nets()) return;
  s.delta_net = model::DeltaNetSettings();
  s.delta_layers = LayerPattern();
}

}  // namespace

#define VALUE(value) [](const DecoderSettings& s) -> Json { return value; }
#define NAMED(field) VALUE(name(s.field))

const std::vector<ModelKey>& model_keys() {
  static const std::vector<ModelKey> keys = {
      {"layers", VALUE(s.layers)},
      {"width", VALUE(s.width)},
      {"heads", VALUE(s.heads)},
      {"kv_heads", VALUE(s.kv_heads)},
      {"head_width", VALUE(s.head_width())},
      {"kv_rank", VALUE(s.latent.kv_rank)},
      {"query_rank", VALUE(s.latent.q_rank)},
      {"rotary_width", VALUE(s.latent.rotary_width)},
      {"value_width", VALUE(s.value_width())},
      {"latent_norm_epsilon", VALUE(s.latent.norm_epsilon), true},
      {"ffn_width", VALUE(s.ffn_width)},
      {"vocabulary", VALUE(s.vocabulary)},
      {"tie_embeddings", VALUE(s.tie_embeddings)},
      {"norm", NAMED(norm)},
      {"norm_weight", NAMED(norm_weight)},
      {"norm_placement", NAMED(norm_placement)},
      {"norm_epsilon", VALUE(s.norm_epsilon), true},
      {"block", NAMED(block)},
      {"positions", NAMED(positions)},
      {"activation", NAMED(activation)},
      {"query_key_norm", query_key_norm},
      {"query_key_norm_kind", NAMED(query_key_norm_kind)},
      {"qkv_bias", VALUE(s.qkv_bias())},
      {"out_bias", VALUE(s.out_bias())},
      {"mlp_bias", VALUE(s.mlp_bias())},
      {"norm_bias", VALUE(s.norm_bias())},
      {"head_bias", VALUE(s.head_bias)},
      {"attention_scale", VALUE(s.attention_scale), true},
      {"attention_soft_cap", VALUE(s.attention_soft_cap), true},
      {"attention_window", VALUE(s.attention_window)},
      {"window_layers", VALUE(s.window_layers.text())},
      {"attention_sinks", VALUE(s.attention_sinks)},
      {"attention_gate", VALUE(s.attention_gate)},
      {"clip_qkv", VALUE(s.clip_qkv), true},
      {"delta_key_heads", VALUE(s.delta_net.key_heads)},
      {"delta_value_heads", VALUE(s.delta_net.value_heads)},
      {"delta_key_width", VALUE(s.delta_net.key_width)},
      {"delta_value_width", VALUE(s.delta_net.value_width)},
      {"delta_convolution", VALUE(s.delta_net.convolution)},
      {"delta_layers", VALUE(s.delta_layers.text())},
      {"experts", VALUE(s.experts.count)},
      {"expert_layers", VALUE(s.expert_layers.text())},
      {"experts_per_token", VALUE(s.experts.per_token)},
      {"shared_experts", VALUE(s.experts.shared)},
      {"shared_expert_width", VALUE(s.experts.own_shared_width)},
      {"shared_gate", VALUE(s.experts.shared_gate)},
      {"expert_width", VALUE(s.experts.width)},
      {"router_score", NAMED(experts.score)},
      {"router_bias", VALUE(s.experts.router_bias)},
      {"router_normalize", VALUE(s.experts.normalize)},
      {"router_scale", VALUE(s.experts.scale), true},
      {"router_groups", VALUE(s.experts.groups)},
      {"router_groups_per_token", VALUE(s.experts.groups_per_token)},
      {"router_group_score", NAMED(experts.group_score)},
      {"router_balance", router_balance},
      {"rotary_base", VALUE(s.rotary.base)},
      {"rotary_share", VALUE(s.rotary.share), true},
      {"rotary_layers", VALUE(s.rotary_layers.text())},
      {"window_rotary_base", VALUE(s.window_rotary_base)},
      {"rotary_scaling", NAMED(rotary.scaling)},
      {"rotary_factor", VALUE(s.rotary.factor), true},
      {"rotary_original_length", VALUE(s.rotary.original_length)},
      {"rotary_low_factor", VALUE(s.rotary.low_factor), true},
      {"rotary_high_factor", VALUE(s.rotary.high_factor), true},
      {"rotary_beta_fast", VALUE(s.rotary.beta_fast), true},
      {"rotary_beta_slow", VALUE(s.rotary.beta_slow), true},
      {"rotary_truncate", VALUE(s.rotary.truncate)},
      {"rotary_attention_factor", VALUE(s.rotary.attention_factor), true},
      {"rotary_short_factors", VALUE(s.rotary.short_factors)},
      {"rotary_long_factors", VALUE(s.rotary.long_factors)},
      {"embedding_norm", VALUE(s.embedding_norm)},
      {"embedding_scale", VALUE(s.embedding_scale), true},
      {"residual_scale", VALUE(s.residual_scale), true},
      {"logit_scale", VALUE(s.logit_scale), true},
      {"logit_soft_cap", VALUE(s.logit_soft_cap), true},
      {"multi_token_depth", VALUE(s.multi_token_depth)}};
  return keys;
}

#undef NAMED
#undef VALUE

DecoderSettings canonical(DecoderSettings s, std::int64_t tokens) {
  settle_window(s, tokens);
  settle_rotary(s);
  settle_experts(s);
  settle_delta_nets(s);
  if (!s.latent.exist()) s.latent = model::LatentSettings();
  const double head_width = static_cast<double>(s.head_width());
  const auto is_float = [](double a, double b) {
    return static_cast<float>(a) == static_cast<float>(b);
  };
  if (is_float(s.attention_scale, 1.0 / std::sqrt(head_width))) s.attention_scale = 0.0;
  if (s.query_key_norm == model::QueryKeyNorm::none)
    s.query_key_norm_kind = math::NormKind::rmsnorm;
  const bool has_norm_bias = s.norm == math::NormKind::layernorm &&
                             s.norm_weight != math::NormWeight::none && s.norm_bias();
  s.own_norm_bias = has_norm_bias;
  return s;
}

std::vector<ModelDifference> model_differences(const DecoderSettings& theirs,
                                               const DecoderSettings& ours, std::int64_t tokens) {
  const DecoderSettings a = canonical(theirs, tokens), b = canonical(ours, tokens);
  const auto shown = [](const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  };
  std::vector<ModelDifference> differences;
  for (const ModelKey& key : model_keys()) {
    const Json x = key.get(a), y = key.get(b);
    const bool is_equal = key.in_float ? x.get<float>() == y.get<float>() : x == y;
    if (!is_equal) differences.push_back({key.name, shown(x), shown(y)});
  }
  return differences;
}

void shorten_biases(DecoderSettings& s) {
  const bool qkv = s.qkv_bias(), mlp = s.mlp_bias(), norm = s.norm_bias();
  s.bias = s.out_bias();
  const auto own = [&](bool value) {
    return value == s.bias ? std::optional<bool>() : std::optional<bool>(value);
  };
  s.own_qkv_bias = own(qkv);
  s.own_out_bias.reset();
  s.own_mlp_bias = own(mlp);
  const bool has_bias =
      s.norm == math::NormKind::layernorm && s.norm_weight != math::NormWeight::none;
  s.own_norm_bias = has_bias ? own(norm) : std::nullopt;
}

}  // namespace ostrakon::checkpoint
