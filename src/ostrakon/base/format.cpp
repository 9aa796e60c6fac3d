// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/format.hpp>

#include <array>
#include <cmath>

namespace ostrakon {

namespace {

/// Returns |value|, also of the smallest number, whose negative does not fit into an int64.
std::uint64_t magnitude(std::int64_t value) {
  const std::uint64_t bits = static_cast<std::uint64_t>(value);
  return value < 0 ? 0 - bits : bits;
}

/// A character of UTF-8 (RFC 3629); 0 bytes: not valid.
struct Character {
  std::size_t bytes = 0;
  std::uint32_t code = 0;
};

Character read_character(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const std::uint32_t first = byte(at);
  if (first < 0x80) return {1, first};
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return {};
  std::uint32_t code = first & (0x7fU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3fU);
  }
  const std::uint32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {bytes, code};
}

/// Whether a terminal may act on a character: control characters (of ASCII and of ISO 6429), line
/// separators, and characters that change the direction of the text around them.
bool is_terminal_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

std::string escape(const std::string& text, bool lines) {
  std::string out;
  out.reserve(text.size());
  const auto add_bytes = [&](std::size_t at, std::size_t bytes) {
    for (std::size_t i = at; i < at + bytes; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      out += "\\x";
      out += "0123456789abcdef"[byte >> 4];
      out += "0123456789abcdef"[byte & 15];
    }
  };
  for (std::size_t at = 0; at < text.size();) {
    const Character character = read_character(text, at);
    const std::size_t bytes = character.bytes > 0 ? character.bytes : 1;
    const char c = text[at];
    if (c == '\n' || c == '\t')
      out += lines ? std::string(1, c) : c == '\n' ? "\\n" : "\\t";
    else if (character.bytes == 0 || is_terminal_control(character.code))
      add_bytes(at, bytes);
    else
      out.append(text, at, bytes);
    at += bytes;
  }
  return out;
}

/// Returns the last position up to `at` that does not cut a UTF-8 character.
std::size_t character_start(const std::string& text, std::size_t at) {
  if (at >= text.size()) return text.size();
  std::size_t start = at;
  while (start > 0 && at - start < 3 && (static_cast<unsigned char>(text[start]) & 0xc0U) == 0x80)
    --start;
  return start;
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 6> units = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  const std::string sign = bytes < 0 ? "-" : "";
  const std::uint64_t size = magnitude(bytes);
  if (size < 1024) return sign + std::to_string(size) + " B";
  std::size_t unit = 0;
  double value = static_cast<double>(size) / 1024.0;
  // 1023.995 would be shown as 1024.00, so the next unit begins there.
  while (unit + 1 < units.size() && value >= 1023.995) {
    value /= 1024.0;
    ++unit;
  }
  // The digits are written by hand, as printf's decimal point depends on the locale.
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

std::string printable(const std::string& text) { return escape(text, false); }

std::string printable_lines(const std::string& text) { return escape(text, true); }

std::string shown(const std::string& text) {
  constexpr std::size_t most = 100;
  std::string escaped;
  for (const char c : printable(character_start(text, most) < text.size()
                                    ? text.substr(0, character_start(text, most)) + "..."
                                    : text)) {
    if (c == '"') escaped += '\\';
    escaped += c;
  }
  return '"' + escaped + '"';
}

std::string without_middle(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t begin = character_start(text, most / 2);
  const std::size_t end = character_start(text, text.size() - most / 2);
  return text.substr(0, begin) + "\n... (" + format_count(static_cast<std::int64_t>(end - begin)) +
         " bytes left out) ...\n" + text.substr(end);
}

std::size_t first_not_utf8(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t bytes = read_character(text, at).bytes;
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

namespace {

std::string fit_to_screen(const std::string& message) {
  constexpr std::size_t most = 2000;  // bytes
  return without_middle(printable_lines(message), most);
}

}  // namespace

std::string error_message(const std::string& name, const std::string& what) {
  return fit_to_screen(name + ": error: " + what);
}

std::string error_message(const std::string& name, int rank, const std::string& what) {
  return fit_to_screen(name + ": error on rank " + std::to_string(rank) + ": " + what);
}

}  // namespace ostrakon
