// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <clocale>
#include <cstdio>
#include <locale>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <string>

namespace ostrakon {
namespace {

struct Comma : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

/// Streams that are made now follow it, and printf where the system has a locale with a comma.
class CommaLocale {
 public:
  CommaLocale() : before_(std::locale::global(std::locale(std::locale::classic(), new Comma))) {
    for (const char* const name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8"})
      if (std::setlocale(LC_ALL, name) != nullptr) break;
  }
  ~CommaLocale() {
    std::setlocale(LC_ALL, "C");
    std::locale::global(before_);
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;

 private:
  std::locale before_;
};

TEST(Print, IsPrintf) {
  EXPECT_EQ(print("%s: %.2f, %5d|%-4s|", "x", 1.5, 42, "ab"), "x: 1.50,    42|ab  |");
  EXPECT_EQ(print("%s", std::string(2000, 'x').c_str()).size(), 2000u);
  EXPECT_EQ(print("100 %%"), "100 %");
}

TEST(Print, FollowsNoLocale) {
  const CommaLocale comma;
  std::ostringstream plain;
  plain << 1234.5;
  ASSERT_EQ(plain.str(), "1.234,5");
  EXPECT_EQ(print("%.3f %g %d", 1234.5, 0.25, 1234), "1234.500 0.25 1234");
  EXPECT_EQ(text(1234.5, " ", 1234567), "1234.5 1234567");
  TextWriter out;
  out << 1234.5 << " " << 1234567;
  EXPECT_EQ(out.str(), "1234.5 1234567");
  TextReader in("1234.5 1234567 0.25");
  double number = 0.0, last = 0.0;
  long whole = 0;
  in >> number >> whole >> last;
  EXPECT_EQ(number, 1234.5);
  EXPECT_EQ(whole, 1234567);
  EXPECT_EQ(last, 0.25);
}

TEST(Print, LeavesTheCallersLocale) {
  const CommaLocale comma;
  const std::string before = std::localeconv()->decimal_point;
  print("%.1f", 1.5);
  EXPECT_EQ(std::localeconv()->decimal_point, before);
}

}  // namespace
}  // namespace ostrakon
