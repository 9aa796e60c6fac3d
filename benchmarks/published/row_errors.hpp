// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "published_rows.hpp"

namespace ostrakon::published {

/// Relative errors of some rows.
struct ErrorSummary {
  int rows = 0;
  double mean = 0.0;    ///< of absolute values
  double median = 0.0;  ///< the same
  double most = 0.0;
  double within_tenth = 0.0;  ///< share of rows with 10 % at most
  double bias = 0.0;          ///< mean, with sign
};
ErrorSummary summarize(std::vector<double> errors);

/// A line for each value of `keys`, of all rows that have it.
std::map<std::string, ErrorSummary> summarize_by(
    const std::vector<PublishedRow>& rows, const std::vector<double>& errors,
    const std::function<std::vector<std::string>(const PublishedRow&)>& keys);
std::string header_of_summary(const std::string& what);  ///< of a Markdown table
std::string line_of_summary(const std::string& name, const ErrorSummary& summary);

/// Tokens/s of a rank on `many` ranks, of those on `few`; in per cent.
struct ScalingEfficiency {
  std::string name;
  double measured = 0.0, simulated = 0.0;
};
using SimulatedSeconds = std::function<double(const PublishedRow&)>;
/// Those that sources publish, and that rows tell. `seconds`: of a row, simulated.
std::vector<ScalingEfficiency> scaling_efficiencies(const std::vector<PublishedRow>& rows,
                                                    const SimulatedSeconds& seconds);

}  // namespace ostrakon::published
