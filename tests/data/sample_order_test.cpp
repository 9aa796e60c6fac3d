// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/data/sample_order.hpp>
#include <set>
#include <vector>

#include "../support/scratch_folder.hpp"

namespace ostrakon::data {
namespace {

std::vector<std::uint64_t> images(std::uint64_t size, std::uint64_t key) {
  const Permutation permutation(size, key);
  std::vector<std::uint64_t> found;
  for (std::uint64_t i = 0; i < size; ++i) found.push_back(permutation(i));
  return found;
}

class PermutationSizes : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(PermutationSizes, IsABijection) {
  for (std::uint64_t key = 0; key < 20; ++key) {
    std::vector<std::uint64_t> found = images(GetParam(), key);
    std::sort(found.begin(), found.end());
    for (std::uint64_t i = 0; i < GetParam(); ++i) ASSERT_EQ(found[i], i) << "key " << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PermutationSizes,
                         ::testing::Values(1, 2, 3, 4, 5, 7, 8, 64, 100, 257, 1000, 1025));

TEST(Permutation, EveryOrderOfThreeIsReached) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t key = 0; key < 200; ++key) orders.insert(images(3, key));
  EXPECT_EQ(orders.size(), 6u);
}

TEST(Permutation, LooksUniform) {
  // The image of 0 among 10, over many keys: chi-squared with 9 degrees of freedom exceeds 27.9
  // once in a thousand.
  constexpr int keys = 20000;
  std::vector<double> counts(10, 0.0);
  for (std::uint64_t key = 0; key < keys; ++key) counts[Permutation(10, key)(0)] += 1.0;
  double chi_squared = 0.0;
  for (const double count : counts) {
    chi_squared += (count - keys / 10.0) * (count - keys / 10.0) / (keys / 10.0);
  }
  EXPECT_LT(chi_squared, 27.9);
}

TEST(Permutation, LargeSizesStayInside) {
  constexpr std::uint64_t size = (std::uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 7);
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t image = permutation(size - 1 - i);
    EXPECT_LT(image, size);
    seen.insert(image);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

constexpr std::int64_t sequence = 16;

/// Returns a number of tokens that gives exactly `samples` training samples.
std::int64_t tokens_for(std::uint64_t samples) {
  return (static_cast<std::int64_t>(samples) + 1) * sequence;
}

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::uint64_t epoch) {
  std::vector<std::int64_t> first;
  for (std::uint64_t i = 0; i < order.samples(); ++i) {
    first.push_back(order.first_token(epoch * order.samples() + i));
  }
  return first;
}

class OrderSizes : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(OrderSizes, EveryEpochHasEveryWindowOnce) {
  const std::int64_t tokens = tokens_for(GetParam());
  const SampleOrder order = SampleOrder::shuffled(tokens, sequence, 3);
  ASSERT_EQ(order.samples(), GetParam());
  for (std::uint64_t epoch = 0; epoch < 30; ++epoch) {
    std::vector<std::int64_t> first = epoch_of(order, epoch);
    std::sort(first.begin(), first.end());
    EXPECT_GE(first.front(), 0);
    EXPECT_LT(first.front(), sequence);
    EXPECT_LE(first.back() + sequence + 1, tokens);
    for (std::size_t k = 1; k < first.size(); ++k) ASSERT_EQ(first[k] - first[k - 1], sequence);
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, OrderSizes, ::testing::Values(1, 2, 3, 1000));

TEST(SampleOrder, EpochsDifferInOrderAndOffset) {
  const SampleOrder order = SampleOrder::shuffled(tokens_for(100), sequence, 3);
  std::set<std::vector<std::int64_t>> orders;
  std::set<std::int64_t> offsets;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    std::vector<std::int64_t> first = epoch_of(order, epoch);
    offsets.insert(*std::min_element(first.begin(), first.end()));
    for (std::int64_t& token : first) token /= sequence;
    orders.insert(first);
  }
  EXPECT_EQ(orders.size(), 50u);
  EXPECT_GT(offsets.size(), 10u);
}

TEST(SampleOrder, SeedsDifferAndRepeat) {
  const auto order = [](std::uint64_t seed) {
    return epoch_of(SampleOrder::shuffled(tokens_for(100), sequence, seed), 0);
  };
  EXPECT_EQ(order(3), order(3));
  EXPECT_NE(order(3), order(4));
}

/// Runs are resumed with later versions, so the same seed must always give the same samples.
TEST(SampleOrder, StaysAsItIs) {
  const SampleOrder order = SampleOrder::shuffled(150, sequence, 1);
  EXPECT_EQ(epoch_of(order, 0), (std::vector<std::int64_t>{8, 72, 24, 40, 88, 56, 104, 120}));
  EXPECT_EQ(epoch_of(order, 1), (std::vector<std::int64_t>{63, 127, 15, 79, 111, 31, 95, 47}));
  EXPECT_EQ(epoch_of(SampleOrder::fixed(150, sequence), 0),
            (std::vector<std::int64_t>{96, 16, 80, 64, 32, 0, 112, 128, 48}));
}

TEST(SampleOrder, LittleTextStillHasOneSample) {
  for (std::int64_t tokens = sequence + 1; tokens < 4 * sequence; ++tokens) {
    const SampleOrder order = SampleOrder::shuffled(tokens, sequence, 5);
    ASSERT_GE(order.samples(), 1u);
    for (std::uint64_t index = 0; index < 200; ++index) {
      ASSERT_GE(order.first_token(index), 0);
      ASSERT_LE(order.first_token(index) + sequence + 1, tokens);
    }
  }
  EXPECT_EQ(testing::error_of([] { SampleOrder::shuffled(sequence, sequence, 5); }),
            "too few tokens: it holds 16, and one sample of sequence length 16 needs 17");
}

TEST(SampleOrder, ValidationHasEveryWindowOnceInTheSameOrder) {
  for (const std::int64_t windows : {1, 2, 10, 1000}) {
    const SampleOrder order = SampleOrder::fixed(windows * sequence + 1, sequence);
    ASSERT_EQ(order.samples(), static_cast<std::uint64_t>(windows));
    std::vector<std::int64_t> first = epoch_of(order, 0);
    EXPECT_EQ(first, epoch_of(order, 1));
    EXPECT_EQ(first, epoch_of(SampleOrder::fixed(windows * sequence + 1, sequence), 7));
    std::sort(first.begin(), first.end());
    for (std::size_t k = 0; k < first.size(); ++k)
      ASSERT_EQ(first[k], static_cast<std::int64_t>(k) * sequence);
  }
  EXPECT_EQ(SampleOrder::fixed(10 * sequence, sequence).samples(), 9u);
}

TEST(SampleOrder, FirstValidationSamplesAreSpreadOverTheFile) {
  // The sizes are those of the quickstart: 128 of some 460 windows. Each tenth of the file should
  // have 12.8, plus or minus 2.9: four standard deviations of a draw without replacement.
  constexpr std::int64_t windows = 460;
  const SampleOrder order = SampleOrder::fixed(windows * sequence + 1, sequence);
  std::vector<int> counts(10, 0);
  for (std::uint64_t index = 0; index < 128; ++index)
    ++counts[static_cast<std::size_t>(order.first_token(index) / sequence * 10 / windows)];
  for (const int count : counts) EXPECT_NEAR(count, 12.8, 11.6);
}

}  // namespace
}  // namespace ostrakon::data
