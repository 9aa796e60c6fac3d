// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/decoder.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <ostrakon/model/array_packer.hpp>
#include <ostrakon/model/builder.hpp>
#include <ostrakon/model/expert_unit.hpp>
#include <ostrakon/model/graph_unit.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <set>
#include <string>
#include <utility>

namespace ostrakon::model {
namespace {

bool has_expert_units(const DecoderSettings& settings, const LeafShape& leaf) {
  return settings.experts.exist() && leaf.has_expert_units();
}

/// Whether mixtures are normed before they are added: behind experts that are a unit of their own
/// that is one more unit.
bool norms_mixtures(const DecoderSettings& settings) {
  return settings.norm_placement != NormPlacement::before;
}

void require_modules_possible(const DecoderSettings& settings, const LeafShape& leaf) {
  require(settings.multi_token_depth == 1, "model multi_token_depth is ",
          settings.multi_token_depth, ", expected 0 or 1");
  require(std::isfinite(settings.multi_token_factor) && settings.multi_token_factor > 0.0,
          "model multi_token_factor is ", settings.multi_token_factor,
          ", expected a number above 0");
  require(!settings.tie_embeddings,
          "model tie_embeddings is true with multi_token_depth 1, whose module looks up embeddings "
          "by themselves; expected false");
  require(!leaf.is_cut(),
          "model multi_token_depth is 1, in sequences that are cut, of which other ",
          "parts have some targets; expected whole sequences");
  require(!has_expert_units(settings, leaf) || !norms_mixtures(settings),
          "model norm_placement is ", name(settings.norm_placement),
          " with multi_token_depth 1, whose experts are a unit of their own; expected before");
}

void require_adapters_possible(const DecoderSettings& settings, const LeafShape& leaf) {
  const LoraSettings& lora = settings.lora;
  require(lora.rank >= 0, "model lora rank is ", lora.rank, ", expected 0 for none, or more");
  if (!lora.exist()) return;
  require(std::isfinite(lora.alpha) && lora.alpha != 0.0, "model lora alpha is ", lora.alpha,
          ", expected a finite number other than 0");
  require(!lora.layers.empty(), "model lora layers are none; expected at least one");
  const auto refuse_if = [](bool is_refused, const char* what) {
    require(!is_refused, "model lora with ", what,
            ", whose layers have no adapters; expected none");
  };
  refuse_if(leaf.tensor_pieces() > 1, "tensor pieces");
  refuse_if(settings.experts.exist(), "experts");
  refuse_if(settings.latent.exist(), "latent attention");
  refuse_if(settings.attention_gate, "a gate of attention");
  refuse_if(settings.has_delta_nets(), "gated delta nets");
  refuse_if(settings.multi_token_depth > 0, "multi_token_depth");
  refuse_if(lora.has("mlp.gate") && !math::is_gated(settings.activation),
            "layer mlp.gate and an activation without a gate");
}

void require_documents_possible(const DecoderSettings& settings, const LeafShape& leaf) {
  require(leaf.has_documents || !leaf.restarts_positions,
          "positions restart in documents, but sequences have none; expected documents");
  if (!leaf.has_documents) return;
  const auto refuse_if = [](bool is_refused, const char* what, const char* why) {
    require(!is_refused, what, " with separate documents in a sequence: ", why);
  };
  refuse_if(leaf.decodes(), "decoding", "what is decoded is one document");
  refuse_if(settings.has_delta_nets(), "model delta_layers", "their state passes all tokens");
  refuse_if(settings.multi_token_depth > 0, "model multi_token_depth",
            "the token behind the next one may be another document's");
}

void require_pairs_possible(const LeafShape& leaf) {
  if (!leaf.has_pairs()) return;
  require(
      leaf.has_documents && leaf.restarts_positions,
      "losses of pairs in sequences without documents that begin at position 0; expected these");
  require(!leaf.is_cut() && leaf.tensor_pieces() == 1, "losses of pairs in sequences of ",
          leaf.context_ranks * leaf.pieces(), " parts and a model of ", leaf.tensor_pieces(),
          " tensor pieces; expected 1 and 1");
}

void require_possible(const DecoderSettings& settings, const LeafShape& leaf) {
  const auto positive = [](const char* name, std::int64_t value) {
    require(value > 0, "model ", name, " is ", value, ", expected at least 1");
  };
  positive("layers", settings.layers);
  positive("width", settings.width);
  positive("heads", settings.heads);
  positive("kv_heads", settings.kv_heads);
  positive("ffn_width", settings.ffn_width);
  positive("vocabulary", settings.vocabulary);
  positive("batch", leaf.batch);
  positive("tokens", leaf.tokens);
  positive("context_ranks", leaf.context_ranks);
  positive("grain", leaf.grain);
  require(!leaf.decodes() || (!leaf.is_cut() && leaf.tensor_pieces() == 1 &&
                              leaf.expert_ranks == 1 && leaf.leaves() == 1),
          "decoding ", leaf.decoded_rows, " rows at a time; expected whole sequences on one rank");
  require(!leaf.is_cut() || leaf.tokens % (2 * leaf.context_ranks * leaf.pieces()) == 0,
          "sequences of ", leaf.tokens, " tokens can't be divided into ", leaf.context_ranks,
          " parts of ", leaf.pieces(), " pieces; expected a multiple of twice as many");
  require(leaf.grain == 1 || leaf.grain % leaf.context_ranks == 0, "pieces of ", leaf.grain,
          " to a sequence can't be divided over ", leaf.context_ranks,
          " ranks; expected a multiple");
  require(leaf.batch == 1 || (leaf.grain == 1 ? leaf.context_ranks == 1 || !leaf.by_sequence
                                              : leaf.context_ranks == 1 && leaf.by_sequence),
          leaf.batch, " sequences at once, in ", leaf.context_ranks, " parts, of which ",
          leaf.grain, " pieces are leaves, expected 1");
  positive("tensor_ranks", leaf.tensor_ranks);
  positive("tensor_grain", leaf.tensor_grain);
  const std::int64_t pieces = leaf.tensor_pieces();
  require(pieces % leaf.tensor_ranks == 0, "a tensor grain of ", pieces, " can't be divided over ",
          leaf.tensor_ranks, " ranks; expected a multiple");
  positive("tensor_chunks", leaf.tensor_chunks);
  require(leaf.tensor_chunks == 1 || leaf.tensor_ranks > 1, leaf.tensor_chunks,
          " chunks of rows on one tensor rank, which exchanges none; expected 1");
  require(leaf.own_rows() % leaf.tensor_chunks == 0, "the ", leaf.own_rows(),
          " rows of a tensor rank can't be cut into ", leaf.tensor_chunks,
          " chunks; expected a multiple");
  require(settings.query_key_norm != QueryKeyNorm::whole ||
              settings.query_key_norm_kind == math::NormKind::rmsnorm,
          "model query_key_norm is whole and its kind layernorm; expected rmsnorm");
  const bool has_delta_nets = settings.has_delta_nets();
  require(!has_delta_nets || !leaf.is_cut(),
          "model delta_layers have a state that passes all "
          "tokens of a sequence, which is cut into ",
          leaf.context_ranks * leaf.pieces(), " parts; expected 1");
  require_documents_possible(settings, leaf);
  require_adapters_possible(settings, leaf);
  require_pairs_possible(leaf);
  const bool has_head_weights = (settings.query_key_norm == QueryKeyNorm::head ||
                                 settings.query_key_norm == QueryKeyNorm::rotated) &&
                                settings.norm_weight != math::NormWeight::none;
  for (const auto& [what, extent] :
       {std::pair{"heads", settings.heads}, std::pair{"kv_heads", settings.kv_heads},
        std::pair{"width", settings.width},
        std::pair{"ffn_width", settings.has_dense_layers() ? settings.ffn_width : pieces},
        std::pair{"experts", settings.experts.count},
        std::pair{"the width of shared experts", settings.experts.shared_width()},
        std::pair{"latent q_rank", settings.latent.q_rank},
        std::pair{"latent kv_rank", settings.latent.kv_rank},
        std::pair{"latent rotary_width",
                  settings.latent.exist() ? settings.latent.rotary_width : 0},
        std::pair{"head_width", has_head_weights ? settings.head_width() : pieces},
        std::pair{"delta_net key_heads", has_delta_nets ? settings.delta_net.key_heads : pieces},
        std::pair{"delta_net value_width",
                  has_delta_nets ? settings.delta_net.value_width : pieces},
        std::pair{"rows of a leaf", leaf.rows() / leaf.leaves()}})
    require(extent % pieces == 0, what, " ", extent, " can't be cut into ", pieces,
            " pieces for tensor parallelism; expected a multiple");
  const ExpertSettings& experts = settings.experts;
  require_possible("model", experts, leaf.rows());
  const std::int64_t sharing = leaf.expert_ranks;
  positive("expert_ranks", sharing);
  if (has_expert_units(settings, leaf)) {
    require(sharing % leaf.tensor_ranks == 0, "experts shared by ", sharing, " ranks on ",
            leaf.tensor_ranks, " tensor ranks; expected a multiple");
    require(is_power_of_two(sharing) && experts.count % sharing == 0, "the ", experts.count,
            " experts of a block can't be divided over ", sharing,
            " ranks; expected a power of two that divides them");
    require(leaf.expert_capacity > 0.0, "an expert capacity of ", leaf.expert_capacity,
            "; expected more than 0");
    require(settings.blocks_per_unit <= 1, settings.blocks_per_unit,
            " blocks to a unit, but experts are units of their own; expected 1");
  }
  require(settings.head_dim > 0 || settings.width % settings.heads == 0, "model width ",
          settings.width, " is not a multiple of heads ", settings.heads);
  require(settings.heads % settings.kv_heads == 0, "model heads ", settings.heads,
          " is not a multiple of kv_heads ", settings.kv_heads);
  if (settings.positions == Positions::rotary) {
    require(
        settings.latent.exist() || settings.rotary.share < 1.0 || settings.head_width() % 2 == 0,
        "RoPE requires an even head dimension, but model width ", settings.width, " over heads ",
        settings.heads, " gives the odd head width ", settings.head_width());
    math::require_possible(
        settings.rotary,
        settings.latent.exist() ? settings.latent.rotary_width : settings.head_width(), "model ",
        "rotary ");
  }
  if (settings.multi_token_depth > 0) require_modules_possible(settings, leaf);
  require(settings.blocks_per_unit >= 0, "model blocks_per_unit is ", settings.blocks_per_unit,
          ", expected at least 1, or 0 for automatic");
}

// ---- what the units compute ---------------------------------------------------------------------

template <class T>
Value describe_embedding(Builder<T>& b, const DecoderSettings& m, std::int64_t tokens) {
  const std::int64_t positions = m.positions == Positions::learned ? m.position_rows(tokens) : 0;
  Value x = b.embedding(m.vocabulary, m.width, positions, m.initializer_deviation);
  if (m.embedding_scale != 1.0) x = b.scale(x, m.embedding_scale);
  return m.embedding_norm ? b.norm(x, "norm", m.norm_settings()) : x;
}

/// onto + scale y, or with a norm of y before it is added: y is a layer's output.
template <class T>
Value add_to_residual(Builder<T>& b, const DecoderSettings& m, const Value& onto, const Value& y,
                      const std::string& part) {
  const bool is_normed = m.norm_placement != NormPlacement::before;
  return b.add(onto, is_normed ? b.norm(y, part + ".out_norm", m.norm_settings()) : y,
               m.residual_scale);
}

/// onto + a mixture of experts. Experts that are a unit of their own are handed what they take; if
/// their mixture is normed, describe_addition() follows them.
template <class T>
Value add_mixture(Builder<T>& b, const DecoderSettings& m, const Value& onto, const Value& x,
                  bool has_expert_units) {
  if (!norms_mixtures(m))
    return b.mixture_onto(onto, x, "mlp", m.experts, m.mlp_settings(), m.residual_scale);
  if (has_expert_units) return b.mixture_beside(onto, x, "mlp", m.experts, m.mlp_settings());
  return add_to_residual(b, m, onto, b.mixture(x, "mlp", m.experts, m.mlp_settings()), "mlp");
}

template <class T>
Value describe_addition(Builder<T>& b, const DecoderSettings& m) {
  const std::vector<Value> parts = b.parts_of_input(2);
  return add_to_residual(b, m, parts[1], parts[0], "mlp");
}

/// x + attention or a delta net, then + an MLP or a mixture of experts; each of them with norms
/// where norm_placement says so.
template <class T>
Value describe_block(Builder<T>& b, const DecoderSettings& m, const BlockKind& kind, const Value& x,
                     bool has_expert_units) {
  const bool adds_directly = m.norm_placement == NormPlacement::before && m.residual_scale == 1.0;
  const auto normed = [&](const Value& value, const char* part) {
    return m.norm_placement == NormPlacement::after
               ? value
               : b.norm(value, text(part, ".norm"), m.norm_settings());
  };
  const Value taken = normed(x, "attention");
  const Value attended = kind.has_delta_net
                             ? b.delta_net(taken, "delta_net", m.delta_net_settings(),
                                           {m.initializer_deviation, false})
                             : b.attention(taken, "attention", m.attention_settings(kind),
                                           {m.initializer_deviation, m.qkv_bias()});
  const char* const out_name = kind.has_delta_net ? "delta_net.out" : "attention.out";
  const LinearSettings out = {m.residual_deviation(), !kind.has_delta_net && m.out_bias()};
  const Value middle =
      adds_directly
          ? b.linear_onto(x, attended, out_name, out)
          : add_to_residual(b, m, x, b.linear(attended, out_name, m.width, out), "attention");
  const Value mlp_takes = m.block == BlockForm::sequential ? normed(middle, "mlp")
                          : m.block == BlockForm::parallel ? taken
                                                           : normed(x, "mlp");
  if (kind.has_experts) return add_mixture(b, m, middle, mlp_takes, has_expert_units);
  return adds_directly
             ? b.mlp_onto(middle, mlp_takes, "mlp", m.ffn_width, m.mlp_settings())
             : add_to_residual(b, m, middle,
                               b.mlp(mlp_takes, "mlp", m.ffn_width, m.width, m.mlp_settings()),
                               "mlp");
}

/// A module of multi-token prediction: what row i of x has of the tokens up to i, and the embedding
/// of the token behind, joined as a row of a further block. x goes on to the head.
template <class T>
Value describe_module(Builder<T>& b, const DecoderSettings& m, const BlockKind& kind,
                      const Value& x, bool has_expert_units) {
  Value next = b.next_embedding("embedding");
  if (m.embedding_scale != 1.0) next = b.scale(next, m.embedding_scale);
  const Value joined = b.join(b.norm(next, "embedding_norm", m.norm_settings()),
                              b.norm(x, "hidden_norm", m.norm_settings()));
  b.pass_on(x);
  return describe_block(b, m, kind,
                        b.row_linear(joined, "projection", m.width, m.initializer_deviation),
                        has_expert_units);
}

template <class T>
Value describe_head(Builder<T>& b, const DecoderSettings& m, const Value& x) {
  const Value n = b.norm(b.predicting_rows(x), "norm", m.norm_settings());
  if (m.multi_token_depth > 0)
    return b.cross_entropy(n, b.norm(b.input(1), "multi_token_norm", m.norm_settings()),
                           m.multi_token_factor, "output", m.vocabulary, m.head_settings());
  return m.tie_embeddings ? b.tied_cross_entropy(n, "embedding", m.head_settings())
                          : b.cross_entropy(n, "output", m.vocabulary, m.head_settings());
}

template <class T>
class UnitMaker {
 public:
  UnitMaker(const DecoderSettings& settings, const LeafShape& leaf, const Recompute& recompute,
            const Frozen& frozen)
      : settings_(settings), leaf_(leaf), ends_(leaf), recompute_(recompute), frozen_(frozen) {
    ends_.tensor_chunks = 1;
    ends_.defers_gradients = false;
    ends_.products = {};
  }

