// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/scaling/factors.hpp>
#include <random>
#include <vector>

namespace ostrakon::scaling {
namespace {

RankParts parts_of(double compute, double communication, double host, double copies,
                   double waiting) {
  RankParts divided;
  divided.seconds = {compute, communication, host, copies, waiting};
  return divided;
}

TEST(Factors, OfKnownParts) {
  ShareSums sums;
  // The second rank computes longest: the first one waits for it in a collective.
  sums.add({parts_of(4.0, 6.0, 0.0, 0.0, 0.0), parts_of(6.0, 2.0, 1.0, 0.5, 0.5)});
  const Shares shares = sums.shares();
  EXPECT_DOUBLE_EQ(shares.compute, 0.5);
  EXPECT_DOUBLE_EQ(shares.imbalance, 0.1);
  EXPECT_DOUBLE_EQ(shares.communication, 0.2);
  EXPECT_DOUBLE_EQ(shares.host, 0.1);
  EXPECT_DOUBLE_EQ(shares.copies, 0.05);
  EXPECT_DOUBLE_EQ(shares.waiting, 0.05);
  const Factors factors = factors_of(shares, 100.0, 10.0);
  EXPECT_DOUBLE_EQ(factors.compute_rate, 20.0);
  EXPECT_DOUBLE_EQ(factors.balance, 5.0 / 6.0);
  EXPECT_DOUBLE_EQ(factors.overlap, 0.8);
  EXPECT_DOUBLE_EQ(factors.host, 7.0 / 8.0);
  EXPECT_DOUBLE_EQ(factors.copies, 6.5 / 7.0);
  EXPECT_DOUBLE_EQ(factors.bubbles, 6.0 / 6.5);
  EXPECT_DOUBLE_EQ(product(factors), 10.0);
}

/// Actions at random, on all streams, of some ranks.
std::vector<RankParts> random_step(std::mt19937& generator, int ranks, double seconds) {
  std::uniform_real_distribution<double> time(0.0, seconds);
  std::uniform_int_distribution<int> stream(0, plan::streams - 1);
  const std::vector<plan::Kind> kinds = {plan::Kind::forward,        plan::Kind::gather,
                                         plan::Kind::optimize,       plan::Kind::copy_to_host,
                                         plan::Kind::reduce_scatter, plan::Kind::receive};
  std::uniform_int_distribution<std::size_t> kind(0, kinds.size() - 1);
  std::vector<RankParts> divided;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<TracedAction> actions = {
        {plan::Kind::backward, plan::Stream::compute, 0.0, 0.1 * seconds}};
    for (int i = 0; i < 40; ++i) {
      const double one = time(generator), other = std::min(seconds, one + 0.05 * time(generator));
      actions.push_back(
          {kinds[kind(generator)], static_cast<plan::Stream>(stream(generator)), one, other});
    }
    divided.push_back(divide_step(actions, seconds));
  }
  return divided;
}

// Whatever was traced: on some of the steps, too, with another mean than all of them.
TEST(Factors, TheirProductIsTheEfficiency) {
  std::mt19937 generator(7);
  std::uniform_real_distribution<double> length(0.5, 2.0);
  for (int trial = 0; trial < 50; ++trial) {
    const auto run = [&](int ranks, double mean) {
      ShareSums sums;
      for (int step = 0; step < 5; ++step)
        sums.add(random_step(generator, ranks, length(generator)));
      const Shares shares = sums.shares();
      EXPECT_NEAR(shares.compute + shares.imbalance + shares.communication + shares.host +
                      shares.copies + shares.waiting,
                  1.0, 1e-12);
      const Factors factors = factors_of(shares, 4096.0 / ranks, mean);
      for (const double factor :
           {factors.balance, factors.overlap, factors.host, factors.copies, factors.bubbles}) {
        EXPECT_GT(factor, 0.0);
        EXPECT_LE(factor, 1.0 + 1e-12);
      }
      return factors;
    };
    const double base_mean = length(generator), mean = length(generator);
    const Factors base = run(1, base_mean), factors = run(4, mean);
    EXPECT_NEAR(product(factors), 1024.0 / mean, 1e-9 * 1024.0 / mean);
    const double efficiency = base_mean / (4.0 * mean);
    EXPECT_NEAR(product(relative(factors, base)), efficiency, 1e-9 * efficiency);
  }
}

}  // namespace
}  // namespace ostrakon::scaling
