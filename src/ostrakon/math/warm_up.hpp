// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Makes Kokkos allocate its memory for kernels on `exec` now, so that kernels allocate nothing:
/// otherwise Kokkos for CUDA allocates zero bytes of scratch memory at each launch of teams.
void warm_up(const Exec& exec);

/// While one exists, the calling thread launches kernels only to make the device load them. Arrays
/// exist and hold zeros; nothing is sent to other ranks; where results of kernels determine what
/// the host launches, the host uses other numbers, with which it launches everything
/// (OffsetsOnHost).
///
/// Drivers load a kernel, and libraries choose and load theirs, at the first launch. This waits for
/// running work of the device and holds a lock of the driver. So a rank whose device waits for
/// another rank's message must not launch a new kernel: it would deadlock.
class WarmUp {
 public:
  WarmUp() { ++depth; }
  ~WarmUp() { --depth; }
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Whether the calling thread is in a WarmUp.
  static bool runs() { return depth > 0; }

 private:
  static inline thread_local int depth = 0;
};

}  // namespace ostrakon::math
