// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/yaml_text.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>

namespace ostrakon::config {
namespace {

constexpr char escape = '~';
constexpr const char* hexadecimal = "0123456789ABCDEF";

void append_escaped(std::string& out, char c) {
  const auto byte = static_cast<unsigned char>(c);
  out += escape;
  out += hexadecimal[byte >> 4];
  out += hexadecimal[byte & 15];
}

void append(std::string& out, char c) {
  if (c == escape || c == '#' || static_cast<unsigned char>(c) >= 0x80) {
    append_escaped(out, c);
  } else {
    out += c;
  }
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

/// Copies the quoted text that starts at `line[at]`; returns the place after it, or npos if the
/// quote is not closed on this line.
std::size_t copy_quoted(const std::string& line, std::size_t at, std::string& out) {
  const char quote = line[at];
  out += quote;
  for (++at; at < line.size(); ++at) {
    if (quote == '"' && line[at] == '\\' && at + 1 < line.size()) {
      out += line[at++];
    } else if (line[at] == quote) {
      out += quote;
      if (quote == '"' || at + 1 == line.size() || line[at + 1] != quote) return at + 1;
      ++at;  // two single quotes stand for one
    }
    append(out, line[at]);
  }
  return std::string::npos;
}

/// The digits of an integer that is too long for a double, where that is all that stands at
/// `line[at]` as a value; 0 elsewhere.
std::size_t long_integer(const std::string& line, std::size_t at) {
  constexpr std::size_t exact = 15;  // digits that a double holds
  const std::size_t first = line[at] == '-' || line[at] == '+' ? at + 1 : at;
  const std::size_t end = std::min(line.find_first_not_of("0123456789", first), line.size());
  if (end - first <= exact) return 0;
  const std::size_t next = std::min(line.find_first_not_of(" \t", end), line.size());
  const bool is_all = next == line.size() || line[next] == ',' || line[next] == '}' ||
                      (line[next] == '#' && next > end);
  return is_all ? end - at : 0;
}

/// One line without its comment; `place` begins the messages of errors.
std::string prepare_line(const std::string& line, const std::string& place) {
  std::string out;
  char before = '\0';  // the last character that is not blank
  std::size_t at = 0;
  while (at < line.size()) {
    const char c = line[at];
    const bool starts =
        before == '\0' || before == ':' || before == ',' || before == '{' || before == '[';
    if (c == '#' && (at == 0 || is_blank(line[at - 1]))) break;
    require(c != '!' || !starts, place,
            "'!' begins a type tag, which decks don't have; put text "
            "that begins with '!' in quotes");
    if ((c == '"' || c == '\'') && starts) {
      at = copy_quoted(line, at, out);
      require(at != std::string::npos, place, "the quote ", c, " is not closed on its line");
      before = c;
      continue;
    }
    // Escaped, it stays the text that it is: see is_long_integer.
    if (starts && before != '\0' && long_integer(line, at) > 0)
      append_escaped(out, c);
    else
      append(out, c);
    if (!is_blank(c)) before = c;
    ++at;
  }
  while (!out.empty() && is_blank(out.back())) out.pop_back();
  return out;
}

void require_text(const std::string& line, const std::string& place) {
  for (const char c : line) {
    const auto byte = static_cast<unsigned char>(c);
    require((byte >= 0x20 && byte != 0x7F) || c == '\t', place, "byte 0x", hexadecimal[byte >> 4],
            hexadecimal[byte & 15], " is not text");
  }
}

int hexadecimal_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::string prepare_yaml(const std::string& text, const std::string& name) {
  std::string out;
  std::size_t begin = text.rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0;  // a byte-order mark
  for (long number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const std::string place = ostrakon::text(name, ": not valid YAML: line ", number, ": ");
    require_text(line, place);
    out += prepare_line(line, place) + '\n';
    begin = end + 1;
  }
  return out;
}

std::string restore_text(const std::string& prepared) {
  std::string out;
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    const bool whole = prepared[i] == escape && i + 2 < prepared.size();
    const int high = whole ? hexadecimal_digit(prepared[i + 1]) : -1;
    const int low = whole ? hexadecimal_digit(prepared[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += prepared[i];
    }
  }
  return out;
}

bool is_long_integer(const std::string& prepared) {
  const std::string first = prepared.substr(0, 3);
  const std::string original = restore_text(prepared);
  return first.size() == 3 && first[0] == escape && original.size() + 2 == prepared.size() &&
         long_integer(original, 0) == original.size();
}

std::string quote_line(const std::string& text, long number) {
  std::size_t begin = 0;
  for (long line = 1; line < number && begin < text.size(); ++line) {
    begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  }
  std::string line = text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
  line.erase(line.find_last_not_of(' ') + 1);
  constexpr std::size_t longest = 70;
  if (line.size() > longest) line = line.substr(0, longest) + "...";
  return '"' + line + '"';
}

}  // namespace ostrakon::config
