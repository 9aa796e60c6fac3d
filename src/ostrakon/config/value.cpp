// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/value.hpp>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <ostrakon/base/format.hpp>
#include <sstream>
#include <string>
#include <utility>

namespace ostrakon::config {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double no_number = std::numeric_limits<double>::quiet_NaN();

/// Reads an integer with the prefix 0x or 0o.
bool reads_as_prefixed(const std::string& text, double& number) {
  const std::string prefix = text.substr(0, 2);
  if ((prefix != "0x" && prefix != "0o") || text.size() == 2) return false;
  const std::string digits = "0123456789abcdef";
  const std::size_t base = prefix == "0x" ? 16 : 8;
  number = 0.0;
  for (std::size_t at = 2; at < text.size(); ++at) {
    const std::size_t digit =
        digits.find(static_cast<char>(std::tolower(static_cast<unsigned char>(text[at]))));
    if (digit >= base) return false;
    number = number * static_cast<double>(base) + static_cast<double>(digit);
  }
  return true;
}

/// Reads .inf, -.inf and .nan.
bool reads_as_no_number(const std::string& text, double& number) {
  const bool has_sign = !text.empty() && (text[0] == '-' || text[0] == '+');
  const std::string word = text.substr(has_sign ? 1 : 0);
  if (word == ".inf" || word == ".Inf" || word == ".INF") {
    number = text[0] == '-' ? -infinity : infinity;
    return true;
  }
  number = no_number;
  return text == ".nan" || text == ".NaN" || text == ".NAN";
}

bool reads_as_number(const std::string& text, double& number) {
  if (reads_as_prefixed(text, number) || reads_as_no_number(text, number)) return true;
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos) return false;
  if (text.size() <= 15 && text.find_first_not_of("0123456789") == std::string::npos) {
    number = static_cast<double>(std::stoll(text));
    return true;
  }
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  stream >> std::noskipws >> number;
  // For a number that is too large the stream fails and returns a value other than 0; for one that
  // is too small it does not fail.
  if (!stream.eof() || (stream.fail() && number == 0.0)) return false;
  if (stream.fail()) number = number < 0.0 ? -infinity : infinity;
  const bool is_zero = text.find_first_of("123456789") >= text.find_first_of("eE");
  if (number == 0.0 && !is_zero) number = no_number;
  return true;
}

/// Turns 1e-05 into 1e-5.
std::string without_exponent_zeros(std::string text) {
  const std::size_t e = text.find('e');
  while (e != std::string::npos && text.size() > e + 3 && text[e + 2] == '0') text.erase(e + 2, 1);
  return text;
}

struct Character {
  std::size_t bytes;
  std::string escape;  ///< escape in a double-quoted YAML scalar; empty: none
};

Character first_character(const std::string& text) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const auto two_digits = [](unsigned char code) {
    const char* const digits = "0123456789ABCDEF";
    return std::string("\\x") + digits[code >> 4] + digits[code & 15];
  };
  if (text[0] == '"' || text[0] == '\\') return {1, std::string("\\") + text[0]};
  if (byte(0) < 0x20 || byte(0) == 0x7F) return {1, two_digits(byte(0))};
  if (byte(0) < 0x80) return {1, ""};
  if (first_not_utf8(text) == 0) return {1, "\\uFFFD"};
  if (byte(0) == 0xC2 && byte(1) < 0xA0) return {2, two_digits(byte(1))};
  // These characters are line breaks in YAML 1.1, or not allowed in YAML.
  static const std::pair<const char*, const char*> others[] = {{"\xE2\x80\xA8", "\\u2028"},
                                                               {"\xE2\x80\xA9", "\\u2029"},
                                                               {"\xEF\xBB\xBF", "\\uFEFF"},
                                                               {"\xEF\xBF\xBE", "\\uFFFE"},
                                                               {"\xEF\xBF\xBF", "\\uFFFF"}};
  for (const auto& [character, escape] : others)
    if (text.compare(0, 3, character) == 0) return {3, escape};
  return {byte(0) >= 0xF0 ? 4U : byte(0) >= 0xE0 ? 3U : 2U, ""};
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string list_of(const std::vector<std::string>& items) {
  std::string all;
  for (const std::string& item : items) all += (all.empty() ? "[" : ", ") + ostrakon::shown(item);
  return without_middle(all + "]", 300);
}

}  // namespace

Value Value::of(bool boolean) {
  Value value;
  value.kind = Kind::boolean;
  value.boolean = boolean;
  return value;
}

Value Value::of(double number) {
  Value value;
  value.kind = Kind::number;
  value.number = number;
  return value;
}

Value Value::of(const std::string& text) {
  Value value;
  value.kind = Kind::text;
  value.text = text;
  return value;
}

Value Value::of(Kind kind) {
  Value value;
  value.kind = kind;
  return value;
}

bool Value::is_scalar() const {
  return kind == Kind::boolean || kind == Kind::number || kind == Kind::text;
}

std::optional<std::int64_t> Value::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = kind == Kind::number && number == std::floor(number) &&
                    number >= static_cast<double>(least) && number <= static_cast<double>(most);
  return fits ? std::optional<std::int64_t>(static_cast<std::int64_t>(number)) : std::nullopt;
}

std::string Value::shown() const {
  switch (kind) {
    case Kind::boolean:
      return boolean ? "true" : "false";
    case Kind::number:
      return text.empty() ? format_number(number) : without_middle(text, 100);
    case Kind::text:
      return ostrakon::shown(text);
    case Kind::list:
      return items.empty() ? "a list" : "a list " + list_of(items);
    case Kind::section:
      return "a section";
    case Kind::nothing:
      break;
  }
  return "nothing";
}

Value parse_scalar(const std::string& text) {
  if (text == "~" || text == "null" || text == "Null" || text == "NULL")
    return Value::of(Value::Kind::nothing);
  const std::string lower = lower_case(text);
  if (lower == "true" || lower == "yes") return Value::of(true);
  if (lower == "false" || lower == "no") return Value::of(false);
  double number = 0.0;
  if (!reads_as_number(text, number)) return Value::of(text);
  Value value = Value::of(number);
  value.text = text;
  return value;
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const auto [bytes, escape] = first_character(text.substr(at, 4));
    out += escape.empty() ? text.substr(at, bytes) : escape;
    at += bytes;
  }
  return out + '"';
}

std::string format_number(double number) {
  // Integers are written without an exponent, as that is easier to read, and without a stream, as
  // they are frequent.
  if (std::fabs(number) < 1e15 && number == std::floor(number))
    return (std::signbit(number) ? "-" : "") +
           std::to_string(static_cast<std::int64_t>(std::fabs(number)));
  std::string shortest;
  for (int digits = 1; digits <= 17; ++digits) {
    std::ostringstream stream;
    stream.imbue(std::locale::classic());
    stream.precision(digits);
    stream << number;
    shortest = without_exponent_zeros(stream.str());
    double again = 0.0;
    if (reads_as_number(shortest, again) && again == number) break;
  }
  return shortest;
}

}  // namespace ostrakon::config
