// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/base/files/shared_memory.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::runtime {

/// The one allocation of a run in a memory space: planned memory of the device, or pinned host
/// memory; or, if not pinned, host memory that a device reaches only through copies. It is not
/// initialised, so that pages are placed near the rank that first writes them.
class Arena {
 public:
  /// An arena of no bytes allocates nothing. `shared`: whether host memory can be mapped by other
  /// processes; its pages are then taken at once, near the calling thread.
  explicit Arena(std::int64_t bytes, plan::Space space = plan::Space::device, bool pinned = true,
                 bool shared = false);
  /// Ends the poisoning by an executor in a sanitizer build.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Null if there are no bytes.
  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  /// The memory that other processes can map; of no bytes where they can't.
  SharedMemory& shared() { return shared_; }

 private:
  // Only the member for the arena's space owns memory.
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
