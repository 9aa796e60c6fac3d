// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/math/view.hpp>
#include <random>
#include <vector>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::test {

/// An array in `Memory`, copied from and to host vectors, so that tests of kernels also run on a
/// device. By default it is filled with NaN, if its type has one, so that a kernel that reads its
/// output is detected.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t size) : DeviceArray(size, unwritten()) {}
  DeviceArray(std::int64_t size, T value) : DeviceArray(std::vector<T>(size, value)) {}
  explicit DeviceArray(const std::vector<T>& values)
      : size_(static_cast<std::int64_t>(values.size())) {
    // An array without elements is not null either.
#if OSTRAKON_HAS_DEVICE
    const std::int64_t bytes = size_ * static_cast<std::int64_t>(sizeof(T));
    memory_ = std::make_shared<device::DeviceBytes>(std::max<std::int64_t>(bytes, 1));
#else
    memory_ = std::make_shared<std::vector<T> >(std::max<std::size_t>(values.size(), 1));
#endif
    assign(values);
  }

  static T unwritten() {
    return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T(0);
  }

  View<T*> view() const { return {data(), size_}; }
  operator View<T*>() const { return view(); }
  operator View<const T*>() const { return view(); }
  View<T**> matrix(std::int64_t rows, std::int64_t columns) const {
    return view().matrix(rows, columns);
  }
  T* data() const { return reinterpret_cast<T*>(memory_->data()); }
  std::int64_t size() const { return size_; }

  /// Overwrites the whole array; `values` must have its size.
  void assign(const std::vector<T>& values) const {
    math::copy_to_device(Exec(), host_view(values), view());
  }
  /// Waits for all kernels and returns the content.
  std::vector<T> host() const {
    std::vector<T> values(static_cast<std::size_t>(size_));
    Kokkos::fence();
    math::copy_to_host(Exec(), view(), host_view(values));
    return values;
  }

 private:
  std::int64_t size_;
  // Copies of a DeviceArray share its memory.
#if OSTRAKON_HAS_DEVICE
  std::shared_ptr<device::DeviceBytes> memory_;
#else
  std::shared_ptr<std::vector<T> > memory_;
#endif
};

/// Returns `count` values between -1 and 1 that depend on the seed alone.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(static_cast<double>(generator() >> 11) * 0x1p-52 - 1);
  return values;
}

}  // namespace ostrakon::test
