// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>
#include <ostrakon/math/attention/rotary_settings.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/experts/routing.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <set>
#include <string>

namespace ostrakon::model {

/// A linear layer y = x W^T + b has a W with random initial values of this standard deviation, and
/// may have a b, which is 0 at first.
struct LinearSettings {
  double deviation = 0.02;
  bool bias = true;
};

/// A linear layer of a block that may have an adapter, and what PEFT calls it in models of Llama's
/// kind. Queries, keys and values are parts of one layer, as gate and up are.
struct AdaptableLayer {
  const char* layer;
  const char* target;
};
constexpr AdaptableLayer adaptable_layers[] = {
    {"attention.q", "q_proj"},   {"attention.k", "k_proj"}, {"attention.v", "v_proj"},
    {"attention.out", "o_proj"}, {"mlp.gate", "gate_proj"}, {"mlp.up", "up_proj"},
    {"mlp.down", "down_proj"}};

/// Low-rank adapters (LoRA, Hu et al. 2021, arXiv 2106.09685): a layer of `layers` computes x W^T +
/// b + scale() (x A^T) B^T, with A `layer`.lora_a.weight (rank, inputs) and B `layer`.lora_b.weight
/// (outputs, rank). All other parameters are frozen.
struct LoraSettings {
  std::int64_t rank = 0;  ///< 0: no layer has an adapter
  double alpha = 16.0;
  std::set<std::string> layers = {"attention.q", "attention.v"};  ///< of adaptable_layers

