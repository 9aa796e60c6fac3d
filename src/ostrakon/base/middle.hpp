// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace ostrakon {

/// The middle of some values and their usual distance from it: the median, and 1.4826 times the
/// median absolute deviation, which is the standard deviation of normal values. Neither depends on
/// how far off a minority is.
struct Middle {
  double median = 0.0, deviation = 0.0;

  /// A value is an outlier below least() or above most(): by the share `floor` of the median, and
  /// by five deviations. `floor` is what values without a fault may differ by.
  double least(double floor) const;
  double most(double floor) const;
};

/// The side on which values are looked for that are outliers.
enum class Outliers { low, high };

/// `values`: at least one. The median of an even number is that of the middle two which lets one of
/// two values be an outlier: the upper one for low outliers.
Middle middle_of(std::vector<double> values, Outliers outliers = Outliers::low);

}  // namespace ostrakon
