// SPDX-License-Identifier: Apache-2.0

// The numbers and flags of settings that keys hold.

#include <cmath>
#include <ostrakon/checkpoint/families/keys.hpp>

namespace ostrakon::checkpoint::keys {
namespace {

using model::DecoderSettings;
using Type = Setting::Type;

double default_scale(const DecoderSettings& s) {
  return 1.0 / std::sqrt(static_cast<double>(s.head_width()));
}

void set_rotary_dim(DecoderSettings& s, double elements) {
  s.rotary.share = elements / static_cast<double>(s.head_width());
}

void set_query_scalar(DecoderSettings& s, double scalar) {
  const bool is_default = scalar == static_cast<double>(s.head_width());
  s.attention_scale = is_default ? 0.0 : 1.0 / std::sqrt(scalar);
}

double query_scalar_of(const DecoderSettings& s) {
  if (s.attention_scale == 0.0) return static_cast<double>(s.head_width());
  return 1.0 / (s.attention_scale * s.attention_scale);
}

void set_each_head_norms(DecoderSettings& s, bool exist) {
  s.query_key_norm = exist ? model::QueryKeyNorm::each_head : model::QueryKeyNorm::none;
  s.query_key_norm_kind = exist ? math::NormKind::layernorm : math::NormKind::rmsnorm;
}

/// How many experts the shared ones are as wide as.
std::int64_t shared_of(const DecoderSettings& s) {
  const std::int64_t width = s.experts.shared_width();
  const bool is_even = s.experts.width > 0 && width % s.experts.width == 0;
  return is_even ? width / s.experts.width : s.experts.shared;
}

void set_shared(DecoderSettings& s, double count) {
  s.experts.shared = static_cast<std::int64_t>(count);
  s.experts.own_shared_width = 0;
}

}  // namespace

#define GET(value) [](const DecoderSettings& s) -> double { return static_cast<double>(value); }
#define SET(statements) [](DecoderSettings& s, double value) { statements; }
#define FIELD(field) GET(s.field), SET(s.field = static_cast<decltype(s.field)>(value))

const Setting layers = {{"layers"}, Type::whole, FIELD(layers)};
const Setting width = {{"width"}, Type::whole, FIELD(width)};
const Setting heads = {{"heads"}, Type::whole, FIELD(heads)};
const Setting kv_heads = {{"kv_heads"}, Type::whole, FIELD(kv_heads)};
const Setting head_width = {{"head_width"},
                            Type::whole,
                            GET(s.head_width()),
                            SET(s.head_dim = static_cast<std::int64_t>(value))};
const Setting ffn_width = {{"ffn_width"}, Type::whole, FIELD(ffn_width)};
const Setting ffn_ratio = {
    {"ffn_width"},
    Type::rounded,
    GET(static_cast<double>(s.ffn_width) / static_cast<double>(s.width)),
    SET(s.ffn_width = static_cast<std::int64_t>(value * static_cast<double>(s.width)))};
const Setting vocabulary = {{"vocabulary"}, Type::whole, FIELD(vocabulary)};
const Setting tied = {{"tie_embeddings"}, Type::flag, FIELD(tie_embeddings)};
const Setting epsilon = {{"norm_epsilon"}, Type::number, FIELD(norm_epsilon)};

const Setting attention_bias = {{"qkv_bias", "out_bias"},
                                Type::flag,
                                GET(s.qkv_bias()),
                                SET(s.own_qkv_bias = s.own_out_bias = value != 0.0)};
const Setting qkv_bias = {
    {"qkv_bias"}, Type::flag, GET(s.qkv_bias()), SET(s.own_qkv_bias = value != 0.0)};
const Setting out_bias = {
    {"out_bias"}, Type::flag, GET(s.out_bias()), SET(s.own_out_bias = value != 0.0)};
const Setting mlp_bias = {
    {"mlp_bias"}, Type::flag, GET(s.mlp_bias()), SET(s.own_mlp_bias = value != 0.0)};
const Setting linear_bias = {{"qkv_bias", "out_bias", "mlp_bias"},
                             Type::flag,
                             GET(s.qkv_bias()),
                             SET(s.own_qkv_bias = s.own_out_bias = s.own_mlp_bias = value != 0.0)};

const Setting attention_soft_cap = {{"attention_soft_cap"}, Type::cap, FIELD(attention_soft_cap)};
const Setting logit_soft_cap = {{"logit_soft_cap"}, Type::cap, FIELD(logit_soft_cap)};
const Setting clip_qkv = {{"clip_qkv"}, Type::cap, FIELD(clip_qkv)};

const Setting embedding_scale = {{"embedding_scale"}, Type::number, FIELD(embedding_scale)};
const Setting residual_scale = {{"residual_scale"}, Type::number, FIELD(residual_scale)};
const Setting attention_scale = {
    {"attention_scale"},
    Type::number,
    GET(s.attention_scale == 0.0 ? default_scale(s) : s.attention_scale),
    SET(s.attention_scale = value == default_scale(s) ? 0.0 : value)};
const Setting logit_scale = {{"logit_scale"}, Type::number, FIELD(logit_scale)};
const Setting logit_divisor = {
    {"logit_scale"}, Type::number, GET(1.0 / s.logit_scale), SET(s.logit_scale = 1.0 / value)};
const Setting query_scalar = {
    {"attention_scale"}, Type::rounded, GET(query_scalar_of(s)), SET(set_query_scalar(s, value))};
const Setting rotary_dim = {{"rotary_share"},
                            Type::whole,
                            GET(std::round(s.rotary.share* static_cast<double>(s.head_width()))),
                            SET(set_rotary_dim(s, value))};

const Setting parallel = {
    {"block"},
    Type::flag,
    GET(s.block == model::BlockForm::parallel),
    SET(s.block = value != 0.0 ? model::BlockForm::parallel : model::BlockForm::sequential)};
const Setting parallel_two_norms = {
    {"block"},
    Type::flag,
    GET(s.block == model::BlockForm::parallel_two_norms),
    SET(s.block =
            value != 0.0 ? model::BlockForm::parallel_two_norms : model::BlockForm::sequential)};
const Setting head_norms = {
    {"query_key_norm"},
    Type::flag,
    GET(s.query_key_norm == model::QueryKeyNorm::head),
    SET(s.query_key_norm = value != 0.0 ? model::QueryKeyNorm::head : model::QueryKeyNorm::none)};
const Setting each_head_norms = {{"query_key_norm", "query_key_norm_kind"},
                                 Type::flag,
                                 GET(s.query_key_norm == model::QueryKeyNorm::each_head),
                                 SET(set_each_head_norms(s, value != 0.0))};

const Setting kv_rank = {{"kv_rank"}, Type::whole, FIELD(latent.kv_rank)};
const Setting query_rank = {{"query_rank"}, Type::whole_or_null, FIELD(latent.q_rank)};
const Setting rotary_width = {{"rotary_width"}, Type::whole, FIELD(latent.rotary_width)};
const Setting value_width = {{"value_width"},
                             Type::whole,
                             GET(s.value_width()),
                             SET(s.latent.value_width = static_cast<std::int64_t>(value))};
const Setting unrotated_width = {
    {"head_width"},
    Type::whole,
    GET(s.head_width() - s.latent.rotary_width),
    SET(s.head_dim = static_cast<std::int64_t>(value) + s.latent.rotary_width)};

const Setting experts = {{"experts"}, Type::whole, FIELD(experts.count)};
const Setting experts_per_token = {{"experts_per_token"}, Type::whole, FIELD(experts.per_token)};
const Setting expert_width = {{"expert_width"}, Type::whole, FIELD(experts.width)};
const Setting shared_experts = {
    {"shared_experts"}, Type::whole_or_0, GET(shared_of(s)), SET(set_shared(s, value))};
const Setting shared_width = {
    {"shared_expert_width", "shared_experts"},
    Type::whole,
    GET(s.experts.shared_width()),
    SET(s.experts.shared = 1; s.experts.own_shared_width = static_cast<std::int64_t>(value))};
const Setting delta_key_heads = {{"delta_key_heads"}, Type::whole, FIELD(delta_net.key_heads)};
const Setting delta_value_heads = {
    {"delta_value_heads"}, Type::whole, FIELD(delta_net.value_heads)};
const Setting delta_key_width = {{"delta_key_width"}, Type::whole, FIELD(delta_net.key_width)};
const Setting delta_value_width = {
    {"delta_value_width"}, Type::whole, FIELD(delta_net.value_width)};
const Setting delta_convolution = {
    {"delta_convolution"}, Type::whole, FIELD(delta_net.convolution)};
const Setting multi_token_depth = {
    {"multi_token_depth"}, Type::whole_or_0, FIELD(multi_token_depth)};
const Setting router_normalize = {{"router_normalize"}, Type::flag, FIELD(experts.normalize)};
const Setting router_scale = {{"router_scale"}, Type::number, FIELD(experts.scale)};
const Setting router_groups = {{"router_groups"}, Type::whole, FIELD(experts.groups)};
const Setting router_groups_per_token = {
    {"router_groups_per_token"}, Type::whole, FIELD(experts.groups_per_token)};

#undef FIELD
#undef SET
#undef GET

double as_heads(const DecoderSettings& theirs) { return static_cast<double>(theirs.heads); }
double equal_heads(const DecoderSettings& theirs) {
  const std::int64_t equal = theirs.width / theirs.heads;
  return static_cast<double>(equal);
}
double four_widths(const DecoderSettings& theirs) {
  return 4.0 * static_cast<double>(theirs.width);
}

}  // namespace ostrakon::checkpoint::keys
