// SPDX-License-Identifier: Apache-2.0

// Preloaded library: the program has a German number format, "1.234,5", before its main begins, as
// a program that uses our library may set it. Streams always follow it, printf if the system has
// the locale.

#include <clocale>
#include <locale>
#include <string>

namespace {

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

struct German {
  German() {
    std::locale::global(std::locale(std::locale::classic(), new Comma));
    std::setlocale(LC_ALL, "de_DE.UTF-8");
  }
};

const German german;

}  // namespace
