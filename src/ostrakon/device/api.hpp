// SPDX-License-Identifier: Apache-2.0
#pragma once

// One set of names for the device runtimes CUDA and HIP, and for the device of host threads on
// which tests run (tests/fake_device), whose functions have CUDA's names. CUDA and HIP differ
// only in the prefix of the functions that are used here:
//
//     device::check(OSTRAKON_GPU(StreamSynchronize)(stream), OSTRAKON_GPU_NAME(StreamSynchronize));

#include <Kokkos_Macros.hpp>

// Whether there is a device with memory and streams of its own: 1 or 0.
#if defined(OSTRAKON_FAKE_DEVICE)
#include <fake_device/runtime.h>
#define OSTRAKON_HAS_DEVICE 1
#define OSTRAKON_GPU(name) cuda##name
#define OSTRAKON_GPU_NAME(name) "cuda" #name
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)
#include <cuda_runtime_api.h>
#define OSTRAKON_HAS_DEVICE 1
#define OSTRAKON_GPU(name) cuda##name
#define OSTRAKON_GPU_NAME(name) "cuda" #name
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
#include <hip/hip_runtime_api.h>
#define OSTRAKON_HAS_DEVICE 1
#define OSTRAKON_GPU(name) hip##name
#define OSTRAKON_GPU_NAME(name) "hip" #name
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_SYCL)
#error "Ostrakon computes on devices by CUDA or HIP, not by SYCL"
#else
#define OSTRAKON_HAS_DEVICE 0
#endif

namespace ostrakon {

/// Whether kernels run on a device with memory and streams of its own.
constexpr bool has_device = OSTRAKON_HAS_DEVICE == 1;

#if OSTRAKON_HAS_DEVICE

namespace device {

using StreamHandle = OSTRAKON_GPU(Stream_t);
using EventHandle = OSTRAKON_GPU(Event_t);
using Status = OSTRAKON_GPU(Error_t);

/// Throws Error with the runtime's own text unless `status` is success. `call` is the function's
/// name.
void check(Status status, const char* call);

}  // namespace device

#endif

}  // namespace ostrakon
