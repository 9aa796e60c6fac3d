// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/short_vector.hpp>
#include <random>
#include <utility>
#include <vector>

#include "support/allocations.hpp"

namespace ostrakon::test {
namespace {

using Short = ShortVector<int, 3>;

std::vector<int> elements(const Short& list) { return {list.begin(), list.end()}; }

TEST(ShortVector, TakesMemoryForManyElementsOnly) {
  const auto before = allocations();
  Short list = {1, 2};
  list.push_back(3);
  Short other = list;
  other = std::move(list);
  EXPECT_EQ(allocations(), before);
  other.push_back(4);
  EXPECT_GT(allocations(), before);
  EXPECT_EQ(elements(other), (std::vector<int>{1, 2, 3, 4}));
}

// Two ShortVectors are compared with std::vectors under random changes.
TEST(ShortVector, IsAVector) {
  std::mt19937_64 random(1);
  Short a, b;
  std::vector<int> x, y;
  for (int i = 0; i < 20000; ++i) {
    const int number = static_cast<int>(random() % 7);
    switch (random() % 10) {
      case 0:
        a.clear();
        x.clear();
        break;
      case 1:
        b = a;
        y = x;
        break;
      case 2:
        std::swap(a, b);
        std::swap(x, y);
        break;
      case 3:
        a = Short(y);
        x = y;
        break;
      case 4:
        a = {number, 1};
        x = {number, 1};
        break;
      case 5:
        a.erase(std::remove(a.begin(), a.end(), number), a.end());
        x.erase(std::remove(x.begin(), x.end(), number), x.end());
        break;
      case 6:
        if (x.empty()) break;
        EXPECT_EQ(a.erase(a.begin()) - a.begin(), 0);
        x.erase(x.begin());
        break;
      default:
        a.push_back(number);
        x.push_back(number);
    }
    ASSERT_EQ(elements(a), x);
    ASSERT_EQ(elements(b), y);
    ASSERT_EQ(a == b, x == y);
    ASSERT_EQ(a.empty(), x.empty());
    if (x.empty()) continue;
    ASSERT_EQ(a.front(), x.front());
    ASSERT_EQ(a.back(), x.back());
    ASSERT_EQ(a[x.size() / 2], x[x.size() / 2]);
  }
}

}  // namespace
}  // namespace ostrakon::test
