// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostrakon/device/api.hpp>
#include <string>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

/// Memory of the device, not initialised. Throws Error where there is not enough.
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

/// Host memory that the device copies from and to directly, not initialised.
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

/// The memory of this rank's device. What others hold, this process's libraries among them, is not
/// free.
struct MemoryInfo {
  std::int64_t free = 0;
  std::int64_t total = 0;
};
MemoryInfo memory_info();

/// Devices that this process sees; 0 where the runtime finds none.
int count();
/// The one in use.
int current();
void use(int device);
/// Tells it from all others of its host, whatever numbers processes give them.
std::string identity();

}  // namespace ostrakon::device

#endif
