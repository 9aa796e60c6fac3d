// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

#include "published_rows.hpp"

namespace ostrakon::published {

/// What a software stack does otherwise than our planner, as its source code says.
struct Program {
  bool stops_early = false;  ///< recomputation: the last product of a block is not computed again
  bool fused_attention = true;  ///< else two products over all of s x s, and a softmax in memory
  bool overlaps_reductions = true;
  bool hides_updates = false;   ///< the gather of updated parameters, behind the next forward
  bool blocking_sends = false;  ///< between stages: a rank computes nothing meanwhile
  bool has_dropout = false;
  /// Calls in which an update's parameters are sent for each block; at most as many per step as
  /// a shard group has ranks.
  int calls_of_block = 1;
};

Program program_of(const std::string& stack);

/// What is added to a pass of a unit.
struct Extra {
  std::vector<plan::Exchange> exchanges;  ///< between its phases, where these are merged
  double plain_bytes = 0.0;               ///< read and written at the machine's rate, by any stack
};
enum Pass { forward_pass, recompute_pass, backward_pass };
using Extras = std::array<Extra, 3>;

/// The model of a row, its units as the row's program computes them.
struct TheirModel {
  plan::ModelDescription description;
  std::vector<Extras> extras;  ///< of each unit
};
/// `merges_phases`: those of each unit, and the exchanges between them, are one.
TheirModel describe_model(const PublishedRow& row, bool merges_phases);

/// The policy with which a row's steps are planned.
plan::Policy policy_of(const PublishedRow& row, int micro_batches,
                       const plan::ModelDescription& model);

}  // namespace ostrakon::published
