// SPDX-License-Identifier: Apache-2.0
#include "plan_fit_choices.hpp"

#include <algorithm>
#include <cstddef>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/checks.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <set>
#include <string>
#include <utility>

namespace ostrakon::apps::fit {
namespace {

using config::Settings;

Choices choices_of(const Varied& key, const std::vector<std::string>& values) {
  Choices choices = {{}};
  for (const std::string& value : values) choices.push_back({{&key, value}});
  return choices;
}

Choices precision_choices(const Settings& deck, bool any_precision) {
  Choices choices = {{}};
  if (!any_precision) return choices;
  for (const auto& [gathered, reduced] :
       {std::pair("fp32", "fp32"), std::pair("bf16", "bf16"), std::pair("bf16", "fp32")}) {
    choices.push_back({{&gather, gathered}, {&reduce, reduced}});
    // Named in the deck, they would have to be named anew.
    if (deck.precision.activations) choices.back().push_back({&activations, "auto"});
  }
  return choices;
}

/// Not all go together with leaves that are sequences or pieces of them.
bool is_possible(Settings settings, const Choice& choice) {
  for (const Assignment& one : choice) one.key->set(settings, one.value);
  try {
    config::check_together(settings, "deck");
  } catch (const Error&) {
    return false;
  }
  return true;
}

Choices micro_batch_choices(const Settings& deck, const FitRequest& request) {
  const std::int64_t sequences = deck.training.global_batch_size;
  const std::int64_t ranks =
      std::max<std::int64_t>(1, ranks_of_stage(deck, request) / (deck.context * deck.tensor));
  Choices choices = {{}};
  for (std::int64_t size = 1; size <= sequences / ranks; size *= 2) {
    if (sequences % (size * ranks) != 0) continue;
    const Choice choice = {{&micro_batch_size, std::to_string(size)}};
    if (is_possible(deck, choice)) choices.push_back(choice);
  }
  return choices;
}

/// Not `always`, than which `default` takes no more time or memory. Parts on the ranks of a node
/// where groups are larger.
Choices reshard_choices(const Settings& deck, const FitRequest& request) {
  std::vector<std::string> values = {"default", "never", "end_of_step"};
  // The ranks of a node that are in a shard group, without tensor ranks.
  const int tensor = static_cast<int>(deck.tensor);
  const bool apart = deck.parallel.rank_order == plan::RankOrder::shard_first;
  const int node = request.ranks_per_node / (apart ? 1 : tensor);
  const int ranks = ranks_of_stage(deck, request) / tensor;
  if (node > 1 && node < ranks && ranks % node == 0) values.push_back(std::to_string(node));
  return choices_of(reshard_after_forward, values);
}

/// Ascending: what is kept on the host costs copies.
Choices host_choices() {
  Choices choices;
  for (const char* state : {"none", "optimizer", "parameters", "all"})
    for (const char* saved : {"device", "host"})
      choices.push_back({{&offload, state}, {&saved_in, saved}});
  return choices;
}

/// Without choices equivalent to an earlier one.
Choices distinct(Choices choices, const Settings& deck) {
  std::set<std::string> seen;
  choices.erase(std::remove_if(choices.begin(), choices.end(),
                               [&](const Choice& choice) {
                                 Settings settings = deck;
                                 set(settings, choice);
                                 return !seen.insert(written(settings)).second;
                               }),
                choices.end());
  return choices;
}

}  // namespace

std::vector<Choices> axes(const Settings& deck, const FitRequest& request) {
  std::vector<Choices> axes = {
      choices_of(sharding, {"none", "optimizer", "gradients", "full"}),
      choices_of(shard_group, {"world", "node"}),
      reshard_choices(deck, request),
      choices_of(accumulation, {"auto", "reduce_last"}),
      choices_of(checkpointing, {"none", "selective attention mlp norms", "every 2", "full"}),
      precision_choices(deck, request.any_precision),
      micro_batch_choices(deck, request),
      host_choices()};
  for (Choices& axis : axes) axis = distinct(std::move(axis), deck);
  return axes;
}

Choices overlap_choices(std::int64_t gather_bytes) {
  const auto choice = [](const std::string& forward, const std::string& backward,
                         const std::string& gathers, const std::string& reductions) {
    return Choice{{&forward_prefetch, forward},
                  {&backward_prefetch, backward},
                  {&in_flight_gathers, gathers},
                  {&in_flight_reductions, reductions}};
  };
  const std::string none = "unlimited";
  const std::string bound = text((gather_bytes >> 20) + 1, " MiB");
  return {{},
          choice("1", "1", none, "1"),
          choice("2", "2", none, "2"),
          choice("2", "2", bound, "1"),
          choice("1", "1", none, "0"),
          choice("0", "0", none, "0")};
}

std::int64_t gather_bound(const plan::ModelDescription& model, int ranks) {
  const std::int64_t block = plan::shard_alignment * ranks;
  std::vector<std::int64_t> units;
  for (const plan::UnitDescription& unit : model.units)
    units.push_back((unit.parameter_elements / block + 2) * block * model.element_bytes);
  std::int64_t most = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    const int tied_to = model.units[u].tied_to;
    most = std::max(most, units[u] + (tied_to < 0 ? 0 : units[static_cast<std::size_t>(tied_to)]));
  }
  std::nth_element(units.begin(), units.begin() + static_cast<std::ptrdiff_t>(units.size() / 2),
                   units.end());
  return std::max(most, 2 * units[units.size() / 2]);
}

}  // namespace ostrakon::apps::fit
