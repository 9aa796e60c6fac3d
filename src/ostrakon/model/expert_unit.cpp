// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/expert_unit.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/model/expert_buffers.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {
namespace {

/// Returns the most rows that a rank can send to another: a token goes to each expert at most once.
std::int64_t most_rows(const DecoderSettings& settings, const LeafShape& leaf) {
  const ExpertSettings& experts = settings.experts;
  return leaf.own_rows() * std::min(experts.per_token, experts.count / leaf.expert_ranks);
}

math::ExpertRounds make_rounds(const DecoderSettings& settings, const LeafShape& leaf) {
  const std::int64_t of_leaf = leaf.own_rows() / leaf.own_row_leaves();
  const std::int64_t granule =
      settings.mlp_bias() ? of_leaf : std::min(of_leaf, math::product_chunk);
  return math::make_expert_rounds(leaf.own_rows() * settings.experts.per_token,
                                  leaf.expert_capacity / static_cast<double>(leaf.expert_ranks),
                                  granule, most_rows(settings, leaf));
}

}  // namespace

plan::ExpertCapacity expert_capacity(const DecoderSettings& settings, const LeafShape& leaf) {
  const math::ExpertRounds rounds = make_rounds(settings, leaf);
  const std::int64_t own = settings.experts.count / leaf.expert_ranks,
                     runs = leaf.own_row_leaves() * own;
  // Each expert has as many assignments of each leaf as any other, but for rounding.
  const std::int64_t rows = leaf.own_rows() * settings.experts.per_token / leaf.expert_ranks;
  std::vector<std::int64_t> offsets;
  for (std::int64_t run = 0; run <= runs; ++run)
    offsets.push_back(static_cast<std::int64_t>(
        static_cast<double>(rows) * static_cast<double>(run) / static_cast<double>(runs)));
  return {leaf.expert_ranks, rounds.capacity, rounds.needed(host_view(std::as_const(offsets))),
          rounds.most(most_rows(settings, leaf))};
}

template <class T>
ExpertUnit<T>::ExpertUnit(const DecoderSettings& settings, const LeafShape& leaf,
                          std::int64_t index, const Frozen& frozen, std::int64_t passed)
    : dispatch_(settings.experts, settings.width, leaf,
                settings.norm_placement != NormPlacement::before),
      passed_(passed * dispatch_.behind_y<T>() / bytes_of<T>(1)),
      ranks_(leaf.expert_ranks),
      tensor_ranks_(leaf.tensor_ranks),
      own_(settings.experts.count / leaf.expert_ranks),
      inner_(settings.experts.width),
      activation_(settings.activation),
      kernels_(leaf.kernels),
      rounds_(make_rounds(settings, leaf)) {
  description_.capacity = expert_capacity(settings, leaf);
  description_.name = "block." + std::to_string(index) + ".experts";
  parameters_ = expert_parameters("mlp", settings.experts, settings.mlp_settings(), settings.width);
  add_parameters(frozen);
  describe();
}

template <class T>
void ExpertUnit<T>::add_parameters(const Frozen& frozen) {
  const std::string owner = description_.name.substr(0, description_.name.rfind('.'));
  const SegmentSizes sizes = lay_out_parameters(parameters_, owner, frozen);
  const std::size_t of_expert = parameters_.size() / static_cast<std::size_t>(own_ * ranks_);
  for (std::size_t p = of_expert; p < parameters_.size(); ++p) {
    const Parameter &one = parameters_[p], &first = parameters_[p % of_expert];
    require(one.frozen == first.frozen, "parameter ", one.full_name(), " is ",
            one.frozen ? "frozen" : "trained", " and ", first.full_name(),
            " is not: expected the same for all experts, which are a unit of their own (",
            ranks_ > 1 ? text("parallel.expert = ", ranks_) : std::string("model.tensor_grain"),
            ")");
  }
  description_.parameter_elements = sizes.frozen + sizes.trained;
  description_.frozen_elements = sizes.frozen;
  trained_elements_ = sizes.trained / (own_ * ranks_);
  frozen_elements_ = sizes.frozen / (own_ * ranks_);
  const std::string first = name_of_expert("mlp", 0);
  up_ = find_layer(name_of_up(activation_, first));
  down_ = find_layer(first + ".down");
  // nvcc can't loop over a list of these itself.
  const Location arrays[] = {up_.weight, up_.bias, down_.weight, down_.bias};
  for (const Location& one : arrays)
    if (one.trained) trained_.push_back(one);
}

template <class T>
typename ExpertUnit<T>::Layer ExpertUnit<T>::find_layer(const std::string& name) const {
  Layer layer;
  for (const Parameter& parameter : parameters_) {
    const Location at{parameter.offset, parameter.elements(), !parameter.frozen};
    if (parameter.name == name + ".bias") layer.bias = at;
    if (parameter.name == name + ".weight")
      layer = {parameter.shape[1], parameter.shape[0], at, layer.bias};
  }
  return layer;
}

