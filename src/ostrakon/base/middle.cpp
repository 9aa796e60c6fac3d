// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/middle.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ostrakon {
namespace {

constexpr double deviations = 5.0;

}  // namespace

double Middle::least(double floor) const {
  return median - std::max(floor * median, deviations * deviation);
}

double Middle::most(double floor) const {
  return median + std::max(floor * median, deviations * deviation);
}

Middle middle_of(std::vector<double> values, Outliers outliers) {
  const auto nth = [&](std::size_t n) {
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n), values.end());
    return values[n];
  };
  const std::size_t lower = (values.size() - 1) / 2, upper = values.size() / 2;
  Middle middle;
  middle.median = nth(outliers == Outliers::low ? upper : lower);
  for (double& value : values) value = std::fabs(value - middle.median);
  constexpr double of_normal_values = 1.4826;
  middle.deviation = of_normal_values * nth(lower);
  return middle;
}

}  // namespace ostrakon
