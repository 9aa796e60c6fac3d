// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/resolve.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/trainer/node_windows.hpp>

namespace ostrakon::train {

plan::Policy resolve(const TrainerSettings& settings, const model::Model& model, mesh::Mesh& mesh) {
  config::Settings deck = as_deck(settings);
  deck.precision.gather = model.dtype();
  deck.context = model.context_ranks();
  deck.tensor = model.tensor_ranks();
  for (const plan::UnitDescription& unit : model.description().units)
    deck.expert = std::max(deck.expert, deck.tensor * unit.expert_ranks);
  deck.pipeline = mesh.pipeline().size();
  plan::Policy policy = config::policy_of(deck);
  policy.shard_group = mesh.shard_group().size();
  policy.ranks_per_node = mesh.ranks_per_node();
  return policy;
}

plan::Policy resolve(const config::Settings& settings, int all_ranks, int ranks_per_node) {
  config::check_ranks(settings, all_ranks, ranks_per_node);
  plan::Policy policy = config::policy_of(settings);
  policy.ranks_per_node = ranks_per_node;
  require(!settings.processor.is_device || policy.node_windows != plan::NodeWindows::always,
          "parallel.node_windows = always: ranks compute on devices, whose memory others do not "
          "map; expected auto or never");
  policy.node_windows = expected_windows(policy.node_windows, settings.processor.is_device);
  if (ranks_per_node > 0)
    plan::require_tensor_in_node(policy, all_ranks / ranks_per_node, ranks_per_node);
  const int ranks = all_ranks / policy.stages, group = settings.shard_group;
  policy.shard_group = group == mesh::world_group  ? ranks
                       : group == mesh::node_group ? std::min(ranks, ranks_per_node)
                                                   : group;
  return policy;
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
