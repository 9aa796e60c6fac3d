// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <ostrakon/base/format.hpp>

namespace ostrakon {

namespace {

/// |value|, also of the smallest number, which has no positive counterpart.
std::uint64_t magnitude(std::int64_t value) {
  const std::uint64_t bits = static_cast<std::uint64_t>(value);
  return value < 0 ? 0 - bits : bits;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 6> units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const std::string sign = bytes < 0 ? "-" : "";
  const std::uint64_t size = magnitude(bytes);
  if (size < 1024) return sign + std::to_string(size) + " B";
  std::size_t unit = 0;
  double value = static_cast<double>(size) / 1024.0;
  // 1023.995 would be shown as 1024.00.
  while (unit + 1 < units.size() && value >= 1023.995) {
    value /= 1024.0;
    ++unit;
  }
  // Digits by hand: what printf puts for the decimal point depends on the locale.
  const long long hundredths = std::llround(value * 100.0);
  const std::string fraction = std::to_string(100 + hundredths % 100).substr(1);
  return sign + std::to_string(hundredths / 100) + "." + fraction + " " + units[unit];
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(magnitude(count));
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return count < 0 ? "-" + digits : digits;
}

std::string format_hex(std::uint64_t value) {
  std::string digits(16, '0');
  for (std::size_t i = digits.size(); i-- > 0; value >>= 4)
    digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

}  // namespace ostrakon
