// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <ostrakon/model/layer_pattern.hpp>
#include <ostrakon/model/layer_settings.hpp>
#include <ostrakon/model/leaf_shape.hpp>
#include <ostrakon/model/unit.hpp>
#include <tuple>
#include <vector>

namespace ostrakon::model {

enum class Positions { learned, rotary, alibi, none };
constexpr Named<Positions> positions_names[] = {{Positions::learned, "learned"},
                                                {Positions::rotary, "rotary"},
                                                {Positions::alibi, "alibi"},
                                                {Positions::none, "none"}};
constexpr const char* name(Positions positions) { return name_in(positions_names, positions); }

/// Where a block has norms: of what attention and MLP take, of what they add to the residual
/// stream, or both.
enum class NormPlacement { before, after, both };
constexpr Named<NormPlacement> norm_placement_names[] = {{NormPlacement::before, "before"},
                                                         {NormPlacement::after, "after"},
                                                         {NormPlacement::both, "both"}};
constexpr const char* name(NormPlacement placement) {
  return name_in(norm_placement_names, placement);
}

/// How attention and MLP of a block are connected. sequential: the MLP reads the residual stream
/// after attention was added. parallel: both read the block's input through one norm.
/// parallel_two_norms: both read it, each through a norm of its own.
enum class BlockForm { sequential, parallel, parallel_two_norms };
constexpr Named<BlockForm> block_form_names[] = {
    {BlockForm::sequential, "sequential"},
    {BlockForm::parallel, "parallel"},
    {BlockForm::parallel_two_norms, "parallel_two_norms"}};
constexpr const char* name(BlockForm form) { return name_in(block_form_names, form); }

/// Says which optional parts a block has. Blocks of equal kinds are built alike.
struct BlockKind {
  bool has_experts = false, has_window = false, has_rotary = false, has_delta_net = false;

  friend bool operator<(const BlockKind& a, const BlockKind& b) {
    return std::tie(a.has_experts, a.has_window, a.has_rotary, a.has_delta_net) <
           std::tie(b.has_experts, b.has_window, b.has_rotary, b.has_delta_net);
  }
};

/// A decoder-only transformer. GPT-2: layernorm, learned, gelu, bias, tied. Llama 3: rmsnorm,
/// rotary, swiglu, no bias, kv_heads < heads, untied. Qwen3: Llama with query_key_norm and a head
/// width of its own. Qwen2: Llama with own_qkv_bias.
struct DecoderSettings {
  math::NormKind norm = math::NormKind::rmsnorm;
  Positions positions = Positions::rotary;
  Activation activation = Activation::swiglu;
  std::int64_t layers = 4;
  std::int64_t width = 256;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 4;
  std::int64_t ffn_width = 704;  ///< without experts
  ExpertSettings experts = {};
  std::int64_t vocabulary = 257;
  bool bias = false;
  bool tie_embeddings = true;
  double norm_epsilon = 1e-5;
  math::RotarySettings rotary = {};
  double initializer_deviation = 0.02;
  /// How many neighbouring blocks make one unit; 0: automatic, see blocks_of_units. Changes
  /// messages and memory, but no parameter's name and no result.
  std::int64_t blocks_per_unit = 1;
  std::int64_t head_dim = 0;  ///< of each head; 0: width / heads
  QueryKeyNorm query_key_norm = QueryKeyNorm::none;
  math::NormKind query_key_norm_kind = math::NormKind::rmsnorm;
  // Biases of some layers; none: as `bias`.
  std::optional<bool> own_qkv_bias = {};   ///< of queries, keys and values
  std::optional<bool> own_out_bias = {};   ///< of attention's output
  std::optional<bool> own_mlp_bias = {};   ///< of MLPs and experts
  std::optional<bool> own_norm_bias = {};  ///< of norms, if they are layernorm
  bool head_bias = false;                  ///< of the logits
  /// Rows of the table of learned positions; 0: as many as a sequence has tokens. Rows beyond these
  /// get no gradient, only weight decay.
  std::int64_t max_positions = 0;

  math::NormWeight norm_weight = math::NormWeight::plain;
  NormPlacement norm_placement = NormPlacement::before;
  BlockForm block = BlockForm::sequential;
  bool embedding_norm = false;

