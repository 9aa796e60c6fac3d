// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/train/programs.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What each rank of a host, or of a device, takes of one memory, and what all of them can get
/// there, in bytes.
struct MemoryNeed {
  std::string where;  ///< " in device memory", or nothing where there is but one
  std::int64_t planned = 0;
  std::int64_t process = 0;  ///< besides what is planned
  std::int64_t available = 0;
  /// Planned by all ranks that take it, where these don't plan the same; else 0.
  std::int64_t planned_by_all = 0;
  int of_device = 0;  ///< ranks that share the device whose memory it is; 0: it is the host's
};

/// The arithmetic of the first of `needs` that is too large for that many ranks of a host; empty
/// where none is.
std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks_of_host);

/// Collective. Throws AgreedError with the arithmetic where the ranks of this rank's host, or those
/// that share its device, need more than that has left. `parameters`: elements of the model.
void require_memory(const Programs& programs, const plan::Policy& policy, std::int64_t parameters,
                    mesh::Mesh& mesh);

}  // namespace ostrakon::train
