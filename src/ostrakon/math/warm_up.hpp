// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// Makes Kokkos allocate what it needs for kernels on `exec`, so that these allocate nothing:
/// Kokkos for CUDA else allocates at each launch of teams, zero bytes of scratch memory.
void warm_up(const Exec& exec);

/// While one exists, the calling thread launches kernels so that the device loads them, not for
/// what they compute. Arrays are there and hold zeros; nothing is sent to other ranks; and where
/// numbers that kernels compute would tell the host what to launch, the host takes others, with
/// which it launches all that there is (OffsetsOnHost).
///
/// Drivers load a kernel, and libraries choose and load theirs, at the first launch. That waits for
/// what runs on the device and holds a lock of the driver, so a rank whose device waits for another
/// rank's message must not launch anything for the first time: it would wait for itself.
class WarmUp {
 public:
  WarmUp() { ++depth; }
  ~WarmUp() { --depth; }
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;

  /// Whether the calling thread is in one.
  static bool runs() { return depth > 0; }

 private:
  static inline thread_local int depth = 0;
};

}  // namespace ostrakon::math
