// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/device/memory.hpp>

#if OSTRAKON_HAS_DEVICE

#include <ostrakon/base/error.hpp>

namespace ostrakon::device {
namespace {

void check_room(Status status, const char* call, std::int64_t bytes, const char* where) {
  require(status == OSTRAKON_GPU(Success), call, " failed: ", OSTRAKON_GPU(GetErrorString)(status),
          ", for ", bytes, " bytes of ", where);
}

std::byte* bytes_at(void* data) { return static_cast<std::byte*>(data); }

}  // namespace

DeviceBytes::DeviceBytes(std::int64_t bytes) {
  void* data = nullptr;
  check_room(OSTRAKON_GPU(Malloc)(&data, static_cast<std::size_t>(bytes)),
             OSTRAKON_GPU_NAME(Malloc), bytes, "device memory");
  data_.reset(bytes_at(data));
}
void DeviceBytes::Free::operator()(std::byte* data) const {
  static_cast<void>(OSTRAKON_GPU(Free)(data));
}

PinnedBytes::PinnedBytes(std::int64_t bytes) {
  void* data = nullptr;
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
  check_room(hipHostMalloc(&data, static_cast<std::size_t>(bytes), 0), "hipHostMalloc", bytes,
             "pinned host memory");
#else
  check_room(cudaHostAlloc(&data, static_cast<std::size_t>(bytes), 0), "cudaHostAlloc", bytes,
             "pinned host memory");
#endif
  data_.reset(bytes_at(data));
}
void PinnedBytes::Free::operator()(std::byte* data) const {
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
  static_cast<void>(hipHostFree(data));
#else
  static_cast<void>(cudaFreeHost(data));
#endif
}

MemoryInfo memory_info() {
  std::size_t left = 0, total = 0;
  check(OSTRAKON_GPU(MemGetInfo)(&left, &total), OSTRAKON_GPU_NAME(MemGetInfo));
  return {static_cast<std::int64_t>(left), static_cast<std::int64_t>(total)};
}

int count() {
  int devices = 0;
  return OSTRAKON_GPU(GetDeviceCount)(&devices) == OSTRAKON_GPU(Success) ? devices : 0;
}

int current() {
  int device = 0;
  check(OSTRAKON_GPU(GetDevice)(&device), OSTRAKON_GPU_NAME(GetDevice));
  return device;
}

void use(int device) { check(OSTRAKON_GPU(SetDevice)(device), OSTRAKON_GPU_NAME(SetDevice)); }

std::string identity() {
  char name[64] = {};
  check(OSTRAKON_GPU(DeviceGetPCIBusId)(name, sizeof name, current()),
        OSTRAKON_GPU_NAME(DeviceGetPCIBusId));
  return name;
}

}  // namespace ostrakon::device

#endif
