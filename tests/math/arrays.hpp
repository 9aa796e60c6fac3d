// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <ostrakon/math/portability.hpp>
#include <random>
#include <vector>

namespace ostrakon::test {

/// An array in `Memory`, so that tests of kernels run on a device as they stand. Of floating-point
/// type it begins as NaN, which shows where a kernel reads what it should write.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t size) : DeviceArray(std::vector<T>(size, initial())) {}
  explicit DeviceArray(const std::vector<T>& values) : view_("test", values.size()) {
    assign(values);
  }

  T* data() const { return view_.data(); }

  void assign(const std::vector<T>& values) const {
    Kokkos::deep_copy(view_, HostView(values.data(), values.size()));
  }
  std::vector<T> host() const {
    std::vector<T> values(view_.extent(0));
    Exec().fence();
    Kokkos::deep_copy(MutableHostView(values.data(), values.size()), view_);
    return values;
  }

 private:
  using HostView =
      Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  using MutableHostView =
      Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  static T initial() {
    return std::numeric_limits<T>::has_quiet_NaN ? std::numeric_limits<T>::quiet_NaN() : T(0);
  }
  Kokkos::View<T*, Memory> view_;
};

/// `count` numbers between -1 and 1, always the same for a seed.
template <class T>
std::vector<T> random_values(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<T> values(count);
  for (T& value : values)
    value = static_cast<T>(static_cast<double>(generator() >> 11) * 0x1p-52 - 1);
  return values;
}

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

/// The largest |a - b| / max(1, |b|); NaN counts as infinite, unequal sizes too.
template <class A, class B>
double largest_difference(const std::vector<A>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double expected = static_cast<double>(b[i]);
    const double magnitude = expected < 0 ? -expected : expected;
    double difference = static_cast<double>(a[i]) - expected;
    if (difference < 0) difference = -difference;
    difference /= magnitude > 1 ? magnitude : 1;
    if (!(difference <= largest)) largest = difference;
    if (!(difference == difference)) return std::numeric_limits<double>::infinity();
  }
  return largest;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace ostrakon::test
