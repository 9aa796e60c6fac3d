// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <clocale>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>
#include <sstream>
#include <string>

#include "../support/comma_locale.hpp"

namespace ostrakon {
namespace {

using testing::CommaLocale;

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
