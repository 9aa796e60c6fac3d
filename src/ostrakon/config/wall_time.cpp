// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/wall_time.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace ostrakon::config {
namespace {

/// Parses "1:02:03" to {1, 2, 3}; returns nothing for a text of another form.
std::vector<double> numbers_between_colons(const std::string& text) {
  std::vector<double> numbers(1, 0.0);
  int digits = 0;
  for (const char c : text) {
    if (c == ':') {
      if (digits == 0) return {};
      numbers.push_back(0.0);
      digits = 0;
    } else {
      if (c < '0' || c > '9' || ++digits > 12) return {};
      numbers.back() = 10.0 * numbers.back() + (c - '0');
    }
  }
  if (digits == 0) return {};
  return numbers;
}

}  // namespace

std::optional<double> parse_wall_time(const std::string& text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  std::vector<double> parts = numbers_between_colons(has_days ? text.substr(dash + 1) : text);
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  double seconds = 0.0;
  if (has_days) {
    const std::vector<double> days = numbers_between_colons(text.substr(0, dash));
    if (days.size() != 1) return std::nullopt;
    seconds = 86400.0 * days[0];
    parts.resize(3, 0.0);  // after days, the first number is hours
  }
  const double units[] = {3600.0, 60.0, 1.0};
  const std::size_t first = parts.size() == 3 ? 0 : 1;  // a single number is minutes
  for (std::size_t i = 0; i < parts.size(); ++i) seconds += units[first + i] * parts[i];
  if (seconds > longest_wall_time) return std::nullopt;
  return seconds;
}

std::string format_wall_time(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole == 0) return "0";
  const std::int64_t days = whole / 86400;
  char clock[16];
  std::snprintf(clock, sizeof clock, "%02d:%02d:%02d", static_cast<int>(whole / 3600 % 24),
                static_cast<int>(whole / 60 % 60), static_cast<int>(whole % 60));
  return (days > 0 ? std::to_string(days) + "-" : "") + clock;
}

}  // namespace ostrakon::config
