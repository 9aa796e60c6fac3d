// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Bytes that each rank of a host, or of a device, takes of one memory, and that are available to
/// all of them.
struct MemoryNeed {
  std::string where;  ///< " in device memory", or "" if there is one memory
  std::int64_t planned = 0;
  std::int64_t process = 0;  ///< memory besides the planned one
  std::int64_t available = 0;
  /// Sum over all ranks that share the memory, if they don't all plan the same; else 0.
  std::int64_t planned_by_all = 0;
  int of_device = 0;  ///< ranks that share the device whose memory it is; 0: it is the host's
};

/// Returns the arithmetic of the first of `needs` that is too large for that many ranks of a host;
/// "" if there is none.
std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks_of_host);

/// Host memory that every process needs besides the arena: libraries, message buffers, the program
/// itself, scratch of kernels of all threads but the first.
std::int64_t process_bytes();

/// Throws CollectiveError with the arithmetic where the ranks of this rank's host, or those that
/// share its device, need more memory than is available. `parameters`: elements of the model.
/// Collective.
void require_memory(const Programs& programs, const plan::Policy& policy, std::int64_t parameters,
                    mesh::Mesh& mesh);

/// Device memory in use besides the arena, in bytes, as the device's runtime reports it, which
/// includes other users of the device. Zeros in builds without a device.
struct DeviceMemoryUse {
  std::int64_t before = 0;  ///< memory in use before the arena: driver, Kokkos, other processes
  std::int64_t communication = 0;  ///< communicators of the communication library
  std::int64_t computing = 0;      ///< streams of Kokkos, and the library of matrix products
  /// Bytes that Kokkos reports: mostly a part of `computing`. Known in all builds.
  std::int64_t kokkos = 0;

  std::int64_t all() const { return before + communication + computing; }
  /// Returns "512.00 MiB besides (..., Kokkos' own 704.00 KiB included)".
  std::string describe() const;
};

/// Device memory in use now; 0 in builds without a device.
std::int64_t device_bytes_in_use();

}  // namespace ostrakon::train
