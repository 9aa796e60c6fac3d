// SPDX-License-Identifier: Apache-2.0
#pragma once

// The differences between Kokkos 3.4 and Kokkos 5 are handled only here.

#include <Kokkos_Core.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ostrakon/device/api.hpp>
#include <ostrakon/math/kernel_observer.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <type_traits>
#if defined(OSTRAKON_FAKE_DEVICE)
#include <fake_device/exec.hpp>
#endif

namespace ostrakon {

/// Execution and memory space of kernels. All other spaces derive from these two.
#if defined(OSTRAKON_FAKE_DEVICE)
using Exec = device::FakeExec;
#else
using Exec = Kokkos::DefaultExecutionSpace;
#endif
using Memory = Exec::memory_space;
/// The Kokkos space that kernels run on.
using KernelSpace = Kokkos::DefaultExecutionSpace;

// Whether kernels have their device form: 1 or 0. The macro is for the preprocessor, as CUDA allows
// no kernel inside `if constexpr`; other code uses `on_device`. With OSTRAKON_DEVICE_KERNELS
// (CMake: Ostrakon_DEVICE_KERNELS) kernels have this form on Kokkos' host backend, for tests.
// `has_device` is whether there is a device: kernels of the fake device have the host form.
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA) || \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_HIP) ||  \
    defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_SYCL) || defined(OSTRAKON_DEVICE_KERNELS)
#define OSTRAKON_ON_DEVICE 1
#else
#define OSTRAKON_ON_DEVICE 0
#endif
constexpr bool on_device = OSTRAKON_ON_DEVICE == 1;
#if !defined(OSTRAKON_DEVICE_KERNELS)
static_assert(on_device == !std::is_same<KernelSpace, Kokkos::DefaultHostExecutionSpace>::value,
              "OSTRAKON_ON_DEVICE does not know Kokkos's default execution space");
#endif

// Whether matrix products run on a device: 1 or 0. It is 0 if only kernels have the device form.
#if OSTRAKON_ON_DEVICE && !defined(OSTRAKON_DEVICE_KERNELS)
#define OSTRAKON_PRODUCTS_ON_DEVICE 1
#else
#define OSTRAKON_PRODUCTS_ON_DEVICE 0
#endif
constexpr bool products_on_device = OSTRAKON_PRODUCTS_ON_DEVICE == 1;

// 16-bit tiles in registers, see matrix_tile.hpp: whether a warp's lanes share a tile, and whether
// there are tiles at all: 1 or 0.
#if defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA) && !defined(KOKKOS_ARCH_KEPLER) && \
    !defined(KOKKOS_ARCH_MAXWELL) && !defined(KOKKOS_ARCH_PASCAL) &&                   \
    !defined(KOKKOS_ARCH_VOLTA) && !defined(KOKKOS_ARCH_TURING75)
#define OSTRAKON_WARP_TILES 1
#else
#define OSTRAKON_WARP_TILES 0
#endif
#if OSTRAKON_WARP_TILES || defined(OSTRAKON_DEVICE_KERNELS)
#define OSTRAKON_MATRIX_TILES 1
#else
#define OSTRAKON_MATRIX_TILES 0
#endif

constexpr bool has_matrix_tiles = OSTRAKON_MATRIX_TILES == 1;

// 1 while the compiler generates device code for a function that also runs on the host.
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__) || defined(__SYCL_DEVICE_ONLY__)
#define OSTRAKON_IN_DEVICE_CODE 1
#else
#define OSTRAKON_IN_DEVICE_CODE 0
#endif

/// Returns the value of another type, of the same size, that has the bits of `from`.
template <class To, class From>
KOKKOS_INLINE_FUNCTION To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable<To>::value &&
                    std::is_trivially_copyable<From>::value,
                "bits are taken as a type of the same size");
  To to;
#if defined(__HIP__)  // on a device std::memcpy does not exist, and HIP's memcpy loops over bytes
  __builtin_memcpy(&to, &from, sizeof to);
#else  // CUDA's compiler makes a register of this, and a loop over bytes of the other
  std::memcpy(&to, &from, sizeof to);
#endif
  return to;
}

/// Number of threads that kernels of the host use in this process: with OpenMP from OMP_NUM_THREADS
/// or a flag of Kokkos, with Serial 1.
inline int host_threads() { return Kokkos::DefaultHostExecutionSpace().concurrency(); }

/// Whether host code may access `Memory`, which some devices share with the host.
constexpr bool memory_is_host_accessible = !has_device;

#if OSTRAKON_HAS_DEVICE
/// Returns the stream of `exec`.
inline device::StreamHandle stream_of(const Exec& exec) {
#if defined(OSTRAKON_FAKE_DEVICE)
  return exec.stream();
#elif defined(KOKKOS_ENABLE_DEFAULT_DEVICE_TYPE_CUDA)
  return exec.cuda_stream();
#else
  return exec.hip_stream();
#endif
}
#endif

/// Runs kernels(where) with the execution space for Kokkos: at once, but on the fake device in
/// stream order, and not in a LaunchCount. `name`: a literal, by which they are listed. `variant`
/// distinguishes kernels that the fake device loads for the same code, such as a library's kernels
/// for products of several shapes.
template <class Kernels>
void launch([[maybe_unused]] const Exec& exec, const char* name, const Kernels& kernels,
            [[maybe_unused]] std::uint64_t variant = 0) {
  if (math::LaunchCount::takes_one(name)) return;
#if defined(OSTRAKON_FAKE_DEVICE)
  device::give(
      exec, [kernels] { kernels(KernelSpace()); }, variant);
#else
  const math::ObservedKernel observed(name);
  kernels(exec);
#endif
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

/// a b + c. Compilers fuse no product with a sum by themselves in host code (-ffp-contract=off), as
/// which ones they choose depends on what they inline. Kernels say which are fused, by this. It
/// rounds once if the library is built for a processor that does so in one instruction
/// (OSTRAKON_FMA); otherwise twice, as the C library's fma() takes long.
template <class T>
KOKKOS_INLINE_FUNCTION T multiply_add(T a, T b, T c) {
#if defined(OSTRAKON_FMA)
  constexpr bool fused = true;
#else
  constexpr bool fused = on_device;
#endif
  if constexpr (fused)
    return fma(a, b, c);
  else
    return a * b + c;
}
}  // namespace math

}  // namespace ostrakon
