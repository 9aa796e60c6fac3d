// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// Zeros; done in the order of `exec`.
template <class T>
void clear(const Exec& exec, View<T*> device) {
  Kokkos::deep_copy(exec, device.kokkos(), T(0));
}

/// Copies an array between host memory and `Memory`; done when the call returns. Throws Error
/// unless both have as many elements. A is T or const T.
template <class A, class T>
void copy_to_device(const Exec& exec, HostView<A*> host, View<T*> device) {
  static_assert(std::is_same<std::remove_const_t<A>, T>::value, "copies do not convert");
  require_equal_sizes("copy_to_device", host.size(), device.size());
  Kokkos::deep_copy(exec, device.kokkos(), host.kokkos());
  exec.fence();
}

template <class A, class T>
void copy_to_host(const Exec& exec, View<A*> device, HostView<T*> host) {
  static_assert(std::is_same<std::remove_const_t<A>, T>::value, "copies do not convert");
  require_equal_sizes("copy_to_host", device.size(), host.size());
  Kokkos::deep_copy(exec, host.kokkos(), device.kokkos());
  exec.fence();
}

}  // namespace ostrakon::math
