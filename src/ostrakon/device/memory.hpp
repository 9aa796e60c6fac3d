// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/device/api.hpp>
#include <string>
#include <utility>

#if OSTRAKON_HAS_DEVICE

namespace ostrakon::device {

/// Memory of the device, not initialised. Throws Error where there is not enough.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  explicit DeviceBytes(std::int64_t bytes);
  DeviceBytes(DeviceBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceBytes();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Host memory that the device copies from and to directly, not initialised.
class PinnedBytes {
 public:
  PinnedBytes() = default;
  explicit PinnedBytes(std::int64_t bytes);
  PinnedBytes(PinnedBytes&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedBytes& operator=(PinnedBytes&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~PinnedBytes();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Of this rank's device. What others hold, this process's libraries among them, is not free.
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
