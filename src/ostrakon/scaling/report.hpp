// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/scaling/results.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// A report of a study in Markdown.
std::string report_markdown(const Collected& collected, const std::vector<ScalingPoint>& points);

/// Makes the report as a page with plots, in one file that needs no other.
std::string report_html(const Collected& collected, const std::vector<ScalingPoint>& points);

/// A row for each size: what the plots show, for other tools.
std::string report_csv(const std::vector<ScalingPoint>& points);

}  // namespace ostrakon::scaling
