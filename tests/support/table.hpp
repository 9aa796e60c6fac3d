// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

// Tables as text: a row per line, so that a case is one line, whatever is in it.

namespace ostrakon::testing {

/// Returns the parts of `text` between the separators, without blanks around them.
inline std::vector<std::string> split(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t first = part.find_first_not_of(" \n");
    parts.push_back(first == std::string::npos
                        ? ""
                        : part.substr(first, part.find_last_not_of(" \n") + 1 - first));
    begin = end + separator.size();
  }
  return parts;
}

/// Returns the rows of a table, each split at '|'. A line that begins with '|' continues the row
/// before; empty lines are left out.
inline std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : split(table, "\n")) {
    if (line.empty()) continue;
    if (line[0] != '|') rows.emplace_back();
    for (const std::string& field : split(line[0] == '|' ? line.substr(1) : line, "|"))
      rows.back().push_back(field);
  }
  return rows;
}

/// Returns the words of `text`, which blanks and line ends separate.
inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Whether `text` has the parts of `said`, which ".." separates, in this order.
inline bool says(const std::string& text, const std::string& said) {
  std::size_t at = 0;
  for (const std::string& part : split(said, "..")) {
    at = text.find(part, at);
    if (at == std::string::npos) return false;
    at += part.size();
  }
  return true;
}

}  // namespace ostrakon::testing
