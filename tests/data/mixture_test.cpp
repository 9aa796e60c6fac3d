// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/data/mixture_order.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../support/messages.hpp"

namespace ostrakon::data {
namespace {

using testing::error_of;

TEST(Files, AreReadWithTheirWeights) {
  using Rows = std::vector<std::pair<std::string, double>>;
  struct Row {
    std::string text;
    Rows files;
    std::string written;  // empty: as `text`
  };
  for (const Row& row :
       std::vector<Row>{{"", {}, ""},
                        {"a/b.h5", {{"a/b.h5", 1.0}}, ""},
                        {" a b ", {{" a b ", 1.0}}, ""},
                        {"12", {{"12", 1.0}}, ""},
                        {"0.7 a.h5", {{"a.h5", 0.7}}, ""},
                        {"0.7 a.h5; 0.3 b.h5", {{"a.h5", 0.7}, {"b.h5", 0.3}}, ""},
                        {"a.h5;b c.h5\n; 2e-1  d ",
                         {{"a.h5", 1.0}, {"b c.h5", 1.0}, {"d", 0.2}},
                         "1 a.h5; 1 b c.h5; 0.2 d"},
                        {"1 a; 0 b", {{"a", 1.0}, {"b", 0.0}}, ""},
                        {"1 7 days", {{"7 days", 1.0}}, ""},
                        {"1 0 days", {{"0 days", 1.0}}, ""},
                        {"7th a; 2", {{"7th a", 1.0}, {"2", 1.0}}, "1 7th a; 1 2"}}) {
    Rows found;
    for (const WeightedFile& file : read_files(row.text))
      found.emplace_back(file.path, file.weight);
    EXPECT_EQ(found, row.files) << row.text;
    EXPECT_EQ(write_files(read_files(row.text)), row.written.empty() ? row.text : row.written);
  }
  EXPECT_HAS(error_of([] { read_files("a;;b"); }), "a file between two ';' has no path");
  EXPECT_HAS(error_of([] { read_files("a; -1 b"); }), "the weight of 'b' is -1; expected 0 to");
  EXPECT_HAS(error_of([] { read_files("1e300 a; b"); }), "the weight of 'a' is 1e+300; expected");
  EXPECT_HAS(error_of([] { read_files("0 a; 0 b"); }), "the weights of all files are 0");
  EXPECT_HAS(error_of([] { read_files("a; 1e-7 b"); }), "the weight of 'b' is 1e-07, a share of");
}

std::uint64_t sum(const std::vector<std::uint64_t>& all) {
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}

TEST(MixtureOrder, GivesEachSourceItsShareInEveryBlock) {
  struct Row {
    std::vector<double> weights;
    std::uint64_t block;
  };
  for (const Row& row : {Row{{0.7, 0.3}, 4096}, Row{{1, 1, 1}, 4096}, Row{{0, 5, 0, 2, 1e-3}, 8192},
                         Row{{1, 1e-5, 1}, 262144}}) {
    MixtureOrder order(3, row.weights);
    const double all = std::accumulate(row.weights.begin(), row.weights.end(), 0.0);
    for (const std::uint64_t blocks : {1, 2, 3, 10, 1'000'003}) {
      const std::uint64_t samples = blocks * row.block;
      const std::vector<std::uint64_t> taken = order.taken(samples);
      EXPECT_EQ(sum(taken), samples);
      for (std::size_t k = 0; k < taken.size(); ++k) {
        const double share = row.weights[k] / all * static_cast<double>(samples);
        // The shares are multiples of 2^-32.
        EXPECT_NEAR(static_cast<double>(taken[k]), share,
                    1.0 + 0x1p-31 * static_cast<double>(samples));
        EXPECT_TRUE(row.weights[k] > 0.0 || taken[k] == 0);
      }
    }
  }
}

TEST(MixtureOrder, IsRandomWithinABlock) {
  MixtureOrder order(1, {1, 1}), other(2, {1, 1});
  int changes = 0, differ = 0;
  for (std::uint64_t i = 1; i < 4096; ++i) {
    changes += order.draw(i).source != order.draw(i - 1).source ? 1 : 0;
    differ += order.draw(i).source != other.draw(i).source ? 1 : 0;
  }
  EXPECT_NEAR(changes, 2048, 200);
  EXPECT_NEAR(differ, 2048, 200);
}

/// Runs that end and resume at random samples with random weights, and sometimes another source or
/// another seed: each source is drawn from sample by sample.
TEST(MixtureOrder, LosesAndRepeatsNothingWhenWeightsChange) {
  std::mt19937 generator(5);
  for (int run = 0; run < 20; ++run) {
    std::uint64_t samples = 0, seed = 7;
    std::vector<double> weights = {1, 2};
    std::vector<std::uint64_t> next(2, 0);
    std::vector<MixtureOrder::Drawn> all;
    Facts facts;
    for (int phase = 0; phase < 6; ++phase) {
      MixtureOrder order(seed, weights);
      if (samples > 0) order.continue_from(samples, facts);
      next.resize(weights.size(), 0);
      ASSERT_EQ(order.taken(samples), next);
      const std::uint64_t end = samples + generator() % 9000;
      for (; samples < end; ++samples) {
        const MixtureOrder::Drawn drawn = order.draw(samples);
        ASSERT_GT(weights[drawn.source], 0.0);
        ASSERT_EQ(drawn.index, next[drawn.source]++) << "sample " << samples;
        all.push_back(drawn);
      }
      ASSERT_EQ(order.taken(samples), next);
      facts = order.facts(samples);
      // Ranks draw samples in any order, and any of the run.
      for (int i = 0; i < 20 && samples > 0; ++i) {
        const std::uint64_t sample = generator() % samples;
        EXPECT_EQ(order.draw(sample).source, all[sample].source);
        EXPECT_EQ(order.draw(sample).index, all[sample].index);
      }
      if (generator() % 3 == 0) weights.push_back(0.0);
      if (generator() % 4 == 0) ++seed;
      for (double& weight : weights) weight = static_cast<double>(generator() % 4);
      weights[generator() % weights.size()] += 0.5;
    }
  }
}

TEST(MixtureOrder, WithTheSameWeightsIsAsIfThereHadBeenNoEnd) {
  MixtureOrder whole(3, {2, 1}), resumed(3, {2, 1});
  resumed.continue_from(1000, whole.facts(1000));
  for (std::uint64_t sample = 0; sample < 6000; ++sample) {
    ASSERT_EQ(resumed.draw(sample).source, whole.draw(sample).source);
    ASSERT_EQ(resumed.draw(sample).index, whole.draw(sample).index);
  }
  EXPECT_FALSE(first_difference(resumed.facts(6000), whole.facts(6000)));
}

TEST(MixtureOrder, ContinuesARunOnItsFirstFile) {
  MixtureOrder order(3, {1, 1});
  order.continue_from(500, {});
  EXPECT_EQ(order.taken(500), (std::vector<std::uint64_t>{500, 0}));
  EXPECT_EQ(order.draw(499).source, 0u);
  EXPECT_EQ(order.draw(499).index, 499u);
  EXPECT_EQ(sum(order.taken(4000)), 4000u);
  EXPECT_NEAR(static_cast<double>(order.taken(4596)[1]), 2048.0, 1.0);
  MixtureOrder again(3, {1, 3});
  again.continue_from(700, order.facts(700));
  EXPECT_EQ(again.taken(700), order.taken(700));
}

/// Where other data are allowed.
TEST(MixtureOrder, ContinuesWithFewerFilesTwice) {
  MixtureOrder three(3, {1, 1, 2}), two(3, {1, 1}), again(3, {1, 3});
  two.continue_from(4096, three.facts(4096));
  EXPECT_EQ(two.taken(4096), (std::vector<std::uint64_t>{1024, 1024}));
  again.continue_from(8192, two.facts(8192));
  EXPECT_EQ(again.taken(8192), (std::vector<std::uint64_t>{3072, 3072}));
  EXPECT_EQ(again.facts(8192).back().value, "taken 3072 3072");
}

TEST(MixtureOrder, RefusesFactsThatCannotBe) {
  MixtureOrder order(3, {1, 1});
  const Facts right = order.facts(100);
  const auto error = [&](std::size_t index, const Fact& fact) {
    Facts facts = right;
    facts[index] = fact;
    return error_of([&] { MixtureOrder(3, {1, 1}).continue_from(100, facts); });
  };
  ASSERT_EQ(right.size(), 2u);
  EXPECT_EQ(right[0].name, "mixture from sample 0");
  EXPECT_EQ(right[0].value, "seed 3; weights 1 1; taken 0 0");
  EXPECT_EQ(error(0, right[0]), "no error");
  for (const char* value :
       {"", "seed 3", "seed 3; weights 1 1; taken 0", "seed 3; weights 1 x; taken 0 0",
        "seed 3; weights 1 1; taken 0 0 x", "seed 3; weights 1 1; taken 1 0"})
    EXPECT_HAS(error(0, {right[0].name, value}), "what it says of its data can't be read") << value;
  EXPECT_HAS(error(0, {"mixture from sample 2", "seed 3; weights 1 1; taken 1 1"}),
             "weights hold from sample 2 on; expected 0 to 0");
  EXPECT_HAS(error(1, {"mixture before sample 99", right[1].value}), "can't be read");
  EXPECT_HAS(error(1, {right[1].name, "taken 100 0"}), "were drawn in another order");
  EXPECT_HAS(error(0, {right[0].name, "seed 3; weights 1 2; taken 0 0"}), "in another order");
}

}  // namespace
}  // namespace ostrakon::data
