// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace ostrakon::config {

/// Seconds; the longest time that a deck takes: 100 years.
constexpr double longest_wall_time = 100.0 * 366.0 * 86400.0;

/// Seconds of a time as batch systems take it: minutes, minutes:seconds, hours:minutes:seconds,
/// days-hours, days-hours:minutes or days-hours:minutes:seconds, all of them whole numbers. None
/// where the text is nothing of these, or longer than longest_wall_time.
std::optional<double> parse_wall_time(const std::string& text);

/// "0", or such as "23:50:00" and "2-00:00:00"; of whole seconds.
std::string format_wall_time(double seconds);

}  // namespace ostrakon::config
