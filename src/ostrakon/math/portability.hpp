// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one place that handles the differences of Kokkos 3.4 and Kokkos 5.

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace ostrakon {

/// Where kernels run and where their data are. Everything else derives from these two.
using Exec = Kokkos::DefaultExecutionSpace;
using Memory = Exec::memory_space;

// Whether kernels run on a device: 1 or 0. For the preprocessor where it must choose, as CUDA
// allows no kernel inside `if constexpr`; everywhere else `on_device`. With OSTRAKON_DEVICE_KERNELS
// (CMake: Ostrakon_DEVICE_KERNELS) kernels have the form that they have on a device, and run on
// Kokkos' host backend: for tests.
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA) || \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP) ||  \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_SYCL) || defined(OSTRAKON_DEVICE_KERNELS)
#define OSTRAKON_ON_DEVICE 1
#else
#define OSTRAKON_ON_DEVICE 0
#endif
constexpr bool on_device = OSTRAKON_ON_DEVICE == 1;
#if !defined(OSTRAKON_DEVICE_KERNELS)
static_assert(on_device == !std::is_same<Exec, Kokkos::DefaultHostExecutionSpace>::value,
              "OSTRAKON_ON_DEVICE does not know Kokkos's default execution space");
#endif

// Whether matrix products run on a device: 1 or 0, and not where only kernels have that form.
#if OSTRAKON_ON_DEVICE && !defined(OSTRAKON_DEVICE_KERNELS)
#define OSTRAKON_PRODUCTS_ON_DEVICE 1
#else
#define OSTRAKON_PRODUCTS_ON_DEVICE 0
#endif
constexpr bool products_on_device = OSTRAKON_PRODUCTS_ON_DEVICE == 1;

// 1 where the compiler makes code for a device, not for the host, of a function that runs on both.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__SYCL_DEVICE_ONLY__)
#define OSTRAKON_IN_DEVICE_CODE 1
#else
#define OSTRAKON_IN_DEVICE_CODE 0
#endif

/// Host memory that a device copies from and to directly: pinned. Where there is no device, any.
#if !OSTRAKON_ON_DEVICE || defined(OSTRAKON_DEVICE_KERNELS)
using HostMemory = Kokkos::HostSpace;
#elif KOKKOS_VERSION >= 40000
using HostMemory = Kokkos::SharedHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)
using HostMemory = Kokkos::CudaHostPinnedSpace;
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP)
using HostMemory = Kokkos::Experimental::HIPHostPinnedSpace;
#else
using HostMemory = Kokkos::HostSpace;
#endif

/// Whether host code may follow a pointer into `Memory`, which some devices share with the host.
constexpr bool memory_is_host_accessible =
    Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible;

/// `count` instances of Exec that run at the same time, as far as this Kokkos makes such.
inline std::vector<Exec> make_instances([[maybe_unused]] int count) {
#if KOKKOS_VERSION >= 40000
  if (count > 1)
    return Kokkos::Experimental::partition_space(
        Exec(), std::vector<int>(static_cast<std::size_t>(count), 1));
#endif
  return {Exec()};
}

namespace math {
// Kokkos moved its mathematical functions out of Experimental in 3.7.
#if KOKKOS_VERSION >= 30700
using Kokkos::exp;
using Kokkos::log;
using Kokkos::pow;
using Kokkos::sqrt;
#else
using Kokkos::Experimental::exp;
using Kokkos::Experimental::log;
using Kokkos::Experimental::pow;
using Kokkos::Experimental::sqrt;
#endif
#if KOKKOS_VERSION >= 40000
using Kokkos::fma;
#else
using std::fma;
#endif
}  // namespace math

}  // namespace ostrakon
