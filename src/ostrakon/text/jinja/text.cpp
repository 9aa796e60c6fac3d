// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/jinja/text.hpp>

#include <utf8proc.h>

#include <algorithm>
#include <cctype>
#include <ostrakon/text/jinja/value.hpp>

namespace ostrakon::texts::jinja {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

/// Moves `end` to the begin of the character before it, which it returns.
char32_t previous_character(std::string_view text, std::size_t& end) {
  do {
    --end;
  } while (end > 0 && !begins_character(text[end]));
  std::size_t at = end;
  return next_character(text, at);
}

bool ends_line(char32_t c) {
  return c == '\n' || c == '\r' || c == '\v' || c == '\f' || (c >= 0x1C && c <= 0x1E) ||
         c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool in_any(char32_t c, std::initializer_list<std::pair<char32_t, char32_t>> ranges) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

/// Letters whose upper case is several (SpecialCasing.txt of Unicode), and those whose lower case
/// is, or depends on the word.
bool has_special_upper(char32_t c) {
  return in_any(c, {{0xDF, 0xDF},
                    {0x149, 0x149},
                    {0x1F0, 0x1F0},
                    {0x390, 0x390},
                    {0x3B0, 0x3B0},
                    {0x587, 0x587},
                    {0x1E96, 0x1E9A},
                    {0x1F50, 0x1F56},
                    {0x1F80, 0x1FFC},
                    {0xFB00, 0xFB06},
                    {0xFB13, 0xFB17}});
}
bool has_special_lower(char32_t c) { return c == 0x130 || c == 0x3A3; }

[[noreturn]] void refuse_case(char32_t c) {
  std::string letter;
  append_character(letter, c);
  fail("changing the case of '", letter, "' is not implemented");
}

char32_t upper_of(char32_t c) {
  if (c < 0x80) return static_cast<char32_t>(std::toupper(static_cast<int>(c)));
  if (has_special_upper(c)) refuse_case(c);
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t title_of(char32_t c) {
  if (c < 0x80) return upper_of(c);
  if (has_special_upper(c)) refuse_case(c);
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower_of(char32_t c) {
  if (c < 0x80) return static_cast<char32_t>(std::tolower(static_cast<int>(c)));
  if (has_special_lower(c)) refuse_case(c);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

template <class Change>
std::string changed(std::string_view text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();)
    append_character(result, change(next_character(text, at)));
  return result;
}

void refuse_beyond_ascii(std::string_view text, const char* what) {
  if (!is_ascii(text)) fail(what, " of text outside of ASCII is not implemented");
}

}  // namespace

char32_t next_character(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const char32_t first = byte(at);
  const int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t character = more == 0 ? first : first & (0x3Fu >> more);
  for (int i = 1; i <= more; ++i) character = character << 6 | (byte(at + i) & 0x3Fu);
  at = std::min(text.size(), at + 1 + more);
  return character;
}

void append_character(std::string& text, char32_t c) {
  if (c < 0x80) {
    text += static_cast<char>(c);
    return;
  }
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    next_character(text, at);
    characters.push_back(text.substr(begin, at - begin));
  }
  return characters;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0x80; });
}

std::string_view strip(std::string_view text, const std::optional<std::string>& characters,
                       Side side) {
  const auto removed = [&](char32_t c) {
    if (!characters) return is_space(c);
    for (std::size_t at = 0; at < characters->size();)
      if (next_character(*characters, at) == c) return true;
    return false;
  };
  std::size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    std::size_t at = begin;
    if (!removed(next_character(text, at))) break;
    begin = at;
  }
  while (side != Side::left && end > begin) {
    std::size_t at = end;
    if (!removed(previous_character(text, at))) break;
    end = at;
  }
  return text.substr(begin, end - begin);
}

