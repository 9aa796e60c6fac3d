// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// What one rank computes and sends in a second.
struct Rates {
  double flops = 1e14;
  double bytes_inside_nodes = 250e9;
  double bytes_across_nodes = 25e9;
};

/// Settings to choose from: a policy, and the model as it is with them.
struct Candidate {
  const ModelDescription* model = nullptr;  ///< of the caller
  Policy policy;
  /// Index of one before that is chosen instead where it fits at no more cost, or -1: what has less
  /// overlap only to take less memory.
  int rather = -1;
};

/// A candidate's figures, of one rank in a step.
struct Fit {
  int candidate = -1;
  std::int64_t arena_bytes = 0;  ///< of a run in device memory: training, evaluation and export
  double flops = 0.0;            ///< with all that is computed twice
  std::int64_t bytes_inside_nodes = 0;  ///< as in Report
  std::int64_t bytes_across_nodes = 0;
  /// flops, bytes inside and bytes across nodes, each divided by its rate, added: as if nothing
  /// overlapped. An estimate to sort by.
  double seconds = 0.0;
};

struct Fits {
  std::vector<Fit> best;       ///< of least seconds first, of these the smallest arenas
  Fit smallest;                ///< where none fits: the candidate with the smallest arena
  std::int64_t planned = 0;    ///< candidates of which a step was planned
  std::int64_t too_large = 0;  ///< candidates that by their least arena alone do not fit
};

/// At most this much of a run's arena is sure without planning a step: what lives from step to
/// step, and what must be there while each unit's backward of the last micro-batch runs. Takes time
/// in proportion to the number of units. Throws Error as build_step_plan.
std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy);

/// The `most` cheapest candidates whose arena is at most `bytes`: exactly those that planning all
/// of them would find. Of several whose steps are the same, the first. Leaves out those that can't
/// be planned; throws the Error of the first where that is all of them.
///
/// Candidates whose least arena is too large are not planned. The others are planned in the order
/// of their floating-point operations, which are known before, until no more than these cost more
/// than the last of the `most`; and memory is laid out only for plans that may yet be among them.
Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               std::int64_t bytes, const Rates& rates, std::size_t most);

}  // namespace ostrakon::plan
