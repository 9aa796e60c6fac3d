// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <locale>
#include <ostrakon/base/text.hpp>
#include <sstream>
#include <string>
#include <string_view>

namespace {

using ostrakon::text;

template <class Part>
void expect_as_a_stream(const Part& part) {
  std::ostringstream stream;
  stream << part;
  EXPECT_EQ(text(part), stream.str());
}

template <class Number>
void expect_limits_as_a_stream() {
  for (Number number : {std::numeric_limits<Number>::lowest(), std::numeric_limits<Number>::min(),
                        std::numeric_limits<Number>::max(), Number(0), Number(65)})
    expect_as_a_stream(number);
}

TEST(Text, JoinsItsArguments) {
  EXPECT_EQ(text("width ", 7, " is odd"), "width 7 is odd");
  EXPECT_EQ(text(), "");
}

TEST(Text, NumbersAreWrittenAsByAStream) {
  expect_limits_as_a_stream<char>();
  expect_limits_as_a_stream<signed char>();
  expect_limits_as_a_stream<unsigned char>();
  expect_limits_as_a_stream<short>();
  expect_limits_as_a_stream<unsigned short>();
  expect_limits_as_a_stream<int>();
  expect_limits_as_a_stream<unsigned>();
  expect_limits_as_a_stream<long>();
  expect_limits_as_a_stream<unsigned long>();
  expect_limits_as_a_stream<long long>();
  expect_limits_as_a_stream<unsigned long long>();
  expect_limits_as_a_stream<float>();
  expect_limits_as_a_stream<double>();
  for (double number :
       {0.1, -2.5e-9, 1e15, 123456789.0, 1.0 / 3.0, std::numeric_limits<double>::infinity()})
    expect_as_a_stream(number);
  expect_as_a_stream(true);
  expect_as_a_stream(false);
}

TEST(Text, TakesEveryKindOfText) {
  const char array[] = "array";
  const char* pointer = "pointer";
  char changing[] = "changing";
  EXPECT_EQ(text(array, pointer, changing, std::string("string"), std::string_view("view"), 'c'),
            "arraypointerchangingstringviewc");
}

TEST(Text, TakesWhatAStreamTakes) {
  EXPECT_EQ(text("in ", std::filesystem::path("a/b")), "in \"a/b\"");
}

// Messages do not depend on the locale of the program, as those of Teuchos do not.
TEST(Text, NumbersAreThoseOfTheClassicLocale) {
  struct Grouping : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale former = std::locale::global(std::locale(std::locale(), new Grouping));
  const std::string found = text(1234567, " ", 0.5);
  std::locale::global(former);
  EXPECT_EQ(found, "1234567 0.5");
}

}  // namespace
