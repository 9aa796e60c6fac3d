// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <ostrakon/math/view.hpp>
#include <random>
#include <vector>

namespace ostrakon::test {

/// An array in `Memory`, made from and read back into host vectors, so that tests of kernels run on
/// a device as they stand. Unless told otherwise it begins as NaN where its type has one, which
/// shows where a kernel reads what it should write.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t size) : DeviceArray(size, unwritten()) {}
  DeviceArray(std::int64_t size, T value) : DeviceArray(std::vector<T>(size, value)) {}
  explicit DeviceArray(const std::vector<T>& values) : view_("test array", values.size()) {
    assign(values);
  }

  static T unwritten() {
    return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T(0);
  }

  View<T*> view() const { return device_view(view_); }
  operator View<T*>() const { return view(); }
  operator View<const T*>() const { return view(); }
  View<T**> matrix(std::int64_t rows, std::int64_t columns) const {
    return view().matrix(rows, columns);
  }
  T* data() const { return view_.data(); }
  std::int64_t size() const { return static_cast<std::int64_t>(view_.extent(0)); }

  /// Overwrites all of it; `values` has its size.
  void assign(const std::vector<T>& values) const {
    Kokkos::deep_copy(view_, HostArray(values.data(), values.size()));
  }
  /// What is there now, all kernels before this call done.
  std::vector<T> host() const {
    std::vector<T> values(view_.extent(0));
    Kokkos::fence();
    Kokkos::deep_copy(MutableHostArray(values.data(), values.size()), view_);
    return values;
  }

 private:
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  using HostArray = Kokkos::View<const T*, Kokkos::HostSpace, Unmanaged>;
  using MutableHostArray = Kokkos::View<T*, Kokkos::HostSpace, Unmanaged>;
  Kokkos::View<T*, Memory> view_;
};

/// `count` values between -1 and 1, always the same for a seed.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(static_cast<double>(generator() >> 11) * 0x1p-52 - 1);
  return values;
}

}  // namespace ostrakon::test