  std::unique_ptr<GraphUnit<T>> make_embedding() const {
    Builder<T> b("embedding", ends_, 0, frozen_, {}, recompute_);
    b.set_lora(settings_.lora);
    return finish(b, describe_embedding(b, settings_, leaf_.tokens));
  }

  /// The unit of blocks [first, first + count). Units whose blocks are of the same kinds and have
  /// the same frozen parameters share one program.
  std::unique_ptr<GraphUnit<T>> make_blocks(std::int64_t first, std::int64_t count) {
    std::string name = "block." + std::to_string(first);
    if (count > 1) name += "-" + std::to_string(first + count - 1);
    Builder<T> b(std::move(name), leaf_, settings_.width, frozen_, {}, recompute_);
    b.set_lora(settings_.lora);
    Value x = b.input();
    std::vector<FormOfBlock> forms;
    for (std::int64_t layer = first; layer < first + count; ++layer) {
      const BlockKind kind = settings_.block_kind(layer);
      const bool is_8bit = leaf_.products.are_8bit(layer, settings_.layers);
      b.begin_part("block." + std::to_string(layer));
      b.set_products(is_8bit ? leaf_.products.dtype : math::ProductDType::as_stored,
                     is_8bit && leaf_.products.fp8_gather);
      forms.emplace_back(kind, is_8bit);
      x = describe_block(b, settings_, kind, x, has_expert_units(settings_, leaf_));
    }
    return finish(b, x, &programs_[forms]);
  }

