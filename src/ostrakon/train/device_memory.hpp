// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::train {

/// Device memory in use besides the arena, in bytes, as the device's runtime reports it: what
/// others that use the device take meanwhile is in it, too. Zeros in builds without a device.
struct DeviceMemoryUse {
  std::int64_t before = 0;         ///< the arena: the driver, Kokkos, other processes
  std::int64_t communication = 0;  ///< what its library takes for communicators
  std::int64_t computing = 0;      ///< Kokkos for its streams, the library that multiplies matrices
  /// What Kokkos reports, to the byte: a part of `computing`, mostly. Known in all builds.
  std::int64_t kokkos = 0;

  std::int64_t all() const { return before + communication + computing; }
  /// "512.00 MiB besides (..., Kokkos' own 704.00 KiB included)".
  std::string describe() const;
};

/// What is in use now; 0 in builds without a device.
std::int64_t device_bytes_in_use();

}  // namespace ostrakon::train
