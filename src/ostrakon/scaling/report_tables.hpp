// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <ostrakon/scaling/results.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::scaling {

/// A table of a report: cells as text, the first column to the left, all others to the right.
struct ReportTable {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

/// "strong scaling of quickstart.yaml": the title.
std::string report_title(const Study& study);

/// What was done, as a paragraph for each.
std::vector<std::string> report_facts(const Collected& collected);

/// Steps, rates, speedup and efficiency with intervals; the predicted step where there is one.
ReportTable speed_table(const std::vector<ScalingPoint>& points);
/// Factors relative to the base, their product, and the measured efficiency.
ReportTable factor_table(const std::vector<ScalingPoint>& points);
/// Where a step's time goes, in per cent; predicted ones below the measured.
ReportTable share_table(const std::vector<ScalingPoint>& points);

/// What the words of the tables mean, a line each: word, meaning.
std::vector<std::pair<std::string, std::string>> report_words();

/// In the order of named_shares: a prediction is of ranks that compute equally long.
std::array<double, 6> predicted_shares(const PredictedStep& step);

bool has_prediction(const std::vector<ScalingPoint>& points);

}  // namespace ostrakon::scaling
