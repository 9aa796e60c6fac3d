// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace ostrakon::scaling {

/// Returns the t that |T| does not exceed with a probability of 95 %, for Student's t distribution
/// with `degrees` (>= 1) degrees of freedom. To nine digits.
double student_t_95(int degrees);

/// A mean with its 95 % confidence interval, mean - half_width to mean + half_width.
struct Interval {
  double mean = 0.0;
  double half_width = 0.0;  ///< 0 unless is_known
  bool is_known = false;    ///< whether there are enough values for an interval
  double relative() const { return mean > 0.0 ? half_width / mean : 0.0; }
};

/// The interval of independent values: by Student's t with one degree of freedom less than there
/// are values. `values` must not be empty.
Interval interval_of(const std::vector<double>& values);

/// The interval of consecutive steps, which need not be independent: by batch means (Law,
/// Simulation Modeling and Analysis, chapter 9). Batches of 1, 2, 4, ... neighbouring values are
/// tried, leaving out the first values that fill no batch. The first size counts whose means have a
/// lag-1 autocorrelation of at most 1.645 / sqrt(batches), which white noise exceeds in 5 % of
/// cases. There are at least `least_batches` batches (if there are as many values): if none of
/// these sizes is good enough, the largest counts. The mean is over all values. `values` must not
/// be empty.
Interval interval_of_steps(const std::vector<double>& values);
constexpr std::size_t least_batches = 6;

/// The correlation of neighbouring values; 0 for less than three values, or equal ones.
double lag_one_autocorrelation(const std::vector<double>& values);

double median(std::vector<double> values);

/// Returns the indices of values far above the median: by more than 5 times the scaled median
/// absolute deviation (times 1.4826, a normal distribution's standard deviation) and by more than
/// 10 % of the median.
std::vector<std::size_t> find_outliers(const std::vector<double>& values);

}  // namespace ostrakon::scaling
