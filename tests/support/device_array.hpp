// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/math/portability.hpp>
#include <random>
#include <vector>

namespace ostrakon::test {

/// An array where kernels run, made from and read back into host vectors.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t size, T value = T(0))
      : DeviceArray(std::vector<T>(size, value)) {}
  DeviceArray(const std::vector<T>& values)  // NOLINT: converts on purpose
      : view_("test array", values.size()) {
    Kokkos::deep_copy(view_, HostView(values.data(), values.size()));
  }

  T* data() const { return view_.data(); }

  /// What is there now, all kernels before this call done.
  std::vector<T> host() const {
    std::vector<T> values(view_.extent(0));
    Kokkos::fence();
    Kokkos::deep_copy(MutableHostView(values.data(), values.size()), view_);
    return values;
  }

 private:
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using HostView = Kokkos::View<const T*, Kokkos::HostSpace, Unmanaged>;
  using MutableHostView = Kokkos::View<T*, Kokkos::HostSpace, Unmanaged>;
  Kokkos::View<T*, Memory> view_;
};

/// Numbers between -1 and 1, the same for the same seed.
template <class T>
std::vector<T> random_values(std::size_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(2.0 * static_cast<double>(engine()) / 4294967295.0 - 1.0);
  return values;
}

}  // namespace ostrakon::test
