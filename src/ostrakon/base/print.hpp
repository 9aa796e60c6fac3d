// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdio>
#include <locale>
#include <sstream>
#include <string>

// Formats and parses numbers in the form of files, "1234.5", also if the program that uses this
// library has set a locale: std::setlocale affects printf, std::locale::global new streams.

namespace ostrakon {

/// Switches the C functions of this thread to the "C" locale while it exists.
class ClassicLocaleScope {
 public:
  ClassicLocaleScope();
  ClassicLocaleScope(const ClassicLocaleScope&) = delete;
  ClassicLocaleScope& operator=(const ClassicLocaleScope&) = delete;
  ~ClassicLocaleScope();

 private:
  void* before_;
};

/// Returns the text that std::printf would print.
template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  const ClassicLocaleScope classic;
  const int size = std::snprintf(nullptr, 0, format, arguments...);
  std::string text(size > 0 ? static_cast<std::size_t>(size) : 0, '\0');
  std::snprintf(text.data(), text.size() + 1, format, arguments...);
  return text;
}

/// Writes numbers as text.
class TextWriter : public std::ostringstream {
 public:
  TextWriter() { imbue(std::locale::classic()); }
};

/// Reads numbers out of text.
class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text) : std::istringstream(text) {
    imbue(std::locale::classic());
  }
};

}  // namespace ostrakon
