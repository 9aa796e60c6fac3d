// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything that a deck can say about how ranks share the work, as numbered choices: to run all
// combinations, or so few that every two choices meet.

#include <algorithm>
#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace ostrakon::tests {

/// One choice of each factor, by number.
using Layout = std::vector<int>;

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
  factors
};
/// GPT-2 or Llama; 1, 2, 4 or 8 ranks; world, 2, nodes of 2, nodes of 4; ...
constexpr int choices_of[factors] = {2, 4, 4, 4, 2, 4, 3, 3, 3, 4, 2, 2};

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
  plan::Policy& policy = settings.parallel;
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
  settings.runtime.streams = layout[streams_factor] == 0 ? config::StreamsChoice::in_plan_order
                                                         : config::StreamsChoice::threads;
  settings.model.blocks_per_unit = 1 + layout[blocks_factor];
}

inline std::string describe(const Layout& layout) {
  const char* const names[factors] = {"model",      "ranks",        "sharding", "group",
                                      "over",       "reshard",      "prefetch", "in flight",
                                      "reductions", "accumulation", "streams",  "blocks"};
  std::string text;
  for (int f = 0; f < factors; ++f)
    text += (f > 0 ? ", " : "") + std::string(names[f]) + " " + std::to_string(layout[f]);
  return text;
}

/// Valid layouts in which every two choices of different factors meet that can meet in any. By
/// trying: of many random layouts the one with the most new pairs is taken, and so on (D. Cohen et
/// al., "The AETG system", 1997).
inline std::vector<Layout> pairwise_layouts() {
  using Pair = std::tuple<int, int, int, int>;  // factor, choice, factor, choice
  std::mt19937 random(1);
  const auto any = [&] {
    Layout layout;
    for (int most : choices_of)
      layout.push_back(static_cast<int>(random() % static_cast<unsigned>(most)));
    return layout;
  };
  const auto pairs_of = [](const Layout& layout) {
    std::vector<Pair> pairs;
    for (int f = 0; f < factors; ++f)
      for (int g = f + 1; g < factors; ++g) pairs.emplace_back(f, layout[f], g, layout[g]);
    return pairs;
  };
  // Seen in so many random layouts, a pair that can be is among them.
  std::set<Pair> left;
  for (int i = 0; i < 20000; ++i) {
    const Layout layout = any();
    if (!is_valid(layout)) continue;
    const std::vector<Pair> pairs = pairs_of(layout);
    left.insert(pairs.begin(), pairs.end());
  }
  std::vector<Layout> chosen;
  while (!left.empty()) {
    Layout best;
    std::size_t most = 0;
    for (int i = 0; i < 200 || most == 0; ++i) {
      Layout layout = any();
      const auto [f, a, g, b] = *left.begin();
      layout[f] = a;
      layout[g] = b;
      if (!is_valid(layout)) continue;
      std::size_t fresh = 0;
      for (const Pair& pair : pairs_of(layout)) fresh += left.count(pair);
      if (fresh > most) {
        most = fresh;
        best = layout;
      }
    }
    for (const Pair& pair : pairs_of(best)) left.erase(pair);
    chosen.push_back(best);
  }
  return chosen;
}

}  // namespace ostrakon::tests
