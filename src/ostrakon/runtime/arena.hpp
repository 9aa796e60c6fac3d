// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/base/shared_memory.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/step_plan.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::runtime {

/// The one allocation of a run in a memory space: planned memory in that of the device, or in
/// pinned host memory; or, where it shall not be pinned, in host memory that a device reaches
/// through copies only. Not initialised, so that pages are placed near the rank that first writes
/// them.
class Arena {
 public:
  /// An arena of no bytes allocates nothing. `shared`: where it is a host's memory, such that other
  /// processes can map it; its pages are taken at once then, near the calling thread.
  explicit Arena(std::int64_t bytes, plan::Space space = plan::Space::device, bool pinned = true,
                 bool shared = false);
  /// Forgets what an executor in a sanitizer build has forbidden.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Null where there are no bytes.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// What other processes can map; of no bytes where they can't.
  SharedMemory& shared() { return shared_; }

 private:
  // Only the one of the arena's space owns anything.
#if OSTRAKON_HAS_DEVICE
  device::DeviceBytes device_;
  device::PinnedBytes pinned_;
#endif
  SharedMemory shared_;
  Kokkos::View<char*, Kokkos::HostSpace> host_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace ostrakon::runtime
