// SPDX-License-Identifier: Apache-2.0
// What rows predict that are stacked by runs, and how much each counts.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostrakon/math/cross_entropy/multi_token_targets.hpp>
#include <vector>

#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using test::DeviceArray;

TEST(MultiTokenTargets, AreStackedAndUnstackedByRuns) {
  constexpr int sequences = 4, tokens = 3, rows = sequences * tokens;
  std::vector<std::int32_t> targets;
  for (int r = 0; r < rows; ++r) targets.push_back(r == 4 ? -1 : 100 + r);
  for (const int depths : {1, 2, 3})
    for (const int run : {rows, 2 * tokens, tokens}) {
      const math::MultiTokenTargets further = {tokens, run, depths, 0.6};
      const DeviceArray<std::int32_t> given(targets), words(depths * rows);
      const DeviceArray<double> factors(depths * rows), unstacked(depths * (rows - 2));
      math::stack_targets<double>(Exec(), further, given, words, factors);
      // Losses that tell which row of which depth they are of.
      std::vector<double> stacked;
      for (int begin = 0; begin < rows; begin += run)
        for (int depth = 0; depth < depths; ++depth)
          for (int r = begin; r < begin + run; ++r) stacked.push_back(1000 * (depth + 1) + r);
      math::unstack_losses<double>(Exec(), further, DeviceArray<double>(stacked), 1, unstacked);
      const std::vector<std::int32_t> all_words = words.host();
      const std::vector<double> all_factors = factors.host(), losses = unstacked.host();
      for (int i = 0; i < depths * rows; ++i) {
        const int depth = static_cast<int>(stacked[i]) / 1000 - 1;
        const int r = static_cast<int>(stacked[i]) % 1000;
        const bool predicts = r % tokens + depth < tokens;
        EXPECT_EQ(all_words[i], predicts ? targets[r + depth] : -1) << i;
        // A mean over the rows of a depth that predict, divided over depths.
        const double of_depth = 0.6 / (depths - 1) * tokens / (tokens - depth);
        EXPECT_DOUBLE_EQ(all_factors[i], !predicts ? 0.0 : depth == 0 ? 1.0 : of_depth) << i;
      }
      for (int depth = 0; depth < depths; ++depth)
        for (int i = 0; i < rows - 2; ++i) {
          const int r = 1 + i;
          EXPECT_EQ(losses[depth * (rows - 2) + i],
                    r % tokens + depth < tokens ? 1000.0 * (depth + 1) + r : 0.0);
        }
    }
}

}  // namespace
