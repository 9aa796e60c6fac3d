// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ostrakon::config {

/// The longest time that a deck takes, in seconds: 100 years.
constexpr double longest_wall_time = 100.0 * 366.0 * 86400.0;

/// Parses a time in the formats of batch systems: minutes, minutes:seconds, hours:minutes:seconds,
/// days-hours, days-hours:minutes or days-hours:minutes:seconds, all of them integers. Returns
/// seconds; nothing for another format, or if it exceeds longest_wall_time.
std::optional<double> parse_wall_time(const std::string& text);

/// Formats whole seconds: "0", "23:50:00", "2-00:00:00".
std::string format_wall_time(double seconds);

}  // namespace ostrakon::config
