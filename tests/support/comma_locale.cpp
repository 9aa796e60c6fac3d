// SPDX-License-Identifier: Apache-2.0

// Preloaded: a program whose numbers are German before its main begins, "1.234,5", as a program may
// make them that uses the library. Streams follow in any case, printf where the system finds the
// locale.

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
