// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <limits>
#include <vector>

namespace ostrakon::test {

template <class To, class From>
std::vector<To> converted(const std::vector<From>& values) {
  return std::vector<To>(values.begin(), values.end());
}

/// Returns the largest |a - b| / max(1, |b|); infinity for NaN or unequal sizes.
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