std::vector<std::string> split(std::string_view text, const std::optional<std::string>& separator,
                               std::int64_t most) {
  std::vector<std::string> parts;
  const auto may_split = [&] { return most < 0 || static_cast<std::int64_t>(parts.size()) < most; };
  if (separator) {
    if (separator->empty()) fail("split: empty separator");
    std::size_t found;
    while (may_split() && (found = text.find(*separator)) != std::string_view::npos) {
      parts.emplace_back(text.substr(0, found));
      text.remove_prefix(found + separator->size());
    }
    parts.emplace_back(text);
    return parts;
  }
  for (text = strip(text, {}, Side::left); !text.empty(); text = strip(text, {}, Side::left)) {
    std::size_t end = 0, at = 0;
    if (may_split()) {
      while (at < text.size() && !is_space(next_character(text, at))) end = at;
    } else {
      end = text.size();
    }
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

std::vector<std::string> split_from_right(std::string_view text,
                                          const std::optional<std::string>& separator,
                                          std::int64_t most) {
  if (most < 0) return split(text, separator, most);
  if (!separator) fail("rsplit at white space with a limit is not implemented");
  if (separator->empty()) fail("rsplit: empty separator");
  std::vector<std::string> parts;
  while (static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t found = text.rfind(*separator);
    if (found == std::string_view::npos) break;
    parts.emplace_back(text.substr(found + separator->size()));
    text = text.substr(0, found);
  }
  parts.emplace_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> split_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at;
    const char32_t c = next_character(text, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keeps_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view with,
                    std::int64_t most) {
  std::string result;
  const auto append = [&result](std::string_view part) {
    if (result.size() + part.size() > longest_text) fail("replace makes a text that is too long");
    result += part;
  };
  std::int64_t count = 0;
  const auto may_replace = [&] { return most < 0 || count < most; };
  if (old.empty()) {
    for (std::size_t at = 0; at < text.size();) {
      if (may_replace()) append(with);
      ++count;
      const std::size_t begin = at;
      next_character(text, at);
      append(text.substr(begin, at - begin));
    }
    if (may_replace()) append(with);
    return result;
  }
  std::size_t found;
  while (may_replace() && (found = text.find(old)) != std::string_view::npos) {
    append(text.substr(0, found));
    append(with);
    text.remove_prefix(found + old.size());
    ++count;
  }
  append(text);
  return result;
}

std::string upper(std::string_view text) { return changed(text, upper_of); }
std::string lower(std::string_view text) { return changed(text, lower_of); }

std::string capitalized(std::string_view text) {
  bool first = true;
  return changed(text, [&first](char32_t c) {
    const bool begins = std::exchange(first, false);
    return begins ? title_of(c) : lower_of(c);
  });
}

std::string titled(std::string_view text) {
  refuse_beyond_ascii(text, "title()");
  bool inside = false;
  return changed(text, [&inside](char32_t c) {
    const bool letter = std::isalpha(static_cast<int>(c)) != 0;
    const bool begins = letter && !inside;
    inside = letter;
    return begins ? upper_of(c) : lower_of(c);
  });
}

std::string words_titled(std::string_view text) {
  bool inside = false;
  return changed(text, [&inside](char32_t c) {
    const bool between = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const bool begins = !between && !inside;
    inside = !between;
    return begins ? upper_of(c) : lower_of(c);
  });
}

bool is_lower(std::string_view text) {
  refuse_beyond_ascii(text, "the case");
  const auto is = [&](auto test) { return std::any_of(text.begin(), text.end(), test); };
  return is([](unsigned char c) { return std::islower(c) != 0; }) &&
         !is([](unsigned char c) { return std::isupper(c) != 0; });
}

bool is_upper(std::string_view text) {
  refuse_beyond_ascii(text, "the case");
  const auto is = [&](auto test) { return std::any_of(text.begin(), text.end(), test); };
  return is([](unsigned char c) { return std::isupper(c) != 0; }) &&
         !is([](unsigned char c) { return std::islower(c) != 0; });
}

std::string repr_of_text(std::string_view text) {
  const bool doubles =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = doubles ? '"' : '\'';
  std::string result(1, quote);
  const auto escape = [&result](char kind, char32_t c, int digits) {
    constexpr char hex[] = "0123456789abcdef";
    result += '\\';
    result += kind;
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) result += hex[c >> shift & 15];
  };
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      result += '\\';
      result += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      append_character(result, c);
    } else if (c < 0x100) {
      escape('x', c, 2);
    } else if (c < 0x10000) {
      escape('u', c, 4);
    } else {
      escape('U', c, 8);
    }
  }
  return result += quote;
}

}  // namespace ostrakon::texts::jinja
