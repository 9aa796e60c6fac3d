// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything that a deck can say about how ranks share the work, as numbered choices: to run all
// combinations, or few that cover every two choices.

#include <iterator>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

#include "support/covering.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {

using Layout = Choices;

enum Factor {
  model_factor,
  ranks_factor,
  sharding_factor,
  group_factor,
  optimizer_factor,
  reshard_factor,
  prefetch_factor,
  in_flight_factor,
  reductions_factor,
  accumulation_factor,
  streams_factor,
  blocks_factor,
  windows_factor,
  factors
};
/// GPT-2 or Llama; 1, 2, 4 or 8 ranks; world, 2, nodes of 2, nodes of 4; ...
constexpr int choices_of[factors] = {2, 4, 4, 4, 2, 5, 3, 3, 3, 4, 2, 2, 2};

inline int ranks_of(const Layout& layout) { return 1 << layout[ranks_factor]; }
inline int shard_group_of(const Layout& layout) {
  const int sizes[] = {ranks_of(layout), 2, 2, 4};
  return sizes[layout[group_factor]];
}

/// Groups and nodes must not have more ranks than there are. A model with tied embeddings gathers
/// two units at once, so a limit of one is refused (Layout.TiedEmbeddingsNeedTwoGathersInFlight).
inline bool is_valid(const Layout& layout) {
  const bool gathers = layout[sharding_factor] == 3 && shard_group_of(layout) > 1;
  const bool tied = layout[model_factor] == 0;
  return shard_group_of(layout) <= ranks_of(layout) &&
         !(gathers && tied && layout[in_flight_factor] == 0);
}

inline void apply(const Layout& layout, config::Settings& settings) {
  plan::PolicyChoices& policy = settings.parallel;
  policy.sharding = static_cast<plan::Sharding>(layout[sharding_factor]);
  const int groups[] = {mesh::world_group, 2, mesh::node_group, mesh::node_group};
  settings.shard_group = groups[layout[group_factor]];
  settings.ranks_per_node = layout[group_factor] < 2 ? 0 : layout[group_factor] == 2 ? 2 : 4;
  policy.shard_optimizer_over = static_cast<plan::OptimizerGroup>(layout[optimizer_factor]);
  policy.reshard_after_forward.kind = static_cast<plan::Reshard::Kind>(layout[reshard_factor]);
  policy.reshard_after_forward.ranks = 2;
  policy.forward_prefetch.depth = policy.backward_prefetch.depth = layout[prefetch_factor];
  policy.in_flight_gathers.units = layout[in_flight_factor] == 2 ? 0 : layout[in_flight_factor] + 1;
  policy.in_flight_reductions = layout[reductions_factor];
  policy.accumulation = static_cast<plan::Accumulation>(layout[accumulation_factor]);
  settings.runtime.streams =
      layout[streams_factor] == 0 ? config::StreamsChoice::in_plan_order : on_threads;
  settings.model.blocks_per_unit = 1 + layout[blocks_factor];
  policy.node_windows =
      layout[windows_factor] == 0 ? plan::NodeWindows::never : plan::NodeWindows::automatic;
}

inline std::string describe(const Layout& layout) {
  const char* const names[factors] = {
      "model",     "ranks",      "sharding",     "group",   "over",   "reshard", "prefetch",
      "in flight", "reductions", "accumulation", "streams", "blocks", "windows"};
  std::string text;
  for (int f = 0; f < factors; ++f)
    text += (f > 0 ? ", " : "") + std::string(names[f]) + " " + std::to_string(layout[f]);
  return text;
}

/// Valid layouts that cover every two choices.
inline std::vector<Layout> pairwise_layouts() {
  return covering_rows({std::begin(choices_of), std::end(choices_of)}, is_valid);
}

}  // namespace ostrakon::tests