  // Which layers have experts, rotary positions, a window of attention, or a delta net in place of
  // attention.
  LayerPattern expert_layers = {}, rotary_layers = {}, window_layers = {}, delta_layers = {};
  DeltaNetSettings delta_net = {};
  LatentSettings latent = {};
  std::int64_t attention_window = 0;  ///< see AttentionSettings::window; 0: none
  /// Base of rotary positions in layers with a window, where frequencies are not scaled; 0: as in
  /// other layers.
  double window_rotary_base = 0.0;

  // See AttentionSettings.
  double attention_scale = 0.0, attention_soft_cap = 0.0, clip_qkv = 0.0;
  bool attention_sinks = false;
  bool attention_gate = false;

  /// How many tokens behind the next one are predicted in training, 0 or 1, by a further block
  /// (multi-token prediction, DeepSeek-AI 2024, V3, section 2.2), and the factor of the mean of
  /// their losses.
  std::int64_t multi_token_depth = 0;
  double multi_token_factor = 0.3;

  LoraSettings lora = {};

  double embedding_scale = 1.0;  ///< of what the embedding makes
  double residual_scale = 1.0;   ///< of what attention and MLP add to the residual stream
  double logit_scale = 1.0;
  double logit_soft_cap = 0.0;  ///< above 0: logits become cap * tanh(logit / cap), after the scale

  std::int64_t head_width() const { return head_dim > 0 ? head_dim : width / heads; }
  std::int64_t value_width() const {
    return latent.value_width > 0 ? latent.value_width : head_width();
  }
  bool qkv_bias() const { return own_qkv_bias.value_or(bias); }
  bool out_bias() const { return own_out_bias.value_or(bias); }
  bool mlp_bias() const { return own_mlp_bias.value_or(bias); }
  bool norm_bias() const { return own_norm_bias.value_or(bias); }
  /// Rows of the table of learned positions, for sequences of `tokens` tokens.
  std::int64_t position_rows(std::int64_t tokens) const {
    return max_positions > 0 ? max_positions : tokens;
  }
  BlockKind block_kind(std::int64_t layer) const {
    const bool has_delta_net = delta_net.exist() && delta_layers.has(layer);
    return {experts.exist() && expert_layers.has(layer),
            !has_delta_net && attention_window > 0 && window_layers.has(layer),
            !has_delta_net && positions == Positions::rotary && rotary_layers.has(layer),
            has_delta_net};
  }
  bool has_delta_nets() const { return delta_net.exist() && delta_layers.count(layers) > 0; }

  bool has_dense_layers() const { return !experts.exist() || expert_layers.count(layers) < layers; }

