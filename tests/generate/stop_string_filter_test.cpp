// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/generate/stop_string_filter.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ostrakon::train {
namespace {

using Strings = std::vector<std::string>;

/// What comes before the first place where a text of `stops` begins.
std::string plain_until(const std::string& text, const Strings& stops) {
  for (std::size_t end = 0; end < text.size(); ++end)
    for (const std::string& stop : stops)
      if (text.compare(end, stop.size(), stop) == 0) return text.substr(0, end);
  return text;
}

TEST(StopStringFilter, EndsAtTheFirstStopHoweverTheTextIsCut) {
  const Strings texts = {"",         "a",        "ab",       "aab",        "abab#",
                         "ababab##", "bb#\nUsr", "#\nUser:", "äö\nUser: #"};
  const Strings stops[] = {
      {"ab"}, {"abb", "b#"}, {"#\nUser:", "##"}, {"abab##"}, {"\xb6\n"}, {"abab#", "ba"}, {}};
  int stopped = 0;
  for (const std::string& text : texts)
    for (const Strings& some : stops)
      for (unsigned cuts = 0; cuts < 1U << std::min<std::size_t>(text.size(), 10); ++cuts) {
        StopStringFilter until(some);
        std::string found, piece;
        for (std::size_t i = 0; i <= text.size(); ++i) {
          if (i == text.size() || (cuts >> i & 1U) != 0) {
            found += until.add(piece);
            ASSERT_EQ(plain_until(text, some).substr(0, found.size()), found) << "shown too early";
            piece.clear();
          }
          if (i < text.size()) piece += text[i];
        }
        found += until.finish();
        const std::string expected = plain_until(text, some);
        ASSERT_EQ(found, expected) << text;
        ASSERT_EQ(until.is_stopped(), expected.size() < text.size()) << text;
        stopped += until.is_stopped();
      }
  EXPECT_GT(stopped, 100);
}

TEST(StopStringFilter, HoldsBackNoMoreThanMayBeginAStop) {
  StopStringFilter until({"\nUser:", "stop"});
  EXPECT_EQ(until.add("one st"), "one ");
  EXPECT_EQ(until.add("a"), "sta");
  EXPECT_EQ(until.add("\nUs"), "");
  EXPECT_EQ(until.add("ing"), "\nUsing");
  EXPECT_EQ(until.add("\nUser: two"), "");
  EXPECT_TRUE(until.is_stopped());
  EXPECT_EQ(until.add("three") + until.finish(), "");
}

}  // namespace
}  // namespace ostrakon::train
