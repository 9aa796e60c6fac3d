// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/space.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::tune {
namespace {

using config::Choice;
using config::Choices;
using config::Settings;
using config::Varied;

namespace key {
constexpr Varied sharding{"parallel", "sharding"};
constexpr Varied shard_group{"parallel", "shard_group"};
constexpr Varied context{"parallel", "context"};
constexpr Varied pipeline{"parallel", "pipeline"};
constexpr Varied schedule{"parallel", "schedule"};
constexpr Varied pipeline_chunks{"parallel", "pipeline_chunks"};
constexpr Varied pipeline_units{"parallel", "pipeline_units"};
constexpr Varied expert{"parallel", "expert"};
constexpr Varied tensor{"parallel", "tensor"};
constexpr Varied tensor_chunks{"parallel", "tensor_chunks"};
constexpr Varied accumulation{"parallel", "accumulation"};
constexpr Varied reshard_after_forward{"parallel", "reshard_after_forward"};
constexpr Varied forward_prefetch{"parallel", "forward_prefetch"};
constexpr Varied backward_prefetch{"parallel", "backward_prefetch"};
constexpr Varied in_flight_gathers{"parallel", "in_flight_gathers"};
constexpr Varied in_flight_reductions{"parallel", "in_flight_reductions"};
constexpr Varied hierarchical{"parallel", "hierarchical_collectives"};
constexpr Varied checkpointing{"memory", "activation_checkpointing"};
constexpr Varied offload{"memory", "offload"};
constexpr Varied saved_in{"memory", "activations"};
constexpr Varied micro_batch_size{"training", "micro_batch_size"};
constexpr Varied gather{"precision", "gather"};
constexpr Varied activations{"precision", "activations"};
constexpr Varied reduce{"precision", "reduce"};
}  // namespace key

bool is_16_bits(const Settings& deck) { return deck.precision.gather != DType::fp32; }

Choices values(const Varied& key, const std::vector<std::string>& values) {
  Choices choices;
  for (const std::string& value : values) choices.push_back({{&key, value}});
  return choices;
}

/// Powers of two that divide `number`.
std::vector<std::int64_t> powers_in(std::int64_t number) {
  std::vector<std::int64_t> powers;
  for (std::int64_t power = 1; power <= number && number % power == 0; power *= 2)
    powers.push_back(power);
  return powers;
}

std::int64_t units_of(const Settings& deck) {
  const std::int64_t blocks = std::max<std::int64_t>(1, deck.model.blocks_per_unit);
  return (deck.model.layers + blocks - 1) / blocks + 2;
}

Choices pipelines(const Settings& deck, int ranks) {
  const auto choice = [](std::int64_t stages, const char* schedule, std::int64_t chunks) {
    return Choice{{&key::pipeline, std::to_string(stages)},
                  {&key::schedule, schedule},
                  {&key::pipeline_chunks, std::to_string(chunks)},
                  {&key::pipeline_units, "auto"}};
  };
  Choices choices;
  for (const std::int64_t stages : powers_in(ranks)) {
    if (stages > units_of(deck)) break;
    choices.push_back(choice(stages, "1f1b", 1));
    if (stages == 1) continue;
    for (const std::int64_t chunks : {2, 4})
      if (stages * chunks <= units_of(deck))
        choices.push_back(choice(stages, "interleaved", chunks));
    choices.push_back(choice(stages, "zero_bubble", 1));
  }
  return choices;
}

/// In 16 bits a library may give fewer rows other bits, so chunks of them stay as they are.
Choices tensors(const Settings& deck, std::vector<std::string>& left_out) {
  if (deck.tensor_grain == 1 && deck.tensor == 1) {
    left_out.push_back("parallel.tensor: with model.tensor_grain = 1 tensor ranks have other bits");
    return {};
  }
  if (deck.tensor_grain == 1 || (is_16_bits(deck) && deck.tensor_chunks > 1)) {
    left_out.push_back(
        deck.tensor_grain == 1
            ? "parallel.tensor: with model.tensor_grain = 1 another number of tensor ranks has "
              "other bits"
            : "parallel.tensor: in 16 bits parallel.tensor_chunks cuts products by rows");
    return {};
  }
  Choices choices;
  for (const std::int64_t ranks : powers_in(deck.tensor_grain)) {
    const std::string number = std::to_string(ranks);
    std::vector<std::string> chunks = {"1"};
    if (ranks > 1 && !is_16_bits(deck)) chunks.push_back("4");
    for (const std::string& count : chunks)
      choices.push_back({{&key::tensor, number}, {&key::tensor_chunks, count}});
  }
  return choices;
}

Choices contexts(const Settings& deck, std::vector<std::string>& left_out) {
  const std::int64_t grain = deck.training.context_grain;
  const bool cuts_products = is_16_bits(deck) && std::max(deck.tensor, deck.tensor_grain) > 1;
  if (grain == 1 || cuts_products) {
    left_out.push_back(
        cuts_products ? "parallel.context: in 16 bits it cuts products of tensor pieces by rows"
                      : "parallel.context: with training.context_grain = 1 another number of "
                        "ranks has other bits");
    return {};
  }
  Choices choices;
  for (const std::int64_t ranks : powers_in(grain))
    choices.push_back({{&key::context, std::to_string(ranks)}});
  return choices;
}

Choices experts(const Settings& deck) {
  Choices choices;
  if (!deck.model.experts.exist()) return choices;
  for (const std::int64_t ranks : powers_in(deck.model.experts.count))
    choices.push_back({{&key::expert, std::to_string(ranks)}});
  return choices;
}

Choices groups(const Freedom& freedom) {
  std::vector<std::string> names = {"world", "node"};
  const int node = freedom.ranks_per_node;
  for (int group = 2; group < freedom.ranks; group *= 2)
    if (group != node && freedom.ranks % group == 0 && (group > node || 4 * group >= node))
      names.push_back(std::to_string(group));
  return values(key::shard_group, names);
}

Choices reshards(const Freedom& freedom) {
  std::vector<std::string> names = {"default", "never", "end_of_step"};
  const int node = freedom.ranks_per_node;
  if (node > 1 && node < freedom.ranks) names.push_back(std::to_string(node));
  return values(key::reshard_after_forward, names);
}

/// Where sums stay as they are, so does accumulation.
Choices reshards_and_accumulations(const Freedom& freedom) {
  Choices choices = reshards(freedom);
  if (freedom.keeps_sums) return choices;
  const Choices reshards = std::exchange(choices, {});
  for (const char* accumulation : {"auto", "shard_each", "reduce_last", "reduce_each"})
    for (Choice choice : reshards) {
      choice.push_back({&key::accumulation, accumulation});
      choices.push_back(std::move(choice));
    }
  return choices;
}

Choices overlaps() {
  const auto choice = [](const char* forward, const char* backward, const char* reductions) {
    return Choice{{&key::forward_prefetch, forward},
                  {&key::backward_prefetch, backward},
                  {&key::in_flight_gathers, "unlimited"},
                  {&key::in_flight_reductions, reductions}};
  };
  return {choice("1", "1", "1"), choice("2", "2", "2"), choice("2", "2", "1"),
          choice("1", "1", "0"), choice("0", "0", "0")};
}

Choices micro_batches(const Settings& deck, const Freedom& freedom,
                      std::vector<std::string>& left_out) {
  const bool is_sequence = deck.training.leaf == config::Leaf::sequence;
  if (!freedom.any_precision && (!is_sequence || is_16_bits(deck))) {
    left_out.push_back(
        is_sequence
            ? "training.micro_batch_size: 16-bit products of other rows may have other bits"
            : "training.micro_batch_size: with training.leaf = micro_batch another size has other "
              "bits");
    return {};
  }
  Choices choices;
  for (const std::int64_t size : powers_in(deck.training.global_batch_size))
    choices.push_back({{&key::micro_batch_size, std::to_string(size)}});
  return choices;
}

/// Other dtypes of the collectives, and of activations with them.
Choices precisions(const Freedom& freedom) {
  if (!freedom.any_precision) return {};
  const auto choice = [](const char* gather, const char* reduce) {
    return Choice{{&key::gather, gather}, {&key::activations, "auto"}, {&key::reduce, reduce}};
  };
  return {choice("fp32", "fp32"), choice("bf16", "bf16"), choice("bf16", "fp32")};
}

Choices hosts() {
  Choices choices;
  for (const char* state : {"none", "optimizer", "parameters", "all"})
    for (const char* saved : {"device", "host"})
      choices.push_back({{&key::offload, state}, {&key::saved_in, saved}});
  return choices;
}

bool differs(const Settings& deck, const config::Assignment& one) {
  return one.key->get(deck) != one.value;
}

}  // namespace

