// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

template <class T, class Space>
using UnmanagedArray = Kokkos::View<T*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Copies `count` elements between host memory and `Memory`; done when the call returns.
template <class T>
void copy_to_device(const Exec& exec, const T* host, T* device, std::size_t count) {
  Kokkos::deep_copy(exec, UnmanagedArray<T, Memory>(device, count),
                    UnmanagedArray<const T, Kokkos::HostSpace>(host, count));
  exec.fence();
}

template <class T>
void copy_to_host(const Exec& exec, const T* device, T* host, std::size_t count) {
  Kokkos::deep_copy(exec, UnmanagedArray<T, Kokkos::HostSpace>(host, count),
                    UnmanagedArray<const T, Memory>(device, count));
  exec.fence();
}

}  // namespace ostrakon::math
