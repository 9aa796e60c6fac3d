// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/value.hpp>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <locale>
#include <ostrakon/base/format.hpp>
#include <sstream>
#include <string>

namespace ostrakon::config {
namespace {

bool reads_as_number(const std::string& text, double& number) {
  // Hexadecimal, "nan" and "inf" are text to Teuchos, and so they are here.
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos) return false;
  if (text.size() <= 15 && text.find_first_not_of("0123456789") == std::string::npos) {
    number = static_cast<double>(std::stoll(text));
    return true;
  }
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  stream >> std::noskipws >> number;
  return !stream.fail() && stream.eof() && std::isfinite(number);
}

/// 1e-05 -> 1e-5
std::string without_exponent_zeros(std::string text) {
  const std::size_t e = text.find('e');
  while (e != std::string::npos && text.size() > e + 3 && text[e + 2] == '0') text.erase(e + 2, 1);
  return text;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
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
      return "a list";
    case Kind::section:
      return "a section";
    case Kind::nothing:
      break;
  }
  return "nothing";
}

Value parse_scalar(const std::string& text) {
  const std::string lower = lower_case(text);
  if (lower == "true" || lower == "yes") return Value::of(true);
  if (lower == "false" || lower == "no") return Value::of(false);
  double number = 0.0;
  if (!reads_as_number(text, number)) return Value::of(text);
  Value value = Value::of(number);
  value.text = text;
  return value;
}

std::string format_number(double number) {
  // Integers are easier to read without an exponent, and too frequent for a stream each.
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
