// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/evaluate/windows.hpp>
#include <tuple>

namespace ostrakon::evaluate {
namespace {

using Triple = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

std::vector<Triple> triples(const std::vector<Window>& windows) {
  std::vector<Triple> all;
  for (const Window& one : windows) all.emplace_back(one.begin, one.first, one.end);
  return all;
}

/// As lm-evaluation-harness cuts (get_rolling_token_windows, of which the token that nothing
/// precedes is the prefix here).
TEST(Windows, OfAContextPredictFromAsManyAsFit) {
  EXPECT_EQ(triples(windows(11, 1, 4, 4)), (std::vector<Triple>{{0, 1, 5}, {4, 5, 9}, {6, 9, 11}}));
  EXPECT_EQ(triples(windows(8, 1, 4, 2)), (std::vector<Triple>{{0, 1, 5}, {2, 5, 7}, {3, 7, 8}}));
  EXPECT_EQ(triples(windows(5, 1, 4, 4)), (std::vector<Triple>{{0, 1, 5}}));
  EXPECT_EQ(triples(windows(2, 1, 4, 4)), (std::vector<Triple>{{0, 1, 2}}));
  EXPECT_TRUE(windows(1, 1, 4, 4).empty());
}

TEST(Windows, OfALongBeginningLeaveOutItsFirstTokens) {
  EXPECT_EQ(triples(windows(12, 9, 4, 4)), (std::vector<Triple>{{7, 9, 12}}));
  EXPECT_EQ(triples(windows(16, 9, 4, 4)), (std::vector<Triple>{{8, 9, 13}, {11, 13, 16}}));
}

TEST(Windows, PredictEachTokenOnce) {
  for (std::int64_t count = 1; count < 30; ++count)
    for (std::int64_t first = 1; first < count + 2; ++first)
      for (std::int64_t context = 1; context < 9; ++context)
        for (std::int64_t stride = 1; stride <= context; ++stride) {
          std::int64_t at = first;
          for (const Window& one : windows(count, first, context, stride)) {
            EXPECT_EQ(one.first, at);
            EXPECT_LE(0, one.begin);
            EXPECT_LT(one.begin, one.first);
            EXPECT_LT(one.first, one.end);
            EXPECT_EQ(one.end - one.begin, std::min(one.end, context + 1)) << "all that fit";
            at = one.end;
          }
          EXPECT_EQ(at, std::max(first, count));
        }
}

TEST(Windows, NeedAContext) {
  EXPECT_THROW(windows(9, 0, 4, 4), Error);
  EXPECT_THROW(windows(9, 1, 4, 5), Error);
  EXPECT_THROW(windows(9, 1, 4, 0), Error);
}

}  // namespace
}  // namespace ostrakon::evaluate