  bool exist() const { return rank > 0; }
  bool has(const std::string& layer) const { return exist() && layers.count(layer) > 0; }
  double scale() const { return alpha / static_cast<double>(rank); }
};

/// Whether a parameter with this name, full or within its owner, is an adapter's.
inline bool is_of_adapter(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

/// A norm of rows, or of heads. The bias is layernorm's, and none without a weight.
struct NormSettings {
  math::NormKind kind = math::NormKind::layernorm;
  bool bias = true;
  double epsilon = 1e-5;
  math::NormWeight weight = math::NormWeight::plain;
};

/// Which norm queries and keys have.
enum class QueryKeyNorm {
  none,
  head,       ///< of each head, before rotary positions, with the same weights for all heads
  each_head,  ///< of each head, before rotary positions, with weights of its own for each head
  whole,      ///< of all heads of a row together, before rotary positions
  rotated     ///< of each head, after rotary positions, with the same weights for all heads
};

/// Queries, keys and values that are made of latents (multi-head latent attention, DeepSeek-AI
/// 2024, V2, section 2.1): small products with an RMS norm, of which others make the heads.
struct LatentSettings {
  std::int64_t q_rank = 0;        ///< columns of the latent of queries; 0: they have none
  std::int64_t kv_rank = 0;       ///< and of that of keys and values; 0: no latent attention
  std::int64_t rotary_width = 0;  ///< first elements of heads, with rotary positions; all heads
                                  ///< have those of one key
  std::int64_t value_width = 0;   ///< of a head's values; 0: as wide as its keys
  double norm_epsilon = 1e-6;     ///< of the norms of latents

  bool exist() const { return kv_rank > 0; }
};

/// Bounds of AttentionSettings' scale, soft_cap and clip, if they are not 0: far inside of those of
/// float, in which scores are computed.
constexpr double least_attention_number = 1e-6, most_attention_number = 1e6;

/// Causal attention within each sample.
struct AttentionSettings {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;            ///< of keys and values; 0: as many
  std::int64_t head_width = 0;          ///< 0: columns / heads
  math::RotarySettings rotary = {0.0};  ///< rotary positions; base 0: none
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  math::NormKind norm_kind = math::NormKind::rmsnorm;  ///< of queries and keys; without a bias
  double norm_epsilon = 1e-5;                          ///< of that norm
  math::NormWeight norm_weight = math::NormWeight::plain;
  double scale = 0.0;       ///< of scores; 0: 1 / sqrt(head_width)
  double soft_cap = 0.0;    ///< above 0: scores become soft_cap * tanh(score / soft_cap)
  std::int64_t window = 0;  ///< above 0: a token sees itself and the window - 1 tokens before
  bool sinks = false;       ///< a logit of each head beside its scores, with no value
  bool alibi = false;       ///< scores have a slope times the distance subtracted
  double clip = 0.0;        ///< above 0: queries, keys and values are clamped to [-clip, clip]
  LatentSettings latent = {};
  /// Whether outputs are multiplied by sigmoid(gate), a row of the layer of queries for each column
  /// of outputs (Qwen team 2025, Qwen3-Next).
  bool has_gate = false;
};

/// A gated delta net in place of attention (Yang, Kautz, Hatamizadeh 2024, arXiv 2412.06464): each
/// head keeps a state (key_width, value_width), which a token decays, corrects and reads. Queries,
/// keys and values pass a causal convolution over `convolution` tokens and SiLU first.
struct DeltaNetSettings {
  std::int64_t key_heads = 0;    ///< heads of queries and keys; 0: no delta net
  std::int64_t value_heads = 0;  ///< a multiple of key_heads: heads of values, gates and states
  std::int64_t key_width = 128;
  std::int64_t value_width = 128;
  std::int64_t convolution = 4;
  double norm_epsilon = 1e-6;  ///< of the gated norm of outputs

  bool exist() const { return key_heads > 0; }
  std::int64_t key_columns() const { return key_heads * key_width; }
  std::int64_t value_columns() const { return value_heads * value_width; }
  /// Columns that the convolution passes: queries, keys and values.
  std::int64_t convolved_columns() const { return 2 * key_columns() + value_columns(); }
};

using math::Activation;

/// An MLP: a linear layer up, the activation, a linear layer down. With a gated activation the
/// first one has the gate, too.
struct MlpSettings {
  Activation activation = Activation::gelu;
  LinearSettings up = {};
  LinearSettings down = {};
};

/// A linear layer that makes logits, and what becomes of these. An embedding's table to which it is
/// tied has the deviation of the embedding.
struct HeadSettings {
  double deviation = 0.02;
  bool bias = false;
  math::LogitForm logits = {};
};

/// What keeps a router from sending most tokens to few experts.
enum class RouterBalance {
  none,
  loss,  ///< the gradient of an auxiliary loss, see math::router_backward
  bias   ///< a bias of scores, for the choice alone, that follows the counts of tokens
};
constexpr Named<RouterBalance> router_balance_names[] = {
    {RouterBalance::none, "none"}, {RouterBalance::loss, "loss"}, {RouterBalance::bias, "bias"}};
constexpr const char* name(RouterBalance balance) { return name_in(router_balance_names, balance); }

/// A mixture of experts: each row is computed by a few of many MLPs, which a router chooses.
/// Mixtral: softmax, normalize. DeepSeek-V3: sigmoid, normalize, scale, groups, shared experts, a
/// balance by bias. Qwen2-MoE: softmax, one shared expert with a width and a gate of its own.
struct ExpertSettings {
  std::int64_t count = 0;      ///< MLPs; 0: one that computes all tokens
  std::int64_t per_token = 2;  ///< that compute a token
  std::int64_t shared = 0;     ///< further ones that compute all tokens: one MLP, as wide as these
  std::int64_t width = 0;      ///< inner width of each
  math::RouterScore score = math::RouterScore::softmax;
  bool normalize = true;
  double scale = 1.0;
  RouterBalance balance = RouterBalance::none;
  double balance_rate = 0.001;  ///< factor of the auxiliary loss; step of the bias
  std::int64_t groups = 1;      ///< equal runs of experts, see math::Router
  std::int64_t groups_per_token = 1;
  math::RouterGroupScore group_score = math::RouterGroupScore::sum_of_two;
  bool router_bias = false;           ///< of the router's logits
  bool shared_gate = false;           ///< shared experts' output times sigmoid(x w), w (columns)
  std::int64_t own_shared_width = 0;  ///< inner width of all shared ones; 0: shared * width

  bool exist() const { return count > 0; }
  std::int64_t shared_width() const {
    return shared > 0 && own_shared_width > 0 ? own_shared_width : shared * width;
  }
  math::Router router() const {
    return {count, per_token, score, normalize, scale, groups, groups_per_token, group_score};
  }
};

/// The most experts of a mixture.
constexpr std::int64_t most_experts = 4096;

}  // namespace ostrakon::model
