// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <ostrakon/math/digest.hpp>
#include <ostrakon/math/half.hpp>
#include <set>

#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

std::uint64_t digest(const std::vector<float>& x, std::uint64_t key = 1, std::int64_t first = 0,
                     std::uint64_t start = 0) {
  const DeviceArray<float> device(x);
  const DeviceArray<std::uint64_t> sum(std::vector<std::uint64_t>{start});
  add_digest(Exec(), device, key, first, sum);
  return sum.host()[0];
}

TEST(Digest, PartsAddUp) {
  const std::vector<float> x = random_values<float>(10001, 1);
  const std::uint64_t whole = digest(x, 3, 1000);
  EXPECT_EQ(digest(x, 3, 1000, 77), whole + 77);
  for (const std::int64_t cut : {0, 1, 64, 4095, 4096, 4097, 10000, 10001}) {
    const std::vector<float> left(x.begin(), x.begin() + cut);
    const std::vector<float> right(x.begin() + cut, x.end());
    EXPECT_EQ(digest(right, 3, 1000 + cut, digest(left, 3, 1000)), whole);
  }
}

TEST(Digest, SeesPlaceKeyAndSign) {
  EXPECT_NE(digest({1.0f, 2.0f}), digest({2.0f, 1.0f}));
  EXPECT_NE(digest({0.0f}), digest({-0.0f}));
  EXPECT_NE(digest({1.0f}, 1), digest({1.0f}, 2));
  EXPECT_NE(digest({1.0f}, 1, 0), digest({1.0f}, 1, 1));
  // Key and position must not be interchangeable.
  EXPECT_NE(digest({1.0f}, 1, 2), digest({1.0f}, 2, 1));
  EXPECT_NE(digest({0.0f}), 0u);
  EXPECT_NE(digest({0.0f}), digest({0.0f, 0.0f}));
  EXPECT_EQ(digest({}), 0u);
}

template <class B>
void expect_digest_of_rounded() {
  const std::vector<float> x = random_values<float>(5000, 2);
  std::vector<B> rounded;
  for (const float value : x) rounded.emplace_back(value);
  const DeviceArray<float> floats(x);
  const DeviceArray<B> halves(rounded);
  const DeviceArray<std::uint64_t> of_floats(std::vector<std::uint64_t>{0}),
      of_halves(std::vector<std::uint64_t>{0});
  add_digest_as<float, B>(Exec(), floats, 3, 70, of_floats);
  add_digest_as<B, B>(Exec(), halves, 3, 70, of_halves);
  EXPECT_EQ(of_floats.host()[0], of_halves.host()[0]);
  EXPECT_NE(of_floats.host()[0], digest(x, 3, 70));
}

TEST(Digest, OfFloatsAsHalvesIsThatOfTheHalves) {
  expect_digest_of_rounded<bf16>();
  expect_digest_of_rounded<fp16>();
}

TEST(Digest, EveryBitMovesHalfOfTheDigest) {
  double moved = 0;
  for (int bit = 0; bit < 32; ++bit)
    for (int i = 0; i < 64; ++i) {
      const float value = 0.01f * static_cast<float>(i);
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      bits ^= std::uint32_t{1} << bit;
      float other;
      std::memcpy(&other, &bits, sizeof bits);
      std::uint64_t difference = digest({value}, 1, i) ^ digest({other}, 1, i);
      for (; difference != 0; difference &= difference - 1) moved += 1.0 / (32 * 64);
    }
  EXPECT_NEAR(moved, 32.0, 0.5);
}

TEST(Digest, SmallChangesDoNotCollide) {
  std::set<std::uint64_t> seen;
  for (int place = 0; place < 100; ++place)
    for (int value = 0; value < 100; ++value) {
      std::vector<float> x(100, 0.0f);
      x[place] = static_cast<float>(value + 1);
      seen.insert(digest(x));
    }
  EXPECT_EQ(seen.size(), 10000u);
}

}  // namespace
}  // namespace ostrakon::math