template <class T>
void ExpertUnit<T>::describe() {
  using plan::ExchangeKind;
  const bool has_neighbours = ranks_ > tensor_ranks_;
  const plan::Axis axis = tensor_ranks_ == 1 ? plan::Axis::shard
                          : has_neighbours   ? plan::Axis::tensor_shard
                                             : plan::Axis::tensor;
  const plan::Span span{axis, static_cast<int>(ranks_)};
  constexpr std::int64_t word = sizeof(float);
  const auto make_phases = [&](Pass pass) {
    plan::Phases phases(static_cast<std::size_t>(2 + 2 * description_.capacity.most_rounds));
    for (std::size_t p = 0; p < phases.size(); ++p) {
      phases[p].workspace_bytes = Workspace(*this, pass, {}).bytes;
      phases[p].keeps_workspace = p + 1 < phases.size();
      phases[p].recomputes = false;
      if (p > 0) phases[p].reads = {static_cast<int>(p) - 1};
      if (p == 0 || p + 1 == phases.size()) continue;
      const std::int64_t bytes =
          p % 2 == 1 ? Sent(*this, pass, {}).bytes : Returned(*this, pass, {}).bytes;
      const auto round = static_cast<std::int64_t>(p - 1) / 2;
      plan::Exchange all_to_all{ExchangeKind::all_to_all, span, ranks_ * padded<T>(bytes) / word,
                                word};
      all_to_all.may_be_empty = round > 0;
      all_to_all.empty_if_even = round >= description_.capacity.rounds_if_even;
      phases[p].then = all_to_all;
    }
    phases[0].then = plan::Exchange{
        ExchangeKind::gather, span,
        ranks_ * dispatch_.offsets() * static_cast<std::int64_t>(sizeof(std::int64_t)) / word,
        word};
    return phases;
  };
  description_.forward = make_phases(Pass::forward);
  description_.backward = make_phases(Pass::backward);
  description_.output_bytes = bytes_of<T>(passed_ + dispatch_.rows * dispatch_.columns_behind());
  description_.expert_ranks = static_cast<int>(ranks_ / tensor_ranks_);
  description_.cuts_matrices = false;
  description_.reads_batch = false;
  describe_work();
}

/// Rows are evenly divided over ranks, and over the rounds that these take.
template <class T>
void ExpertUnit<T>::describe_work() {
  const std::int64_t rows = dispatch_.assignments(), rounds = description_.capacity.rounds_if_even;
  const auto part = static_cast<double>(rounds), experts = static_cast<double>(own_);
  const auto product = [&](const Layer& layer) {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(layer.inputs * layer.outputs);
  };
  // Work is that of one round, as are all numbers below. Each expert has products of its own.
  const auto work_of = [&](const Layer& layer) {
    return experts / part *
           plan::product_work(product(layer) / experts, layer.inputs, layer.outputs);
  };
  const auto rows_of = [&](std::int64_t columns) {
    return plan::row_work(static_cast<double>(bytes_of<T>(rows * columns)) / part);
  };
  const double activations = static_cast<double>(rows * inner_) / part;
  const double activated = rows_of(up_.outputs + inner_).row_bytes;
  const plan::KernelWork activation = plan::activation_work(activations, activated);
  // Rows are copied to where they are sent from, there and back.
  const plan::KernelWork up = work_of(up_), down = work_of(down_),
                         copies = rows_of(2 * dispatch_.width);
  for (const Layer* layer : {&up_, &down_})
    description_.gradient_flops += (layer->weight.trained ? 2.0 : 1.0) * product(*layer);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const auto p = static_cast<std::size_t>(2 + 2 * round);
    description_.forward[p].flops = (product(up_) + product(down_)) / part;
    description_.backward[p].flops = (description_.gradient_flops + product(up_)) / part;
    description_.forward[p - 1].work = copies;
    description_.forward[p].work = up + down + activation + copies;
    // Activations once more, and their gradients. Gradients are sent, too, and weighed with
    // activated rows.
    description_.backward[p - 1].work = 2.0 * copies;
    description_.backward[p].work = 3.0 * up + 2.0 * down + activation +
                                    plan::activation_work(activations, 1.5 * activated) +
                                    rows_of(3 * inner_ + 2 * dispatch_.width) + copies;
  }
  // Sums of a row's experts.
  const plan::KernelWork combine = plan::row_work(
      static_cast<double>(bytes_of<T>((rows + 2 * dispatch_.rows) * dispatch_.width)));
  description_.forward.back().work += combine;
  description_.backward.back().work += combine;
  if (!dispatch_.is_apart) return;
  const plan::KernelWork copy = plan::row_work(
      static_cast<double>(bytes_of<T>(2 * dispatch_.rows * dispatch_.columns_behind())));
  description_.forward.back().work += 0.5 * copy;
  description_.backward.front().work += copy;
  description_.backward.back().work += copy;
}

template class ExpertUnit<float>;
template class ExpertUnit<double>;
template class ExpertUnit<bf16>;
template class ExpertUnit<fp16>;

}  // namespace ostrakon::model
