// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostrakon/device/api.hpp>
#include <string>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

/// Device memory, not initialised. Throws Error if there is not enough.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(std::int64_t bytes);

  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Pinned host memory, not initialised: the device copies from and to it directly.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(std::int64_t bytes);

  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

/// Memory of this rank's device. Memory of other processes, and of this process's libraries, is not
/// free.
struct MemoryInfo {
  std::int64_t free = 0;
  std::int64_t total = 0;
};
MemoryInfo memory_info();

/// Devices that this process sees; 0 where the runtime finds none.
int count();
/// The device in use.
int current();
void use(int device);
/// A text that identifies the device among all of its host, independent of the numbers that
/// processes give devices.
std::string identity();

}  // namespace ostrakon::device

#endif