  // Settings of the layers. Each block adds two projections to the residual stream, whose variance
  // must not grow with depth.
  double residual_deviation() const {
    return initializer_deviation / std::sqrt(2.0 * static_cast<double>(layers));
  }
  NormSettings norm_settings() const { return {norm, norm_bias(), norm_epsilon, norm_weight}; }
  AttentionSettings attention_settings(const BlockKind& kind) const;
  DeltaNetSettings delta_net_settings() const {
    DeltaNetSettings settings = delta_net;
    settings.norm_epsilon = norm_epsilon;
    return settings;
  }
  HeadSettings head_settings() const {
    return {initializer_deviation, head_bias, {logit_scale, logit_soft_cap}};
  }
  MlpSettings mlp_settings() const {
    return {activation, {initializer_deviation, mlp_bias()}, {residual_deviation(), mlp_bias()}};
  }
};

/// How many neighbouring blocks each unit of blocks holds, from the first unit to the last; sums to
/// `layers` (at least 1).
///
/// blocks_per_unit > 0: as many each, the last one the rest.
///
/// blocks_per_unit = 0: as many as it takes for 33 million elements, at `block_elements` (at least
/// 1) each: below that, time per element of an all-gather rises fast (Zhao et al., "PyTorch FSDP",
/// VLDB 2023). But units are at least 4, or `layers` if that is less: while one computes, others
/// are communicated. They are as even as can be, larger ones first.
std::vector<std::int64_t> blocks_of_units(std::int64_t layers, std::int64_t blocks_per_unit,
                                          std::int64_t block_elements);

/// Units "embedding", then of blocks, then "head". A unit of one block is called "block.3", one of
/// several "block.4-7"; experts that ranks share, or that come behind a block in tensor pieces, are
/// a unit behind their block, "block.3.experts", and norms of mixtures with what follows them are
/// one behind these, "block.3.addition". Allocates nothing but these small descriptions, whatever
/// the model's size.
///
/// With multi_token_depth a module comes behind the last block: the unit "block.<layers>", a block
/// like the last one, with embedding_norm and hidden_norm (width) and projection.weight (width, 2
/// width); the head has multi_token_norm (width). A model that is decoded has none.
///
/// Parameters, by owner, which is "embedding", "block.<layer>" or "head". Embedding: token.weight
/// (vocabulary, width), position.weight (position_rows(tokens), width) if learned,
/// norm.weight/.bias (width) with embedding_norm. Block: attention.norm.weight/.bias (width),
/// attention.qkv.weight
/// ((heads + 2 kv_heads) head_width, width)/.bias, with attention_gate the gates (heads head_width)
/// in the first rows, attention.query_norm.weight and
/// attention.key_norm.weight (head_width) with query_key_norm, or for each head or for all
/// together (heads head_width) and (kv_heads head_width), attention.sinks (heads), zeros, with
/// attention_sinks, attention.out.weight (width, heads value_width)/.bias; with latent attention in
/// place of attention.qkv: attention.q.weight (heads head_width, width), or of the normed latent of
/// queries attention.q_down.weight (q_rank, width), attention.q_down_norm.weight (q_rank) and
/// attention.q.weight (heads head_width, q_rank); attention.kv_down.weight (kv_rank + rotary_width,
/// width), the latent and then the part of keys that all heads have, attention.kv_norm.weight
/// (kv_rank) and attention.kv_up.weight (heads (head_width - rotary_width + value_width), kv_rank),
/// the rest of all keys and then all values. The first rotary_width elements of heads of queries
/// and keys are rotated. With a delta net in place of attention, but for attention.norm and its
/// like: delta_net.in.weight (2 key_heads key_width + 2 value_heads value_width + 2 value_heads,
/// width), delta_net.convolution.weight (2 key_heads key_width + value_heads value_width, taps),
/// delta_net.decay and .step (value_heads), delta_net.norm.weight (value_width),
/// delta_net.out.weight (width, value_heads value_width); see Builder::delta_net.
/// mlp.norm.weight/.bias, mlp.up.weight (ffn_width, width)/.bias or, of gated activations,
/// mlp.gate_up.weight (2 ffn_width, width)/.bias, mlp.down.weight (width, ffn_width)/.bias. With
/// experts: mlp.router.weight (experts, width), mlp.router.bias (experts) with router_bias,
/// mlp.router.balance (experts) if a bias balances them, and such an MLP mlp.experts.<index>.up (or
/// gate_up) and .down of each expert, with its width in place of ffn_width, mlp.shared.up and
/// .down, and mlp.shared_gate.weight (1, width) with shared_gate. Head: norm.weight/.bias,
/// output.weight (vocabulary, width) unless tied to the embedding, and output.bias (vocabulary)
/// with head_bias. Linear layers are (out, in): y = x W^T + b. Biases only with `bias`, of MLPs
/// only with mlp_bias(), and RMS norm has none in any case. Norms are attention.out_norm and
/// mlp.out_norm where norm_placement has them behind, and have no parameters with norm_weight none.
/// A layer with an adapter has the parameters of LoraSettings; parts of attention.qkv and of
/// mlp.gate_up have adapters of their own.
/// Normal initializer for weights, with deviation / sqrt(2 layers) for the two projections back
/// into the residual stream (Radford et al. 2019). Weights of shape (out, in) and embeddings decay;
/// norms and biases do not.
template <class T>
class Decoder {
 public:
  /// Parameters that `frozen` names have no gradients. That changes no bit of what is computed.
  Decoder(const DecoderSettings& settings, LeafShape leaf, Recompute recompute = {},
          const Frozen& frozen = {});

  const DecoderSettings& settings() const { return settings_; }
  LeafShape leaf() const { return leaf_; }
  int units() const { return static_cast<int>(units_.size()); }
  const Unit<T>& unit(int index) const { return *units_[index]; }

  plan::ModelDescription description() const;

  /// Parameters of the whole model, without padding or alignment.
  std::int64_t parameter_count() const;

 private:
  DecoderSettings settings_;
  LeafShape leaf_;
  std::vector<std::unique_ptr<Unit<T>>> units_;
};

}  // namespace ostrakon::model
