// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <ostrakon/model/layer_settings.hpp>
#include <ostrakon/model/leaf_shape.hpp>
#include <ostrakon/model/unit.hpp>
#include <vector>

namespace ostrakon::model {

enum class Positions { learned, rotary };
constexpr Named<Positions> positions_names[] = {{Positions::learned, "learned"},
                                                {Positions::rotary, "rotary"}};
constexpr const char* name(Positions positions) { return name_in(positions_names, positions); }

/// A decoder-only transformer, pre-norm. GPT-2: layernorm, learned, gelu, bias, tied.
/// Llama 3: rmsnorm, rotary, swiglu, no bias, kv_heads < heads, untied. Qwen3: the same with
/// query_key_norm and a head width of its own.
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
  double rotary_base = 10000.0;
  double initializer_deviation = 0.02;
  /// How many neighbouring blocks make one unit; 0: automatic, see blocks_of_units. Changes
  /// messages and memory, but no parameter's name and no result.
  std::int64_t blocks_per_unit = 1;
  std::int64_t head_dim = 0;    ///< of each head; 0: width / heads
  bool query_key_norm = false;  ///< RMS norm of each head of queries and keys, then rotated
  std::optional<bool> own_mlp_bias = {};  ///< biases of MLPs; none: as `bias`
  /// Rows of the table of learned positions; 0: as many as a sequence has tokens. Rows beyond these
  /// get no gradient, only weight decay.
  std::int64_t max_positions = 0;

  std::int64_t head_width() const { return head_dim > 0 ? head_dim : width / heads; }
  bool mlp_bias() const { return own_mlp_bias.value_or(bias); }
  /// Rows of the table of learned positions, for sequences of `tokens` tokens.
  std::int64_t position_rows(std::int64_t tokens) const {
    return max_positions > 0 ? max_positions : tokens;
  }

  // Settings of the layers. Each block adds two projections to the residual stream, whose variance
  // must not grow with depth.
  double residual_deviation() const {
    return initializer_deviation / std::sqrt(2.0 * static_cast<double>(layers));
  }
  NormSettings norm_settings() const { return {norm, bias, norm_epsilon}; }
  AttentionSettings attention_settings() const {
    return {heads,          kv_heads,
            head_dim,       positions == Positions::rotary ? rotary_base : 0.0,
            query_key_norm, norm_epsilon};
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
/// a unit behind their block, "block.3.experts". Allocates nothing but these small descriptions,
/// whatever the model's size.
///
/// Parameters, by owner, which is "embedding", "block.<layer>" or "head". Embedding: token.weight
/// (vocabulary, width), position.weight (position_rows(tokens), width) if learned. Block:
/// attention.norm.weight/.bias (width), attention.qkv.weight
/// ((heads + 2 kv_heads) head_width, width)/.bias, attention.query_norm.weight and
/// attention.key_norm.weight (head_width) with query_key_norm, attention.out.weight (width,
/// heads head_width)/.bias, mlp.norm.weight/.bias, mlp.up.weight (ffn_width, width)/.bias for gelu
/// or mlp.gate_up.weight (2 ffn_width, width)/.bias for swiglu, mlp.down.weight (width,
/// ffn_width)/.bias. With experts: mlp.router.weight (experts, width), mlp.router.balance (experts)
/// if a bias balances them, and such an MLP mlp.experts.<index>.up (or gate_up) and .down of each
/// expert, with its width in place of ffn_width, and mlp.shared.up and .down. Head:
/// norm.weight/.bias, and output.weight (vocabulary, width) unless tied to the embedding. Linear
/// layers are (out, in): y = x W^T + b. Biases only with `bias`, of MLPs only with mlp_bias(), and
/// RMS norm has none in any case. Normal initializer for weights, with deviation / sqrt(2 layers)
/// for the two projections back into the residual stream (Radford et al. 2019). Weights of shape
/// (out, in) and embeddings decay; norms and biases do not.
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
