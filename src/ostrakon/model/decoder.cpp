// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/decoder.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/model/block.hpp>
#include <ostrakon/model/block_parameters.hpp>
#include <ostrakon/model/embedding.hpp>
#include <ostrakon/model/expert_unit.hpp>
#include <ostrakon/model/head.hpp>
#include <ostrakon/model/packing.hpp>
#include <string>
#include <utility>

namespace ostrakon::model {
namespace {

bool has_expert_units(const DecoderSettings& settings, const LeafShape& leaf) {
  return settings.experts.exist() && leaf.has_expert_units();
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
  positive("parts", leaf.parts);
  positive("grain", leaf.grain);
  require(!leaf.decodes() || (leaf.batch == 1 && !leaf.is_cut() && leaf.tensor_pieces() == 1 &&
                              leaf.expert_ranks == 1 && leaf.leaves() == 1),
          "decoding ", leaf.decoded_rows,
          " rows at a time; expected one whole sequence on one rank");
  require(!leaf.is_cut() || leaf.tokens % (2 * leaf.parts * leaf.pieces()) == 0, "sequences of ",
          leaf.tokens, " tokens can't be divided into ", leaf.parts, " parts of ", leaf.pieces(),
          " pieces; expected a multiple of twice as many");
  require(leaf.grain == 1 || leaf.grain % leaf.parts == 0, "pieces of ", leaf.grain,
          " to a sequence can't be divided over ", leaf.parts, " ranks; expected a multiple");
  require(leaf.batch == 1 || (leaf.grain == 1 ? leaf.parts == 1 || !leaf.by_sequence
                                              : leaf.parts == 1 && leaf.by_sequence),
          leaf.batch, " sequences at once, in ", leaf.parts, " parts, of which ", leaf.grain,
          " pieces are leaves, expected 1");
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
  for (const auto& [what, extent] :
       {std::pair{"heads", settings.heads}, std::pair{"kv_heads", settings.kv_heads},
        std::pair{"width", settings.width},
        std::pair{"ffn_width", settings.experts.exist() ? pieces : settings.ffn_width},
        std::pair{"experts", settings.experts.count},
        std::pair{"the width of shared experts", settings.experts.shared_width()},
        std::pair{"head_width", settings.query_key_norm ? settings.head_width() : pieces},
        std::pair{"rows of a leaf", leaf.rows() / leaf.leaves()}})
    require(extent % pieces == 0, what, " ", extent, " can't be cut into ", pieces,
            " pieces for tensor parallelism; expected a multiple");
  const ExpertSettings& experts = settings.experts;
  require(experts.count >= 0 && experts.count <= most_experts, "model experts is ", experts.count,
          ", expected 0 for none, or up to ", most_experts);
  if (experts.exist()) {
    positive("expert width", experts.width);
    require(experts.shared >= 0, "model shared experts is ", experts.shared,
            ", expected at least 0");
    require(experts.per_token >= 1 && experts.per_token <= experts.count, "model ",
            experts.per_token, " experts per token of ", experts.count,
            ", expected at least 1 and at most all");
    require(experts.groups >= 1 && experts.groups <= math::most_router_groups &&
                experts.count % experts.groups == 0,
            "model router groups is ", experts.groups, ", expected a divisor of the ",
            experts.count, " experts, at most ", math::most_router_groups);
    require(experts.groups_per_token >= 1 && experts.groups_per_token <= experts.groups &&
                experts.per_token <= experts.groups_per_token * (experts.count / experts.groups),
            "model router groups per token is ", experts.groups_per_token, " of ", experts.groups,
            ", expected no more than all, with the ", experts.per_token,
            " experts of a token or more in them");
    require(experts.balance != RouterBalance::bias || experts.balance_rate > 0.0,
            "model router balance rate is ", experts.balance_rate,
            ", by which a bias never changes; expected more than 0");
    require(leaf.rows() <= std::numeric_limits<std::int32_t>::max() / experts.per_token,
            leaf.rows(), " tokens at once, each by ", experts.per_token,
            " experts; expected fewer than 2^31 in all");
  }
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
  require(settings.own_head_width > 0 || settings.width % settings.heads == 0, "model width ",
          settings.width, " is not a multiple of heads ", settings.heads);
  require(settings.heads % settings.kv_heads == 0, "model heads ", settings.heads,
          " is not a multiple of kv_heads ", settings.kv_heads);
  require(settings.positions != Positions::rotary || settings.head_width() % 2 == 0,
          "rotary positions turn pairs, but model width ", settings.width, " over heads ",
          settings.heads, " gives the odd head width ", settings.head_width());
  require(settings.blocks_per_unit >= 0, "model blocks_per_unit is ", settings.blocks_per_unit,
          ", expected at least 1, or 0 for automatic");
}

/// Elements of a block's flat parameter.
std::int64_t elements_of_block(const DecoderSettings& settings, const LeafShape& leaf) {
  std::vector<Parameter> parameters = block_parameters(settings, !leaf.has_expert_units());
  const SegmentSizes sizes = lay_out_parameters(parameters, "block", {});
  return sizes.frozen + sizes.trained;
}

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

void LeafShape::require_row_range(std::int64_t begin, std::int64_t end) const {
  if (!decodes()) {
    require(begin == 0 && end == rows(), "rows [", begin, ", ", end, ") of a leaf of ", batch,
            " x ", tokens, ": expected all of them");
    return;
  }
  require(0 <= begin && begin < end && end <= tokens && end - begin <= rows(), "rows [", begin,
          ", ", end, ") of ", tokens, " that are decoded: expected at most ", rows(), " of them");
}

template <class T>
Decoder<T>::Decoder(const DecoderSettings& settings, LeafShape leaf, Recompute recompute,
                    const Frozen& frozen)
    : settings_(settings), leaf_(leaf) {
  require_possible(settings, leaf);
  const bool with_expert_units = has_expert_units(settings, leaf);
  units_.push_back(make_embedding<T>(settings, leaf, frozen));
  const std::int64_t block_elements = elements_of_block(settings, leaf) / leaf.tensor_ranks;
  BlockMaker<T> blocks(settings, leaf, recompute, frozen);
  std::int64_t first = 0;
  for (const std::int64_t count : blocks_of_units(
           settings.layers, with_expert_units ? 1 : settings.blocks_per_unit, block_elements)) {
    units_.push_back(blocks.make(first, count));
    if (with_expert_units)
      units_.push_back(std::make_unique<ExpertUnit<T>>(settings, leaf, first, frozen));
    first += count;
  }
  const Unit<T>* tied_to = settings.tie_embeddings ? units_.front().get() : nullptr;
  units_.push_back(make_head<T>(settings, leaf, tied_to, frozen));
}

template <class T>
plan::ModelDescription Decoder<T>::description() const {
  plan::ModelDescription description;
  for (const auto& unit : units_) {
    description.units.push_back(unit->description());
    for (const Parameter& parameter : unit->parameters())
      if (parameter.frozen) description.units.back().frozen_count += parameter.elements();
  }
  description.element_bytes = sizeof(T);
  description.master_bytes = sizeof(compute_t<T>);
  description.batch_bytes = 2 * leaf_.rows() * static_cast<std::int64_t>(sizeof(std::int32_t));
  description.leaves_at_once = leaf_.leaves();
  description.sample_grain = leaf_.grain;
  description.tensor_grain = leaf_.tensor_grain;
  description.tensor_chunks = leaf_.tensor_chunks;
  description.tensor_ranks = static_cast<int>(leaf_.tensor_ranks);
  description.gradient_bytes = leaf_.own_rows() * settings_.width * description.element_bytes;
  if (has_expert_units(settings_, leaf_)) {
    const ExpertBorder border(settings_, leaf_);
    description.gradient_bytes =
        border.behind_y<T>() + border.gradients_in<T>(View<std::byte*>()).bytes;
  }
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
