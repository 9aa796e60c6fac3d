// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>
#include <iterator>
#include <string>

namespace ostrakon::preflight {

/// All of a file that the system shows; "" where it can't be read.
inline std::string system_file(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

/// Its first line, without the end of line.
inline std::string first_line_of(const std::string& path) {
  const std::string text = system_file(path);
  return text.substr(0, text.find('\n'));
}

}  // namespace ostrakon::preflight
