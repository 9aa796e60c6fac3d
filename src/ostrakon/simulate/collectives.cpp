// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/collectives.hpp>

#include <algorithm>
#include <cmath>

namespace ostrakon::simulate {
namespace {

double share(int ranks) { return static_cast<double>(ranks - 1) / ranks; }

/// The protocol by which a ring sends its bytes.
struct Protocol {
  double base, inside_step, across_step;  ///< seconds
  double bandwidth;                       ///< share of a network's bandwidth that it reaches
};
/// NCCL's protocols for small messages: constants of rings in src/graph/tuning.cc of version 2.30.
constexpr Protocol low_latency{6.6e-6, 0.6e-6, 2.7e-6, 0.25};
constexpr Protocol low_latency_128{14.0e-6, 1.9e-6, 4.0e-6, 0.92};
/// The maximum bytes of a ring across nodes with low_latency, whose buffers are small.
constexpr double most_low_latency_bytes = 4e6;

/// The share of a ring's bandwidth that a double tree reaches.
constexpr double tree_bandwidth = 0.85;

CollectiveSeconds ring_with(const Machine& machine, const GroupShape& group, double bytes,
                            const Protocol& protocol) {
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  const int across_steps = group.spans_nodes() ? group.nodes() - 1 : 0;
  const int inside_steps = group.ranks - 1 - across_steps;
  double rate = inside.bytes_per_second;
  if (group.spans_nodes()) {
    const double links = across.bytes_per_second * group.ranks_per_node;
    rate = group.ranks_per_node > 1 ? std::min(links, rate) : links;
  }
  return {protocol.base + inside_steps * protocol.inside_step + across_steps * protocol.across_step,
          bytes * share(group.ranks) / (rate * protocol.bandwidth)};
}

/// Returns the protocol by the machine's networks: NCCL's Simple, or MPI.
Protocol protocol_of_networks(const Machine& machine, bool spans_nodes) {
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  if (!spans_nodes) return {inside.base_seconds, inside.step_seconds, 0.0, 1.0};
  const double step =
      across.inside_step_seconds > 0.0 ? across.inside_step_seconds : inside.step_seconds;
  return {across.base_seconds, step, across.step_seconds, 1.0};
}

}  // namespace

CollectiveSeconds ring_seconds(const Machine& machine, const GroupShape& group, double bytes) {
  if (group.ranks <= 1) return {};
  const bool spans = group.spans_nodes();
  CollectiveSeconds best = ring_with(machine, group, bytes, protocol_of_networks(machine, spans));
  if (!machine.has_protocols) return best;
  const auto try_with = [&](const Protocol& protocol) {
    const CollectiveSeconds taken = ring_with(machine, group, bytes, protocol);
    if (taken.latency + taken.transfer < best.latency + best.transfer) best = taken;
  };
  if (!spans || bytes <= most_low_latency_bytes) try_with(low_latency);
  if (!spans || machine.ll128_between_nodes) try_with(low_latency_128);
  return best;
}

CollectiveSeconds half_tree_seconds(const Machine& machine, const GroupShape& group, double bytes) {
  if (group.ranks <= 1) return {};
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  const double links = across.bytes_per_second * group.ranks_per_node;
  const double rate = tree_bandwidth *
                      (group.ranks_per_node > 1 ? std::min(links, inside.bytes_per_second) : links);
  return {0.5 * across.base_seconds + (group.ranks_per_node - 1) * inside.step_seconds +
              std::log2(group.nodes()) * across.step_seconds,
          bytes * share(group.ranks) / rate};
}

CollectiveSeconds exchange_seconds(const Machine& machine, const GroupShape& group, double bytes) {
  if (group.ranks <= 1) return {};
  const Network &inside = machine.inside_nodes, &across = machine.across_nodes;
  const double to_each = bytes / group.ranks;
  const int near = std::min(group.ranks_per_node, group.ranks) - 1;
  const int far = group.ranks - 1 - near;
  const double seconds_inside = near > 0 ? near * to_each / inside.exchange_rate() : 0.0;
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