  /// The module of multi-token prediction, a block of the last one's kind.
  std::unique_ptr<GraphUnit<T>> make_module(const Parameter& table) const {
    Builder<T> b(
        "block." + std::to_string(settings_.layers), ends_, settings_.width, frozen_,
        [&](const std::string&) { return &table; }, recompute_);
    auto unit = finish(b, describe_module(b, settings_, settings_.block_kind(settings_.layers - 1),
                                          b.input(), has_expert_units(settings_, leaf_)));
    unit->description().tied_to = 0;
    return unit;
  }

  /// What experts that are a unit of their own have made, and what they were handed besides, added
  /// up for block `layer`.
  std::unique_ptr<GraphUnit<T>> make_addition(std::int64_t layer) {
    const std::string block = "block." + std::to_string(layer);
    Builder<T> b(block + ".addition", ends_, 2 * settings_.width, frozen_, {}, recompute_);
    b.begin_part(block);
    return finish(b, describe_addition(b, settings_), &additions_);
  }

  std::unique_ptr<GraphUnit<T>> make_head(const Parameter& table) const {
    Builder<T> b(
        "head", ends_, settings_.width, frozen_, [&](const std::string&) { return &table; },
        recompute_, static_cast<int>(settings_.multi_token_depth) + 1);
    b.set_lora(settings_.lora);
    auto unit = finish(b, describe_head(b, settings_, b.input()));
    if (settings_.tie_embeddings) unit->description().tied_to = 0;
    return unit;
  }

