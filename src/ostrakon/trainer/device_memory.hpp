// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::train {

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