const std::vector<const Varied*>& varied_keys() {
  using namespace key;
  static const std::vector<const Varied*> all = {
      &micro_batch_size, &key::gather,       &activations,       &reduce,
      &sharding,         &shard_group,       &context,           &pipeline,
      &schedule,         &pipeline_chunks,   &pipeline_units,    &expert,
      &tensor,           &tensor_chunks,     &accumulation,      &reshard_after_forward,
      &forward_prefetch, &backward_prefetch, &in_flight_gathers, &in_flight_reductions,
      &hierarchical,     &checkpointing,     &offload,           &saved_in};
  return all;
}

Space make_space(const Settings& deck, const Freedom& freedom) {
  Space space;
  // A choice that changes a key that is kept is none; nor is one that changes nothing.
  const auto add = [&](const Choices& choices, bool divides_work, bool decides_sums) {
    Dimension dimension{{{}}, divides_work};
    for (const Choice& choice : choices) {
      const auto changes = [&](const config::Assignment& one) { return differs(deck, one); };
      const bool is_kept =
          std::any_of(choice.begin(), choice.end(), [&](const config::Assignment& one) {
            return changes(one) && freedom.kept.count(one.key->full_name()) > 0;
          });
      if (!is_kept && std::any_of(choice.begin(), choice.end(), changes))
        dimension.choices.push_back(choice);
    }
    if (dimension.choices.size() > 1 && !(decides_sums && freedom.keeps_sums))
      space.dimensions.push_back(std::move(dimension));
  };
  if (freedom.keeps_sums)
    space.left_out.push_back(
        "all that decides in which order gradients are summed: as the deck says, they are not "
        "bitwise equal to 1 rank on these ranks, so another order has other bits");
  std::vector<std::string> left_out;
  add(pipelines(deck, freedom.ranks), true, true);
  add(tensors(deck, left_out), true, true);
  add(contexts(deck, left_out), true, true);
  add(experts(deck), true, true);
  add(micro_batches(deck, freedom, left_out), true, true);
  add(precisions(freedom), true, true);
  add(values(key::checkpointing, {"none", "keep norms activations", "selective attention",
                                  "selective attention mlp norms", "every 2", "full"}),
      false, false);
  // Together, as one helps where the other is so; before sharding, which looks worse without.
  add(reshards_and_accumulations(freedom), false, false);
  add(values(key::sharding, {"full", "gradients", "optimizer", "none"}), false, true);
  add(groups(freedom), false, true);
  add(values(key::hierarchical, {"auto", "never", "always"}), false, true);
  add(overlaps(), false, false);
  if (freedom.offloads) add(hosts(), false, true);
  if (!freedom.keeps_sums)
    space.left_out.insert(space.left_out.end(), left_out.begin(), left_out.end());
  return space;
}

}  // namespace ostrakon::tune