  /// Elements of the flat parameter of the largest block, in one tensor piece.
  std::int64_t block_elements() const {
    std::map<BlockKind, std::int64_t> elements;
    for (std::int64_t layer = 0; layer < settings_.layers; ++layer)
      if (const BlockKind kind = settings_.block_kind(layer); elements.count(kind) == 0)
        elements[kind] = block_elements(kind);
    std::int64_t most = 0;
    for (const auto& one : elements) most = std::max(most, one.second);
    return most;
  }

 private:
  /// The kind of a block, and whether it multiplies in 8 bits.
  using FormOfBlock = std::pair<BlockKind, bool>;

  std::int64_t block_elements(const BlockKind& kind) const {
    Builder<T> b("block", leaf_, settings_.width, {}, {}, recompute_);
    describe_block(b, settings_, kind, b.input(), has_expert_units(settings_, leaf_));
    std::int64_t elements = 0;
    for (const Parameter& parameter : b.parameters())
      elements += round_up(parameter.elements(), parameter_alignment);
    return elements;
  }

  static std::unique_ptr<GraphUnit<T>> finish(Builder<T>& b, const Value& output,
                                              SharedPrograms* shared = nullptr) {
    auto unit = std::move(b).build(output, shared).unit;
    unit->description().reads_batch = true;  // plans have the batch for all units
    return unit;
  }

