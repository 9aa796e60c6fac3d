// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/wall_time.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::config {
namespace {

constexpr double minute = 60.0, hour = 3600.0, day = 86400.0;

TEST(WallTime, ReadsEveryFormThatBatchSystemsTake) {
  struct Written {
    const char* text;
    double seconds;
  };
  for (const Written& written :
       {Written{"0", 0.0}, Written{"90", 90 * minute}, Written{"007", 7 * minute},
        Written{"2:30", 2 * minute + 30}, Written{"90:00", 90 * minute},
        Written{"3:55:00", 3 * hour + 55 * minute}, Written{"03:55:07", 3 * hour + 55 * minute + 7},
        Written{"100:00:01", 100 * hour + 1}, Written{"1-12", day + 12 * hour},
        Written{"2-0", 2 * day}, Written{"1-12:30", day + 12 * hour + 30 * minute},
        Written{"1-2:03:04", day + 2 * hour + 3 * minute + 4}, Written{"0-00:00:01", 1.0},
        Written{"00:00:00", 0.0},
        // Parts may exceed the next larger unit.
        Written{"0:3600", hour}, Written{"1-48:90:90", 3 * day + 90 * minute + 90},
        Written{"36600-00:00:00", longest_wall_time}}) {
    const std::optional<double> seconds = parse_wall_time(written.text);
    ASSERT_TRUE(seconds.has_value()) << written.text;
    EXPECT_EQ(*seconds, written.seconds) << written.text;
  }
}

TEST(WallTime, RefusesWhatIsNoTime) {
  std::vector<std::string> texts = testing::split(
      "- | : | -1 | 1- | -1:00 | 1: | :30 | 1::30 | 1:2:3:4 | 1-2:3:4:5 | 1-2-3 | 1:2-3 | 1-2: | "
      "1-:2 "
      "| 1.5 | 1e3 | +5 | 0x10 | 1 h | 90m | one | 1,30 | infinity | nan | UNLIMITED | "
      "36600-00:00:01 "
      "| 36601-0 | 999999999999 | 9999999999999 | 0000000000001 | "
      "99999999999999999999999999999999999999 | 1-99999999999999999999:0",
      "|");
  texts.insert(texts.end(), {"", " ", "90 ", " 90", "\xD9\xA1", std::string("1\0", 2)});
  for (const std::string& text : texts) EXPECT_FALSE(parse_wall_time(text).has_value()) << text;
}

TEST(WallTime, IsWrittenSoThatPeopleReadIt) {
  EXPECT_EQ(format_wall_time(0.0), "0");
  EXPECT_EQ(format_wall_time(1.0), "00:00:01");
  EXPECT_EQ(format_wall_time(90 * minute), "01:30:00");
  EXPECT_EQ(format_wall_time(day - 1.0), "23:59:59");
  EXPECT_EQ(format_wall_time(day), "1-00:00:00");
  EXPECT_EQ(format_wall_time(2 * day + 3 * hour + 4 * minute + 5), "2-03:04:05");
  EXPECT_EQ(format_wall_time(longest_wall_time), "36600-00:00:00");
}

TEST(WallTime, ReadsBackWhatIsWritten) {
  std::mt19937_64 random(1);
  const auto most = static_cast<std::uint64_t>(longest_wall_time);
  for (int trial = 0; trial < 10000; ++trial) {
    // Seconds of every magnitude.
    const auto seconds = static_cast<double>((random() % (most + 1)) >> (random() % 32));
    const std::optional<double> again = parse_wall_time(format_wall_time(seconds));
    ASSERT_TRUE(again.has_value()) << seconds;
    ASSERT_EQ(*again, seconds);
  }
}

// --- in decks

Settings read_wall_time(const std::string& wall_time) {
  return read_settings(
      "ostrakon:\n  data:\n    dataset: synthetic\n  runtime:\n    wall_time: " + wall_time + "\n",
      "deck.yaml", {});
}

TEST(WallTime, IsTextOrMinutesInADeck) {
  EXPECT_EQ(read_wall_time("90").runtime.wall_time, 90 * minute);
  EXPECT_EQ(read_wall_time("9e1").runtime.wall_time, 90 * minute);
  EXPECT_EQ(read_wall_time("\"90\"").runtime.wall_time, 90 * minute);
  EXPECT_EQ(read_wall_time("1-12").runtime.wall_time, day + 12 * hour);
  EXPECT_EQ(read_wall_time("\"3:55:00\"").runtime.wall_time, 3 * hour + 55 * minute);
  EXPECT_EQ(read_wall_time("0").runtime.wall_time, 0.0);
  const std::vector<Override> override = {{"runtime.wall_time", "1-02:00:30"}};
  EXPECT_EQ(read_settings("ostrakon:\n  data:\n    dataset: synthetic\n", "deck.yaml", override)
                .runtime.wall_time,
            day + 2 * hour + 30);
}

TEST(WallTime, ReadsBackFromTheDeckThatIsWritten) {
  for (const char* wall_time : {"0", "1", "90", "\"0:01\"", "\"3:55:00\"", "7-0", "36600-0"}) {
    const Settings settings = read_wall_time(wall_time);
    const Settings again = read_settings(write_deck(settings), "deck.yaml", {});
    EXPECT_EQ(again.runtime.wall_time, settings.runtime.wall_time) << wall_time;
  }
  EXPECT_HAS(write_deck(read_wall_time("90")), "    wall_time: \"01:30:00\" ");
  EXPECT_HAS(write_deck(read_wall_time("0")), "    wall_time: 0 ");
}

}  // namespace
}  // namespace ostrakon::config
