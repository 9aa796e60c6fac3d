// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <string>

namespace ostrakon::plan {

/// The axes of a step for `stages` stages of `ranks` ranks each, all collectives in one level.
Grid one_level(int ranks, const Policy& policy, int stages = 1);

/// The same, and whether collectives are in two levels on them, as Policy::hierarchical says. It is
/// one choice for all units, as it decides where shards lie, and changes no bit: what is summed
/// inside a node is a power of two of ranks, and no more leaves than Policy::sum_grain has in a
/// tree; or there is one level. Throws Error where Hierarchical::always is not possible.
Grid make_grid(const ModelDescription& model, int ranks, const Policy& policy, int stages = 1);

/// Throws Error where tensor ranks do not divide a shard group, or the leaves not evenly over
/// groups of ranks that compute them.
void require_division(const Policy& policy, int ranks);

/// Throws Error where tensor ranks would be on several nodes, and RankOrder does not allow it.
/// `ranks_per_node`: of each node, or 0 where they don't have equally many neighbours.
void require_tensor_in_node(const Policy& policy, int nodes, int ranks_per_node);

/// How ranks are numbered: "tensor 4, shard 2, replicate 8; neighbours first".
std::string describe_ranks(const Grid& grid);

/// Whether collectives over any axis of `grid` could be in two levels on nodes of `ranks_per_node`
/// neighbours.
bool may_have_levels(const Grid& grid, int ranks_per_node);

}  // namespace ostrakon::plan