  const DecoderSettings& settings_;
  LeafShape leaf_, ends_;
  Recompute recompute_;
  const Frozen& frozen_;
  std::map<std::vector<FormOfBlock>, SharedPrograms> programs_;
  SharedPrograms additions_;
};

}  // namespace

std::vector<std::int64_t> blocks_of_units(std::int64_t layers, std::int64_t blocks_per_unit,
                                          std::int64_t block_elements) {
  std::vector<std::int64_t> blocks;
  if (blocks_per_unit > 0) {
    for (std::int64_t rest = layers; rest > 0; rest -= blocks.back())
      blocks.push_back(std::min(rest, blocks_per_unit));
    return blocks;
  }
  constexpr std::int64_t efficient_elements = 33'000'000;
  constexpr std::int64_t least_units = 4;
  const std::int64_t efficient_blocks = (efficient_elements + block_elements - 1) / block_elements;
  const std::int64_t units = std::max(layers / efficient_blocks, std::min(layers, least_units));
  for (std::int64_t u = 0; u < units; ++u)
    blocks.push_back(layers / units + (u < layers % units ? 1 : 0));
  return blocks;
}

AttentionSettings DecoderSettings::attention_settings(const BlockKind& kind) const {
  AttentionSettings attention;
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  attention.head_width = head_dim;
  if (kind.has_rotary) {
    attention.rotary = rotary;
    if (kind.has_window && window_rotary_base > 0.0) {
      attention.rotary = {window_rotary_base};
      attention.rotary.share = rotary.share;
    }
  }
  attention.query_key_norm = query_key_norm;
  attention.norm_kind = query_key_norm_kind;
  attention.norm_epsilon = norm_epsilon;
  attention.norm_weight = norm_weight;
  attention.scale = attention_scale;
  attention.soft_cap = attention_soft_cap;
  attention.window = kind.has_window ? attention_window : 0;
  attention.sinks = attention_sinks;
  attention.has_gate = attention_gate;
  attention.alibi = positions == Positions::alibi;
  attention.clip = clip_qkv;
  attention.latent = latent;
  return attention;
}

void LeafShape::require_runs(const std::vector<DecodedRun>* runs) const {
  require((runs != nullptr) == decodes(), "a leaf of ", batch, " x ", tokens, " that is ",
          decodes() ? "decoded: expected runs of rows" : "not decoded: expected all rows");
  if (!decodes()) return;
  std::int64_t all = 0;
  std::set<std::int64_t> sequences;
  for (const DecodedRun& run : *runs) {
    require(0 <= run.sequence && run.sequence < batch && sequences.insert(run.sequence).second,
            "a run of sequence ", run.sequence, "; expected one run of each of ", batch,
            " at most");
    require(0 <= run.position && 0 < run.count && run.count <= decoded_rows &&
                run.position + run.count <= tokens,
            "rows [", run.position, ", ", run.position + run.count, ") of ", tokens,
            " that are decoded: expected at most ", decoded_rows, " of them");
    all += run.count;
  }
  require(0 < all && all <= rows(), all, " rows that are decoded: expected 1 to ", rows());
}

template <class T>
Decoder<T>::Decoder(const DecoderSettings& settings, LeafShape leaf, Recompute recompute,
                    const Frozen& frozen)
    : settings_(settings), leaf_(leaf) {
  if (leaf.decodes()) settings_.multi_token_depth = 0;  // the next token alone is predicted
  require_possible(settings_, leaf);
  const bool with_expert_units = has_expert_units(settings, leaf);
  UnitMaker<T> maker(settings_, leaf, recompute, frozen);
  units_.push_back(maker.make_embedding());
  std::int64_t first = 0;
  for (const std::int64_t count :
       blocks_of_units(settings.layers, with_expert_units ? 1 : settings.blocks_per_unit,
                       maker.block_elements() / leaf.tensor_ranks)) {
    units_.push_back(maker.make_blocks(first, count));
    if (with_expert_units && settings.block_kind(first).has_experts) {
      units_.push_back(std::make_unique<ExpertUnit<T>>(settings, leaf, first, frozen));
      if (norms_mixtures(settings)) units_.push_back(maker.make_addition(first));
    }
    first += count;
  }
  const Parameter& table = units_.front()->parameters().front();
  if (settings_.multi_token_depth > 0) {
    units_.push_back(maker.make_module(table));
    if (with_expert_units && settings.block_kind(first - 1).has_experts)
      units_.push_back(std::make_unique<ExpertUnit<T>>(settings, leaf, first, frozen, 1));
  }
  units_.push_back(maker.make_head(table));
}

template <class T>
plan::ModelDescription Decoder<T>::description() const {
  plan::ModelDescription description;
  for (const auto& unit : units_) {
    description.units.push_back(unit->description());
    count_parameters(unit->parameters(), description.units.back());
  }
  description.element_bytes = sizeof(T);
  description.master_bytes = sizeof(compute_t<T>);
  description.batch_bytes = bytes_of<std::int32_t>(leaf_.batch_elements());
  description.leaves_at_once = leaf_.leaves();
  description.sample_grain = leaf_.grain;
  description.tensor_grain = leaf_.tensor_grain;
  description.tensor_chunks = leaf_.tensor_chunks;
  description.tensor_ranks = static_cast<int>(leaf_.tensor_ranks);
  description.gradient_bytes = leaf_.own_rows() * settings_.width * description.element_bytes;
  if (has_expert_units(settings_, leaf_)) {
    const MoeDispatchLayout dispatch(settings_.experts, settings_.width, leaf_,
                                     norms_mixtures(settings_));
    description.gradient_bytes = dispatch.gradient_bytes<T>();
  }
  if (settings_.multi_token_depth > 0)
    description.gradient_bytes += behind_y<T>(leaf_.own_rows(), settings_.width);
  return description;
}

template <class T>
std::int64_t Decoder<T>::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units_)
    for (const Parameter& parameter : unit->parameters()) count += parameter.elements();
  return count;
}

template class Decoder<float>;
template class Decoder<double>;
template class Decoder<bf16>;
template class Decoder<fp16>;

}  // namespace ostrakon::model
