// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/train/programs.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What each rank of a host takes of one memory, and what all of them can get there, in bytes.
struct MemoryNeed {
  std::string where;  ///< " in device memory", or nothing where there is but one
  std::int64_t planned = 0;
  std::int64_t process = 0;  ///< besides what is planned
  std::int64_t available = 0;
  /// Planned by all ranks of the host, where these don't plan the same; else 0.
  std::int64_t planned_by_all = 0;
};

/// The arithmetic of the first of `needs` that is too large for that many ranks; empty where none
/// is.
std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks);

/// Collective. Throws AgreedError with the arithmetic where the ranks of this rank's host need more
/// than it or its device has left, and for devices on more than one rank, which have no
/// communication yet. `parameters`: elements of the model.
void require_memory(const Programs& programs, const plan::Policy& policy, std::int64_t parameters,
                    mesh::Mesh& mesh);

}  // namespace ostrakon::train
