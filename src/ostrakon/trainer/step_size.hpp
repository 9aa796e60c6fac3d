// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>

// This file computes the size of a step, before anything is made for each layer.

namespace ostrakon::train {

struct StepSize {
  std::int64_t parameters = 0;  ///< parameters of the model
  std::int64_t units = 0;  ///< units that are gathered and released as a whole; experts that ranks
                           ///< share count once for each round that they may take
  std::int64_t micro_batches = 0;  ///< micro-batches of each rank

  /// How often a rank computes with a unit; the length of its plan grows with it.
  std::int64_t visits() const { return units * micro_batches; }
};

/// The size of a step. `settings` must be accepted by check_ranks for that number of ranks.
StepSize step_size(const config::Settings& settings, int ranks);

/// Throws Error where the plan of such a step takes more memory than the rest of a process may.
void require_short_plan(const StepSize& size);

/// Throws Error where parameters alone don't fit into the `available` bytes of a host with
/// `host_ranks` of `ranks` ranks.
void require_room_for_parameters(const StepSize& size, int ranks, int host_ranks,
                                 std::int64_t available);

/// Makes both checks before the plan is written, which may take minutes. Memory is checked only if
/// planning takes longer than a moment, as the plan then tells all that a run needs. Throws Error,
/// perhaps on some ranks.
void require_possible_step(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
