// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include <ostrakon/model/layer_pattern.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {
namespace {

/// The first 12 layers, 1 for those that have the property.
std::string layers_of(const LayerPattern& pattern) {
  std::string layers;
  for (std::int64_t l = 0; l < 12; ++l) layers += pattern.has(l) ? '1' : '0';
  return layers;
}

struct Row {
  const char* text;
  const char* layers;  ///< of 12
  std::int64_t least;
};

TEST(LayerPattern, SaysWhichLayers) {
  for (const Row& row :
       {Row{"all", "111111111111", 0}, Row{"none", "000000000000", 0},
        Row{"every 2nd", "010101010101", 2}, Row{"every 6th", "000001000001", 6},
        Row{"all but every 4th", "111011101110", 4}, Row{"first 3", "111000000000", 3},
        Row{"all but first 1", "011111111111", 1}, Row{"0, 4-7, 11", "100011110001", 12},
        Row{"5", "000001000000", 6}, Row{"all but 2-3", "110011111111", 4}}) {
    SCOPED_TRACE(row.text);
    const auto pattern = LayerPattern::parse(row.text);
    ASSERT_TRUE(pattern);
    EXPECT_EQ(pattern->text(), row.text);
    EXPECT_EQ(layers_of(*pattern), row.layers);
    EXPECT_EQ(pattern->least_layers(), row.least);
    const std::string layers = row.layers;
    EXPECT_EQ(pattern->count(12), std::count(layers.begin(), layers.end(), '1'));
    // The pattern that is found for these layers says the same about them.
    std::vector<bool> flags;
    for (const char flag : layers) flags.push_back(flag == '1');
    const LayerPattern found = LayerPattern::of(flags);
    EXPECT_EQ(layers_of(found), layers);
    EXPECT_LE(found.text().size(),
              std::max(std::string("all but first 11").size(), std::string(row.text).size()));
  }
  EXPECT_EQ(LayerPattern(), *LayerPattern::parse("all"));
  EXPECT_EQ(LayerPattern::parse("0,1,2-3")->text(), "0-3") << "neighbours are one range";
  EXPECT_EQ(LayerPattern::of({true, false, true, false, true, false}).text(), "all but every 2nd");
  EXPECT_EQ(LayerPattern::of({}).text(), "all");
}

TEST(LayerPattern, RefusesOtherWords) {
  for (const char* text : {"",
                           "every",
                           "every 1st",
                           "every 2th",
                           "every 12nd",
                           "every 0th",
                           "first 0",
                           "first",
                           "all but",
                           "all but all",
                           "all but none",
                           "all but all but 3",
                           "3-1",
                           "4, 4",
                           "5, 3",
                           "1,",
                           ",1",
                           "-1",
                           "1 2",
                           "1-",
                           "every 6th layer",
                           "First 3",
                           "99999999"})
    EXPECT_FALSE(LayerPattern::parse(text)) << text;
}

}  // namespace
}  // namespace ostrakon::model
