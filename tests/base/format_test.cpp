// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>

#include "support/messages.hpp"

namespace ostrakon {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();

TEST(FormatBytes, PicksTheLargestUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1), "1 B");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes((std::int64_t{13} << 30) / 4), "3.25 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{1} << 20), "1.00 MiB");
  EXPECT_EQ(format_bytes(std::int64_t{5} << 40), "5.00 TiB");
  EXPECT_EQ(format_bytes(std::int64_t{5} << 50), "5.00 PiB");
  EXPECT_EQ(format_bytes(1034), "1.01 KiB");
}

TEST(FormatBytes, NeverShows1024OfAUnit) {
  EXPECT_EQ(format_bytes((std::int64_t{1} << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes((std::int64_t{1} << 20) - 6), "1023.99 KiB");
  EXPECT_EQ(format_bytes((std::int64_t{1} << 30) - 1), "1.00 GiB");
}

TEST(FormatBytes, Ends) {
  EXPECT_EQ(format_bytes(most), "8.00 EiB");
  EXPECT_EQ(format_bytes(least), "-8.00 EiB");
  EXPECT_EQ(format_bytes(-1), "-1 B");
  EXPECT_EQ(format_bytes(-1536), "-1.50 KiB");
}

TEST(FormatCount, Separates) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(7), "7");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(123456), "123,456");
  EXPECT_EQ(format_count(8030261248), "8,030,261,248");
  EXPECT_EQ(format_count(-999), "-999");
  EXPECT_EQ(format_count(-1000), "-1,000");
  EXPECT_EQ(format_count(most), "9,223,372,036,854,775,807");
  EXPECT_EQ(format_count(least), "-9,223,372,036,854,775,808");
}

TEST(FormatHex, HasSixteenDigits) {
  EXPECT_EQ(format_hex(0), "0000000000000000");
  EXPECT_EQ(format_hex(0xABC), "0000000000000abc");
  EXPECT_EQ(format_hex(0x0123456789ABCDEFu), "0123456789abcdef");
  EXPECT_EQ(format_hex(~std::uint64_t{0}), "ffffffffffffffff");
}

TEST(Require, NamesWhatWasFound) {
  EXPECT_NO_THROW(require(true, "unused"));
  const std::string message = testing::error_of(
      [&] { require(false, "width ", 7, " is odd, expected a multiple of ", 2); });
  EXPECT_EQ(message, "width 7 is odd, expected a multiple of 2");
}

TEST(Printable, EscapesWhatTerminalsObeyAndWhatIsNoUtf8) {
  EXPECT_EQ(printable("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
            "plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\x1b[31m\x07\x7f"), "\\x1b[31m\\x07\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");                               // CSI as one character
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");  // right-to-left override
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80");
  EXPECT_EQ(printable("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(printable_lines("a\nb\tc\r"), "a\nb\tc\\x0d");
}

TEST(Shown, IsQuotedAndShort) {
  EXPECT_EQ(shown("a \"b\"\n"), "\"a \\\"b\\\"\\n\"");
  EXPECT_EQ(shown(std::string(200, 'x')), '"' + std::string(100, 'x') + "...\"");
}

TEST(WithoutMiddle, SaysHowMuchIsLeftOut) {
  EXPECT_EQ(without_middle("short", 5), "short");
  const std::string cut = without_middle(std::string(1000, 'a') + std::string(1000, 'b'), 100);
  EXPECT_EQ(cut,
            std::string(50, 'a') + "\n... (1,900 bytes left out) ...\n" + std::string(50, 'b'));
}

TEST(FirstNotUtf8, IsTheByteOrTheEnd) {
  EXPECT_EQ(first_not_utf8("ab\xc3\xa4"), 4U);
  EXPECT_EQ(first_not_utf8("ab\xff"), 2U);
  EXPECT_EQ(first_not_utf8("ab\xc3"), 2U);
}

}  // namespace
}  // namespace ostrakon
