// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/scaling/statistics.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ostrakon::scaling {
namespace {

/// The continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes,
/// 6.4).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double c = 1.0;
  double d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
  double fraction = d;
  for (int m = 1; m <= 500; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m));
    d = 1.0 / away_from_zero(1.0 + even * d);
    c = away_from_zero(1.0 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0));
    d = 1.0 / away_from_zero(1.0 + odd * d);
    c = away_from_zero(1.0 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1.0) < 1e-15) break;
  }
  return fraction;
}

/// The regularized incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0.0) return 0.0;
  if (x >= 1.0) return 1.0;
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  // The fraction converges fast only on this side of the distribution's mean.
  return x < (a + 1.0) / (a + b + 2.0) ? front * beta_fraction(a, b, x) / a
                                       : 1.0 - front * beta_fraction(b, a, 1.0 - x) / b;
}

/// Returns P(|T| > t).
double two_sided_tail(double t, int degrees) {
  return incomplete_beta(0.5 * degrees, 0.5, degrees / (degrees + t * t));
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the means of batches of `size` neighbours; the first values that fill no batch are left
/// out.
std::vector<double> batch_means(const std::vector<double>& values, std::size_t size) {
  std::vector<double> means;
  for (std::size_t at = values.size() % size; at < values.size(); at += size)
    means.push_back(std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(at),
                                    values.begin() + static_cast<std::ptrdiff_t>(at + size), 0.0) /
                    static_cast<double>(size));
  return means;
}

}  // namespace

double student_t_95(int degrees) {
  double low = 0.0, high = 13.0;  // with one degree of freedom it is 12.7
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (two_sided_tail(middle, degrees) > 0.05 ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

Interval interval_of(const std::vector<double>& values) {
  Interval interval;
  interval.mean = mean_of(values);
  if (values.size() < 2) return interval;
  double squares = 0.0;
  for (const double value : values) squares += (value - interval.mean) * (value - interval.mean);
  const auto count = static_cast<double>(values.size());
  interval.half_width = student_t_95(static_cast<int>(values.size()) - 1) *
                        std::sqrt(squares / (count - 1.0) / count);
  interval.is_known = true;
  return interval;
}

Interval interval_of_steps(const std::vector<double>& values) {
  std::vector<double> batches = values;
  for (std::size_t size = 2; values.size() / size >= least_batches; size *= 2) {
    if (lag_one_autocorrelation(batches) <= 1.645 / std::sqrt(static_cast<double>(batches.size())))
      break;
    batches = batch_means(values, size);
  }
  Interval interval = interval_of(batches);
  interval.mean = mean_of(values);
  return interval;
}

double lag_one_autocorrelation(const std::vector<double>& values) {
  if (values.size() < 3) return 0.0;
  const double mean = mean_of(values);
  double squares = 0.0, products = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    squares += (values[i] - mean) * (values[i] - mean);
    if (i > 0) products += (values[i] - mean) * (values[i - 1] - mean);
  }
  return squares > 0.0 ? products / squares : 0.0;
}

double median(std::vector<double> values) {
  const std::size_t middle = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

std::vector<std::size_t> find_outliers(const std::vector<double>& values) {
  std::vector<std::size_t> found;
  if (values.size() < 5) return found;
  const double middle = median(values);
  std::vector<double> deviations;
  for (const double value : values) deviations.push_back(std::abs(value - middle));
  const double limit = middle + std::max(5.0 * 1.4826 * median(deviations), 0.1 * middle);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] > limit) found.push_back(i);
  return found;
}

}  // namespace ostrakon::scaling
