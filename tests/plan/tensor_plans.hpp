// SPDX-License-Identifier: Apache-2.0
#pragma once

// Decoders over tensor ranks, small enough to plan many.

#include <ostrakon/model/decoder.hpp>

#include "plan/checks.hpp"

namespace ostrakon::tests {

struct TensorDecoder {
  model::DecoderSettings settings;
  model::LeafShape leaf;
  model::Recompute recompute;
  bool is_half = false;
  bool freezes_embedding = false;

  /// In `pieces` pieces, of two sequences of eight tokens.
  explicit TensorDecoder(int tensor_ranks, int pieces = 4) {
    settings.layers = 2;
    settings.width = 32;
    settings.heads = 4;
    settings.ffn_width = 48;
    settings.vocabulary = 37;
    leaf.batch = 2;
    leaf.tokens = 8;
    leaf.tensor_ranks = tensor_ranks;
    leaf.tensor_grain = pieces;
  }
  /// Makes it like GPT-2.
  TensorDecoder& with_biases() {
    settings.norm = math::NormKind::layernorm;
    settings.positions = model::Positions::learned;
    settings.activation = model::Activation::gelu;
    settings.bias = true;
    return *this;
  }
  /// One sequence, of which each of `parts` neighbours along shard has a part.
  TensorDecoder& in_parts(int parts) {
    leaf.batch = 1;
    leaf.tokens = 16;
    leaf.context_ranks = parts;
    return *this;
  }
  /// Rows are exchanged in so many chunks.
  TensorDecoder& in_chunks(int chunks) {
    leaf.tensor_chunks = chunks;
    return *this;
  }
  /// A mixture of 16 experts and a shared one, which `ranks` ranks share.
  TensorDecoder& with_experts(int ranks) {
    settings.experts = {16, 2, 1, 16};
    leaf.expert_ranks = ranks;
    return *this;
  }
  int parts_of_experts() const {
    return static_cast<int>(std::max<std::int64_t>(leaf.expert_ranks / leaf.tensor_ranks, 1));
  }
  /// Returns the same model on one tensor rank.
  TensorDecoder whole() const {
    TensorDecoder other = *this;
    other.leaf.tensor_ranks = other.leaf.tensor_chunks = 1;
    return other;
  }

  ModelDescription description() const {
    const model::Frozen frozen = [this](const std::string& name) {
      return freezes_embedding && name.compare(0, 9, "embedding") == 0;
    };
    return is_half ? model::Decoder<bf16>(settings, leaf, recompute, frozen).description()
                   : model::Decoder<float>(settings, leaf, recompute, frozen).description();
  }
};

/// `shard` ranks along shard and `replicas` of the model, each of `tensor` ranks.
struct TensorRanks {
  int tensor = 1;
  int shard = 1;
  int replicas = 1;

  int groups() const { return shard * replicas; }
  int all() const { return tensor * groups(); }
  void set(Policy& policy, std::int64_t micro_batches) const {
    policy.tensor_ranks = tensor;
    policy.shard_group = tensor * shard;
    policy.leaves = groups() * micro_batches;
  }
  Policy policy(std::int64_t micro_batches) const {
    Policy policy;
    set(policy, micro_batches);
    return policy;
  }
};

inline bool is_over_tensor(const Action& action) {
  return action.span.axis == Axis::tensor && action.span.ranks > 1;
}

/// Returns, for each action of a plan, what an exchange is part of, forward, recompute or backward;
/// of others their own kind.
inline std::vector<Kind> works(const StepPlan& plan) {
  std::vector<Kind> found, left_by(plan.buffers.size(), Kind::begin);
  for (const Action& action : plan.actions) {
    const int handed = action.buffer(Role::send_buffer);
    const bool exchanges = action.kind == Kind::exchange;
    found.push_back(exchanges ? left_by[static_cast<std::size_t>(handed)] : action.kind);
    if (handed >= 0) left_by[static_cast<std::size_t>(handed)] = found.back();
  }
  return found;
}

}  // namespace ostrakon::tests
