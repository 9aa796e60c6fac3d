// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// What one rank computes, sends and copies in a second.
struct Rates {
  double flops = 1e14;
  double bytes_inside_nodes = 250e9;
  double bytes_across_nodes = 25e9;
  double bytes_copied = 25e9;   ///< between host and device memory
  double bytes_on_host = 12e9;  ///< arrays that the host goes over, each counted once
};

/// Memory that a rank has.
struct Room {
  std::int64_t device_bytes = 0;
  std::int64_t host_bytes = std::numeric_limits<std::int64_t>::max();
};

/// Settings to choose from: a policy, and the model as it is with them.
struct Candidate {
  const ModelDescription* model = nullptr;  ///< of the caller
  Policy policy;
  /// Index of one before that is chosen instead where it fits at no more cost, or -1: what has less
  /// overlap, or more on the host, only to take less memory.
  int rather = -1;
};

/// A candidate's figures, of one rank in a step.
struct Fit {
  int candidate = -1;
  std::int64_t arena_bytes = 0;  ///< of a run in device memory: training, evaluation and export
  std::int64_t host_arena_bytes = 0;    ///< the same in host memory
  double flops = 0.0;                   ///< with all that is computed twice
  std::int64_t bytes_inside_nodes = 0;  ///< as in Report
  std::int64_t bytes_across_nodes = 0;
  std::int64_t bytes_copied = 0;  ///< either way
  std::int64_t bytes_on_host = 0;
  /// Each of these but the arenas divided by its rate, added: as if nothing overlapped. An estimate
  /// to sort by.
  double seconds = 0.0;
};

struct Fits {
  std::vector<Fit> best;  ///< of least seconds first, of these the smallest arenas
  /// Where none fits: of those with room on the host the one with the smallest arena; without a
  /// candidate where there is none.
  Fit smallest;
  // Where some fit, all candidates are in one of these.
  std::int64_t planned = 0;     ///< candidates of which a step was planned
  std::int64_t too_large = 0;   ///< that by their least arenas alone do not fit
  std::int64_t too_slow = 0;    ///< that by their least seconds alone take longer than the best
  std::int64_t unneeded = 0;    ///< that take no less than what is chosen instead, see Candidate
  std::int64_t impossible = 0;  ///< that can't be planned
};

/// At most this much of a run's arena is sure without planning a step: what lives from step to
/// step, and what must be there while each unit's backward of the last micro-batch runs. Takes time
/// in proportion to the number of units. Throws Error as build_step_plan.
std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy);

/// The `most` cheapest candidates whose arenas fit into `room`: exactly those that planning all of
/// them would find. Of several whose steps are the same, the first. Leaves out those that can't be
/// planned; throws the Error of the first where that is all of them.
///
/// Candidates whose least arenas are too large are not planned. The others are planned in the order
/// of the least seconds that they can take, by what they compute and copy, which is known before,
/// until no more than these cost more than the last of the `most`; and memory is laid out only for
/// plans that may yet be among them.
Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               const Room& room, const Rates& rates, std::size_t most);

}  // namespace ostrakon::plan
