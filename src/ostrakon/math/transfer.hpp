// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/view.hpp>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/stream.hpp>
#endif

namespace ostrakon::math {

/// Sets an array to zero, in the order of `exec`.
template <class T>
void clear(const Exec& exec, View<T*> device) {
  if (LaunchCount::takes_one("clear")) return;
#if OSTRAKON_HAS_DEVICE
  ostrakon::device::clear(stream_of(exec), device.data(),
                          static_cast<std::size_t>(device.size()) * sizeof(T));
#else
  const ObservedKernel observed("clear");
  Kokkos::deep_copy(exec, device.kokkos(), T(0));
#endif
}

// Copies between host memory and `Memory`. They throw Error unless both arrays have the same size.
// A is T or const T. begin_...() are asynchronous, in the order of `exec`: the host's array must
// not be used until then. The others are done when the call returns.

template <class A, class T>
void begin_copy_to_device(const Exec& exec, HostView<A*> host, View<T*> device) {
  static_assert(std::is_same<std::remove_const_t<A>, T>::value, "copies do not convert");
  require_equal_sizes("copy_to_device", host.size(), device.size());
#if OSTRAKON_HAS_DEVICE
  if (host.size() > 0)
    ostrakon::device::copy_to_device(stream_of(exec), host.data(), device.data(),
                                     static_cast<std::size_t>(host.size()) * sizeof(T));
#else
  Kokkos::deep_copy(exec, device.kokkos(), host.kokkos());
#endif
}

template <class A, class T>
void begin_copy_to_host(const Exec& exec, View<A*> device, HostView<T*> host) {
  static_assert(std::is_same<std::remove_const_t<A>, T>::value, "copies do not convert");
  require_equal_sizes("copy_to_host", device.size(), host.size());
#if OSTRAKON_HAS_DEVICE
  if (host.size() > 0)
    ostrakon::device::copy_to_host(stream_of(exec), device.data(), host.data(),
                                   static_cast<std::size_t>(host.size()) * sizeof(T));
#else
  Kokkos::deep_copy(exec, host.kokkos(), device.kokkos());
#endif
}

template <class A, class T>
void copy_to_device(const Exec& exec, HostView<A*> host, View<T*> device) {
  begin_copy_to_device(exec, host, device);
  exec.fence();
}

template <class A, class T>
void copy_to_host(const Exec& exec, View<A*> device, HostView<T*> host) {
  begin_copy_to_host(exec, device, host);
  exec.fence();
}

}  // namespace ostrakon::math
