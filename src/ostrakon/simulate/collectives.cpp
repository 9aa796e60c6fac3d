// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/collectives.hpp>

#include <algorithm>
#include <cmath>

namespace ostrakon::simulate {
namespace {

double share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

}  // namespace

CollectiveSeconds ring_seconds(const Machine& machine, const GroupShape& group, double bytes) {
  if (group.ranks <= 1) return {};
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  const double sent = bytes * share(group.ranks);
  const int across_steps = group.spans_nodes() ? group.nodes() - 1 : 0;
  const int inside_steps = group.ranks - 1 - across_steps;
  const double steps = inside_steps * inside.step_seconds + across_steps * across.step_seconds;
  if (!group.spans_nodes()) return {inside.base_seconds + steps, sent / inside.bytes_per_second};
  const double links = across.bytes_per_second * group.ranks_per_node;
  const double rate = group.ranks_per_node > 1 ? std::min(links, inside.bytes_per_second) : links;
  return {across.base_seconds + steps, sent / rate};
}

CollectiveSeconds exchange_seconds(const Machine& machine, const GroupShape& group, double bytes) {
  if (group.ranks <= 1) return {};
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  const double to_each = bytes / group.ranks;
  const int near = std::min(group.ranks_per_node, group.ranks) - 1;
  const int far = group.ranks - 1 - near;
  const double seconds_inside = near * to_each / inside.exchange_rate();
  const double messages = near * inside.message_seconds + far * across.message_seconds;
  if (far == 0) return {inside.base_seconds + messages, seconds_inside};
  return {across.base_seconds + messages,
          std::max(seconds_inside, far * to_each / across.exchange_rate())};
}

double sum_seconds(const Machine& machine, const GroupShape& group) {
  if (group.ranks <= 1) return 0.0;
  const auto levels = [](int ranks) { return ranks > 1 ? std::ceil(std::log2(ranks)) : 0.0; };
  const Network& slowest = group.spans_nodes() ? machine.across_nodes : machine.inside_nodes;
  return slowest.base_seconds + 2.0 * (levels(std::min(group.ranks, group.ranks_per_node)) *
                                           machine.inside_nodes.step_seconds +
                                       levels(group.nodes()) * machine.across_nodes.step_seconds);
}

CollectiveSeconds message_seconds(const Machine& machine, bool leaves_node, double bytes) {
  const Network& network = leaves_node ? machine.across_nodes : machine.inside_nodes;
  return {network.base_seconds, bytes / network.exchange_rate()};
}

}  // namespace ostrakon::simulate
