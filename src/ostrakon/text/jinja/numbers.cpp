// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostrakon/text/jinja/text.hpp>
#include <ostrakon/text/jinja/value.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// Removes the underscores that Python allows between digits; nothing if one is elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  const auto is_digit = [&](std::size_t i) {
    return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return result;
}

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view all(buffer, static_cast<std::size_t>(end.ptr - buffer));
  std::string result;
  if (all.front() == '-') {
    result = "-";
    all.remove_prefix(1);
  }
  const std::size_t mark = all.find('e');
  const int exponent = std::atoi(std::string(all.substr(mark + 1)).c_str());
  std::string digits(all.substr(0, mark));
  if (digits.size() > 1) digits.erase(1, 1);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    result += digits[0];
    if (count > 1) result += "." + digits.substr(1);
    result += exponent < 0 ? "e-" : "e+";
    const std::string power = std::to_string(std::abs(exponent));
    return result + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return result + "0." + std::string(-exponent - 1, '0') + digits;
  if (count <= exponent + 1) return result + digits + std::string(exponent + 1 - count, '0') + ".0";
  return result + digits.substr(0, exponent + 1) + "." + digits.substr(exponent + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view text, int base) {
  if (base < 2 || base > 36) fail("int: base ", base, "; expected 2 to 36");
  text = strip(text, {}, Side::both);
  if (!is_ascii(text)) fail("int of text outside of ASCII is not implemented");
  bool negative = false;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    negative = text.front() == '-';
    text.remove_prefix(1);
  }
  const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  bool prefixed = false;
  if (letter != '\0' && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter) {
    text.remove_prefix(2);
    if (text.front() == '_') text.remove_prefix(1);
    prefixed = true;
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty() || (prefixed && text.empty())) return std::nullopt;
  std::uint64_t magnitude = 0;
  const char* end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, magnitude, base);
  if (parsed.ptr != end && parsed.ec != std::errc::result_out_of_range) return std::nullopt;
  if (parsed.ec == std::errc::invalid_argument || digits->front() == '-') return std::nullopt;
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (parsed.ec == std::errc::result_out_of_range || magnitude > most)
    fail("integers of more than 64 bits are not implemented");
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  text = strip(text, {}, Side::both);
  if (!is_ascii(text)) fail("float of text outside of ASCII is not implemented");
  auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  const std::size_t first = digits->front() == '+' ? 1 : 0;
  if (first == 1 && digits->size() > 1 && ((*digits)[1] == '-' || (*digits)[1] == '+'))
    return std::nullopt;
  double value = 0;
  const char* end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data() + first, end, value);
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument ||
      digits->back() == ')')  // "nan(1)"
    return std::nullopt;
  // Python reads what is too large as infinity and what is too small as 0.
  if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(digits->c_str(), nullptr);
  return value;
}

}  // namespace ostrakon::texts::jinja
