// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/levels.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/quantized_flat.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>

namespace ostrakon::plan {
namespace {

/// The bytes as which the largest unit is gathered, without padding.
std::int64_t most_bytes(const ModelDescription& model) {
  std::int64_t most = 0;
  for (const UnitDescription& unit : model.units) {
    std::int64_t bytes = unit.parameter_elements * model.element_bytes;
    for (const QuantizedWeights& weights : unit.quantized)
      bytes -=
          weights.elements * (model.element_bytes - 1) - weights.elements / QuantizedFlat::block;
    most = std::max(most, bytes);
  }
  return most;
}

/// Throws Error where a group of ranks spans nodes, has several ranks on a node, and still has one
/// level.
void require_levels(const Grid& grid) {
  for (const Axis axis : {Axis::shard, Axis::replicate}) {
    const Span all = grid.span(axis);
    const int apart = grid.stride(all);
    const bool spans_nodes = all.ranks * apart > grid.node, has_several = apart < grid.node;
    if (!spans_nodes || !has_several || grid.levels(axis).size() == 2) continue;
    const int neighbours = neighbours_on_node(grid, all, grid.node);
    const char* const group = axis == Axis::shard ? "shard" : "replicate";
    require(neighbours > 1, "parallel.hierarchical_collectives = always: ", group, " groups of ",
            all.ranks, " ranks don't have equally many on each node of ", grid.node,
            "; expected parallel.shard_group to divide the ranks of a node, or to be a multiple "
            "of them");
    throw Error(text("parallel.hierarchical_collectives = always: nodes have ", neighbours,
                     " ranks of a ", group,
                     " group; expected a power of two, with which sums "
                     "keep their bits, or auto"));
  }
}

/// Whether the sums inside a node are nodes of the trees over Policy::sum_grain leaves, if sums
/// without levels are made by such trees.
bool are_inside_trees(const Grid& grid, const Policy& policy) {
  if (policy.summation == Summation::library) return true;  // a library has no trees
  const std::int64_t grain = sum_grain_of(policy);
  const Accumulation accumulation = accumulation_of(policy, grid);
  // The leaves of an item.
  std::int64_t leaves = leaves_apart(grid, accumulation, sharing_ranks(policy));
  for (const Span& span : sum_spans(grid, accumulation)) {
    const bool is_first = !is_across_nodes(span) && span.ranks < grid.size(span.axis);
    if (is_first && leaves <= grain && grain / leaves % span.ranks != 0) return false;
    leaves *= span.ranks;
  }
  return true;
}

}  // namespace

Grid one_level(int ranks, const Policy& policy, int stages) {
  const int group = policy.shard_group > 0 ? policy.shard_group : ranks;
  const int tensor = policy.tensor_ranks;
  Grid grid(policy.leaves / (ranks / tensor), group / tensor, ranks / group, stages, tensor);
  grid.shard_first = policy.rank_order == RankOrder::shard_first;
  // A window is a run of neighbours that are on one node in each stage, wherever the stage begins.
  if (policy.node_windows == NodeWindows::always && policy.ranks_per_node > 1)
    grid.window = std::gcd(policy.ranks_per_node, ranks);
  return grid;
}

Grid make_grid(const ModelDescription& model, int ranks, const Policy& policy, int stages) {
  Grid grid = one_level(ranks, policy, stages);
  const Hierarchical& hierarchical = policy.hierarchical;
  const int node = policy.ranks_per_node;
  if (node <= 1 || node >= ranks || ranks % node != 0 || hierarchical.kind == Hierarchical::never ||
      (hierarchical.kind == Hierarchical::by_size && most_bytes(model) < hierarchical.bytes))
    return grid;
  grid.node = node;
  if (hierarchical.kind == Hierarchical::always) require_levels(grid);
  // If the whole node is more than a tree, a part of it is summed first.
  while (grid.node > 1 && !are_inside_trees(grid, policy)) grid.node /= 2;
  require(hierarchical.kind != Hierarchical::always || grid.node == node,
          "parallel.hierarchical_collectives = always: trees over training.sum_grain = ",
          policy.sum_grain,
          " leaves don't allow to sum all ranks of a node first; expected a larger grain, or auto");
  if (grid.node == 1) grid.node = 0;
  return grid;
}

void require_division(const Policy& policy, int ranks) {
  const int tensor = policy.tensor_ranks;
  const int group = policy.shard_group > 0 ? policy.shard_group : ranks;
  require(tensor >= 1 && group % tensor == 0, "parallel.tensor = ", tensor, " does not divide the ",
          group, " ranks of a shard group");
  require(policy.leaves >= 1 && policy.leaves % (ranks / tensor) == 0, "a global batch of ",
          policy.leaves, " leaves can't be shared evenly by ", ranks / tensor,
          tensor > 1 ? " tensor groups" : " ranks");
}

void require_tensor_in_node(const Policy& policy, int nodes, int ranks_per_node) {
  const int tensor = policy.tensor_ranks;
  if (tensor == 1 || nodes <= 1 || policy.rank_order != RankOrder::tensor_in_node) return;
  if (ranks_per_node > 0 && ranks_per_node % tensor == 0) return;
  throw Error(text("parallel.tensor = ", tensor, " does not divide the ",
                   ranks_per_node > 0 ? text(ranks_per_node, " ranks") : "ranks",
                   " of each node, and tensor ranks on several nodes exchange activations over the "
                   "network in every block; expected a divisor, or parallel.rank_order = "
                   "tensor_first to allow it"));
}

std::string describe_ranks(const Grid& grid) {
  const auto axis = [&](Axis one) { return text(name(one), " ", grid.size(one)); };
  std::string text = grid.shard_first ? axis(Axis::shard) + ", " + axis(Axis::tensor)
                                      : axis(Axis::tensor) + ", " + axis(Axis::shard);
  text += ", " + axis(Axis::replicate);
  return text + (grid.stages() > 1 ? ", " + axis(Axis::pipeline) : "") + "; neighbours first";
}

bool may_have_levels(const Grid& grid, int ranks_per_node) {
  Grid on_nodes = grid;
  on_nodes.node = ranks_per_node;
  return on_nodes.has_levels();
}

}  // namespace ostrakon::plan
