// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/device_memory.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/device/memory.hpp>

namespace ostrakon::train {

std::string DeviceMemoryUse::describe() const {
  return text(format_bytes(all()), " besides (before the arena ", format_bytes(before),
              ", communicators ", format_bytes(communication), ", streams and products ",
              format_bytes(computing), ", Kokkos' own ", format_bytes(kokkos), " included)");
}

std::int64_t device_bytes_in_use() {
#if OSTRAKON_HAS_DEVICE
  const device::MemoryInfo info = device::memory_info();
  return info.total - info.free;
#else
  return 0;
#endif
}

}  // namespace ostrakon::train
