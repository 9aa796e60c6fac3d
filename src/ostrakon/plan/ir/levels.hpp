// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>

namespace ostrakon::plan {

/// The grid of a step for `stages` stages of `ranks` ranks each, with all collectives in one level.
Grid one_level(int ranks, const Policy& policy, int stages = 1);

/// The grid of a step, in which collectives have one or two levels, as Policy::hierarchical says.
/// The choice is one for all units, as it decides where shards lie. It changes no bit: two levels
/// are used only if the number of ranks summed inside a node is a power of two, and they have no
/// more leaves than one tree (Policy::sum_grain). Throws Error where Hierarchical::always is not
/// possible.
Grid make_grid(const ModelDescription& model, int ranks, const Policy& policy, int stages = 1);

/// Throws Error where tensor ranks do not divide a shard group, or leaves do not divide evenly over
/// the groups of ranks that compute them.
void require_division(const Policy& policy, int ranks);

/// Throws Error where tensor ranks would be on several nodes, and RankOrder does not allow it.
/// `ranks_per_node`: of each node; 0 where nodes don't have equally many neighbours.
void require_tensor_in_node(const Policy& policy, int nodes, int ranks_per_node);

/// Returns the numbering of ranks: "tensor 4, shard 2, replicate 8; neighbours first".
std::string describe_ranks(const Grid& grid);

/// Whether collectives over any axis of `grid` could have two levels on nodes of `ranks_per_node`
/// neighbours.
bool may_have_levels(const Grid& grid, int ranks_per_node);

}  // namespace ostrakon::plan
