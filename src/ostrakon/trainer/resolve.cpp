// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/resolve.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/window.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

using plan::NodeWindows;

/// Returns why ranks of a node can't map each other's memory; "" if they can, or a node has one
/// rank.
std::string why_not(mesh::Mesh& mesh) {
  if (has_device) return "this build computes on a device, whose memory ranks do not map";
  if (mesh.ranks_per_node() == 0)
    return "nodes don't have equally many ranks each, numbered one after the other";
  const std::string mine = mesh.ranks_per_node() > 1 ? comm::why_not_shared(mesh.node()) : "";
  try {
    mesh.world().run_collectively([&] {
      if (!mine.empty()) throw Error(mine);
    });
  } catch (const CollectiveError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

FoundWindows find_windows(NodeWindows asked, mesh::Mesh& mesh) {
  if (asked == NodeWindows::never || (asked == NodeWindows::automatic && has_device)) return {};
  FoundWindows found = {NodeWindows::always, why_not(mesh)};
  if (found.why_not.empty()) return found;
  if (asked == NodeWindows::always)
    throw CollectiveError(
        text("parallel.node_windows = always: ", found.why_not, "; expected auto or never"));
  found.windows = NodeWindows::never;
  return found;
}

NodeWindows expected_windows(NodeWindows asked, bool on_devices) {
  if (asked != NodeWindows::automatic) return asked;
  return on_devices ? NodeWindows::never : NodeWindows::always;
}

RunPolicy resolve(const TrainerSettings& settings, const model::Model& model, mesh::Mesh& mesh) {
  config::PolicyFacts facts;
  facts.compute = model.dtype();
  facts.micro_batches = settings.micro_batches();
  facts.micro_batch_grain = settings.sum_grain;
  facts.context_ranks = model.context_ranks();
  facts.tensor_ranks = model.tensor_ranks();
  for (const plan::UnitDescription& unit : model.description().units)
    facts.expert_ranks = std::max<std::int64_t>(facts.expert_ranks, unit.expert_ranks);
  facts.stages = mesh.pipeline().size();
  facts.checkpoint_staging = settings.checkpoint_staging;
  plan::Policy policy = config::policy_of(settings.policy, settings, facts);
  policy.shard_group = mesh.shard_group().size();
  policy.ranks_per_node = mesh.ranks_per_node();
  FoundWindows found = find_windows(policy.node_windows, mesh);
  policy.node_windows = found.windows;
  return {std::move(policy), std::move(found.why_not)};
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
