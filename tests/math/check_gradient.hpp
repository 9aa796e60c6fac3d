// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ostrakon::test {

/// Compares `gradient` with central finite differences (fourth order) of `function` for every
/// element of x:
///
///   |analytic - numeric| <= tolerance * max(|analytic|, |numeric|, scale)
///
/// where scale is the root mean square of the gradient, or 1e-5 of the function if that is larger:
/// below it differences consist of rounding errors. `function` reads this x, of which one element
/// at a time is changed and restored, by `relative_step`: a small one passes few kinks of it. Use
/// as EXPECT_TRUE(gradient_agrees(...)).
inline ::testing::AssertionResult gradient_agrees(const std::string& name, std::vector<double>& x,
                                                  const std::vector<double>& gradient,
                                                  const std::function<double()>& function,
                                                  double tolerance = 1e-6,
                                                  double relative_step = 1e-3) {
  if (gradient.size() != x.size())
    return ::testing::AssertionFailure()
           << name << ": gradient has " << gradient.size() << " elements, expected " << x.size();
  double squares = 0;
  for (double value : gradient) squares += value * value;
  const double scale =
      std::max({std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, x.size()))),
                1e-5 * std::abs(function()), 1e-300});

  double worst_error = 0;
  double worst_numeric = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < x.size() && !std::isnan(worst_error); ++i) {
    const double kept = x[i];
    const double step = relative_step * std::max(1.0, std::abs(kept));
    const auto at = [&](double offset) {
      x[i] = kept + offset;
      return function();
    };
    const double numeric =
        (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
    x[i] = kept;
    const double error = std::abs(gradient[i] - numeric) /
                         std::max({scale, std::abs(gradient[i]), std::abs(numeric)});
    if (!(error <= worst_error)) {  // also for NaN
      worst_error = error;
      worst_numeric = numeric;
      worst = i;
    }
  }
  if (worst_error <= tolerance) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << name << ": gradient element " << worst << " of " << x.size() << " is "
         << gradient[worst] << ", finite differences give " << worst_numeric << ", relative error "
         << worst_error << ", expected at most " << tolerance;
}

/// Returns sum(weights * outputs), a scalar whose gradient with respect to the outputs is
/// `weights`.
inline double weighted_sum(const std::vector<double>& outputs, const std::vector<double>& weights) {
  double sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) sum += outputs[i] * weights[i];
  return sum;
}

}  // namespace ostrakon::test
