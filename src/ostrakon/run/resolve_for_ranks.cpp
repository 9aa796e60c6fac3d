// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/resolve_for_ranks.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/trainer/node_windows.hpp>

namespace ostrakon::train {

void resolve_for_ranks(config::Settings& settings, int all_ranks, int ranks_per_node) {
  settings.ranks_per_node = ranks_per_node;
  config::check_ranks(settings, all_ranks);
  const int ranks = all_ranks / static_cast<int>(settings.pipeline);  // per stage
  const int group = settings.shard_group;
  require(group <= 0 || ranks % group == 0, "parallel.shard_group = ", group,
          " does not divide the ", ranks, ranks == 1 ? " rank" : " ranks",
          settings.pipeline > 1 ? " of a stage" : "");
  config::complete(settings);
  settings.parallel.ranks_per_node = ranks_per_node;
  require(
      !settings.processor.is_device || settings.parallel.node_windows != plan::NodeWindows::always,
      "parallel.node_windows = always: ranks compute on devices, whose memory others do not map; "
      "expected auto or never");
  settings.parallel.node_windows =
      expected_windows(settings.parallel.node_windows, settings.processor.is_device);
  if (ranks_per_node > 0)
    plan::require_tensor_in_node(settings.parallel, all_ranks / ranks_per_node, ranks_per_node);
  settings.parallel.shard_group = group == mesh::world_group  ? ranks
                                  : group == mesh::node_group ? std::min(ranks, ranks_per_node)
                                                              : group;
}

simulate::Streams streams_of(const config::Settings& settings, const simulate::Machine& machine,
                             int ranks_per_node) {
  using config::StreamsChoice;
  const StreamsChoice choice = settings.runtime.streams;
  if (machine.cores_per_node == 0)  // devices
    return choice == StreamsChoice::in_plan_order ? simulate::Streams::one_after_the_other
                                                  : simulate::Streams::concurrent;
  const bool has_cores = machine.cores_per_node >= 3 * ranks_per_node;  // StreamsChoice::automatic
  return choice == StreamsChoice::threads || (choice == StreamsChoice::automatic && has_cores)
             ? simulate::Streams::concurrent
             : simulate::Streams::one_after_the_other;
}

}  // namespace ostrakon::train
