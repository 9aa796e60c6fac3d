// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <ostrakon/base/names.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/routing.hpp>
#include <ostrakon/math/sequence_parts.hpp>
#include <ostrakon/model/unit.hpp>
#include <vector>

namespace ostrakon::model {

enum class Positions { learned, rotary };
constexpr Named<Positions> positions_names[] = {{Positions::learned, "learned"},
                                                {Positions::rotary, "rotary"}};
constexpr const char* name(Positions positions) { return name_in(positions_names, positions); }

enum class Activation { gelu, swiglu };
constexpr Named<Activation> activation_names[] = {{Activation::gelu, "gelu"},
                                                  {Activation::swiglu, "swiglu"}};
constexpr const char* name(Activation activation) { return name_in(activation_names, activation); }

/// What keeps a router from sending most tokens to few experts.
enum class RouterBalance {
  none,
  loss,  ///< the gradient of an auxiliary loss, see math::router_backward
  bias   ///< a bias of scores, for the choice alone, that follows the counts of tokens
};
constexpr Named<RouterBalance> router_balance_names[] = {
    {RouterBalance::none, "none"}, {RouterBalance::loss, "loss"}, {RouterBalance::bias, "bias"}};
constexpr const char* name(RouterBalance balance) { return name_in(router_balance_names, balance); }

/// Mixtures of experts in place of the MLPs of all blocks: each token is computed by a few of many
/// MLPs, which a router chooses. Mixtral: softmax, normalize. DeepSeek-V3, but for its groups of
/// experts: sigmoid, normalize, scale, shared experts, bias.
struct ExpertSettings {
  std::int64_t count = 0;      ///< MLPs of a block; 0: one that computes all tokens
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

  bool exist() const { return count > 0; }
  std::int64_t shared_width() const { return shared * width; }
  math::Router router() const {
    return {count, per_token, score, normalize, scale, groups, groups_per_token};
  }
};

/// The most experts of a block.
constexpr std::int64_t most_experts = 4096;

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
  std::int64_t own_head_width = 0;  ///< of each head; 0: width / heads
  bool query_key_norm = false;      ///< RMS norm of each head of queries and keys, then rotated
  std::optional<bool> own_mlp_bias = {};  ///< biases of MLPs; none: as `bias`
  /// Rows of the table of learned positions; 0: as many as a sequence has tokens. Rows beyond these
  /// get no gradient, only weight decay.
  std::int64_t max_positions = 0;

  std::int64_t head_width() const { return own_head_width > 0 ? own_head_width : width / heads; }
  /// Of all heads of queries.
  std::int64_t query_width() const { return heads * head_width(); }
  bool mlp_bias() const { return own_mlp_bias.value_or(bias); }
  /// Rows of the table of learned positions, for sequences of `tokens` tokens.
  std::int64_t position_rows(std::int64_t tokens) const {
    return max_positions > 0 ? max_positions : tokens;
  }
};

/// The constant shape of what is computed at once: `batch` sequences of `tokens` tokens, or the
/// part of each that one of `parts` neighbouring ranks has. The ranks then exchange keys and values
/// (context parallel).
struct LeafShape {
  std::int64_t batch = 1;
  std::int64_t tokens = 1;
  std::int64_t parts = 1;
  /// Pieces of each sequence that are leaves of their own, whichever ranks have them; 1: not cut.
  std::int64_t grain = 1;
  bool by_sequence = false;  ///< whether sequences are leaves of their own
  /// Neighbouring ranks that compute the rows together: each has some heads, columns of the MLP and
  /// words, and between products an equal part of the rows (tensor and sequence parallel).
  std::int64_t tensor_ranks = 1;
  /// Pieces of heads, columns and words whose terms are summed by themselves, whichever ranks have
  /// them; 1: as many as ranks.
  std::int64_t tensor_grain = 1;
  /// In how many equal runs a tensor rank's rows are exchanged in forward of a block, each while
  /// others are computed.
  std::int64_t tensor_chunks = 1;
  /// Neighbouring ranks that share the experts of a block: each has an equal part of these, and
  /// computes with it the tokens of all (expert parallel). All tensor ranks are among them.
  std::int64_t expert_ranks = 1;
  /// Room for tokens that a rank sends to another one's experts at a time, relative to an even
  /// division. More take further rounds.
  double expert_capacity = 1.0;
  /// Blocks compute gradients of parameters in a phase that is deferred, so that it may run when
  /// there is nothing else to do. Changes no bit.
  bool defers_gradients = false;
  /// For which workspaces are planned; another than this build's can't be computed here.
  math::KernelForm kernels = math::kernel_form;
  /// Above 0: it is decoded, not trained. That many rows of the only sequence are computed at a
  /// time at most, and keys and values of the rows before are kept.
  std::int64_t decoded_rows = 0;

  /// Over all tensor ranks, and of one.
  std::int64_t tensor_pieces() const {
    return tensor_grain > tensor_ranks ? tensor_grain : tensor_ranks;
  }
  std::int64_t own_pieces() const { return tensor_pieces() / tensor_ranks; }
  /// Rows that a tensor rank has where they are divided.
  std::int64_t own_rows() const { return rows() / tensor_ranks; }
  /// How sums over a tensor rank's own rows are made: their pieces are leaves of one tree, as those
  /// of other ranks are.
  std::int64_t own_row_leaves() const { return leaves() * own_pieces(); }
  /// Whether experts are units of their own: those that ranks share, and all that come behind
  /// blocks in tensor pieces.
  bool has_expert_units() const { return expert_ranks > 1 || tensor_pieces() > 1; }

  /// Of a part, whose rows are neighbours.
  std::int64_t pieces() const { return grain > parts ? grain / parts : 1; }
  math::SequenceParts sequence() const { return {tokens, parts, pieces()}; }
  /// Whether rows are in another order than tokens.
  bool is_cut() const { return parts * grain > 1; }
  /// Whether gradients of parameters are sums over several leaves by one tree, here or on another
  /// number of ranks; else all rows are one leaf.
  bool sums_by_leaf() const { return by_sequence || grain > 1; }
  std::int64_t leaves() const { return sums_by_leaf() ? batch * pieces() : 1; }
  /// Of each sequence, and of all.
  std::int64_t part_tokens() const { return tokens / parts; }
  /// Rows that are computed at a time.
  std::int64_t rows() const { return decodes() ? decoded_rows : batch * part_tokens(); }
  bool decodes() const { return decoded_rows > 0; }

  /// Throws Error unless [begin, end) is all rows, or where it is decoded some rows of the
  /// sequence.
  void require_row_range(std::int64_t begin, std::int64_t end) const;
};

/// What blocks do not save, but compute again in backward: less `saved`, more workspace of
/// backward, and no bit of a result changes.
struct Recompute {
  bool attention = false;  ///< its output and log-sum-exp, from queries, keys and values
  bool norms = false;      ///< their statistics
  bool mlp = false;        ///< the product before the activation
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
