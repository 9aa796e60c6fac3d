// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <numeric>
#include <ostrakon/plan/memory/placement.hpp>
#include <random>

#include "support/trials.hpp"

namespace ostrakon::plan {
namespace {

// The rule of placement.hpp, with every rectangle compared with all others: what plans are made
// of must not depend on how the lowest place is found.

bool meets(const Rectangle& a, const Rectangle& b) {
  return a.first <= b.last && b.first <= a.last && a.offset < b.end() && b.offset < a.end();
}

std::int64_t place_plainly(Rectangles& rectangles, const std::vector<int>& order,
                           std::int64_t base) {
  std::int64_t highest = base;
  Rectangles placed;
  for (const int index : order) {
    Rectangle& rectangle = rectangles[static_cast<std::size_t>(index)];
    rectangle.offset = base;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Rectangle& other : placed) {
        if (!meets(rectangle, other)) continue;
        rectangle.offset = other.end();
        moved = true;
      }
    }
    highest = std::max(highest, rectangle.end());
    placed.push_back(rectangle);
  }
  return highest;
}

std::int64_t place_plainly(Rectangles& rectangles, int times, std::int64_t base) {
  std::int64_t bound = 0;
  for (int time = 0; time < times; ++time) {
    std::int64_t live_bytes = base;
    for (const Rectangle& one : rectangles)
      if (one.first <= time && time <= one.last) live_bytes += one.bytes;
    bound = std::max(bound, live_bytes);
  }
  Rectangles placed = rectangles;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const bool backward : {false, true}) {
    std::vector<int> order(rectangles.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
      const Rectangle& a = rectangles[static_cast<std::size_t>(x)];
      const Rectangle& b = rectangles[static_cast<std::size_t>(y)];
      if (a.bytes != b.bytes) return a.bytes > b.bytes;
      return backward ? a.last > b.last : a.first < b.first;
    });
    for (int i = 0; i < 4; ++i) {
      const std::int64_t highest = place_plainly(placed, order, base);
      if (highest < least) {
        least = highest;
        rectangles = placed;
      }
      if (least <= bound + bound / 200) return least;
      std::stable_partition(order.begin(), order.end(), [&](int index) {
        return placed[static_cast<std::size_t>(index)].end() > bound;
      });
    }
  }
  return least;
}

class Random {
 public:
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
  }

 private:
  std::mt19937_64 random_{1};
};

/// Draws rectangles of a few sizes, or of all; with short lifetimes, long ones, and nested ones.
Rectangles random_rectangles(Random& random, int times) {
  const std::int64_t sizes = 1 + random.below(6), kind = random.below(3);
  std::int64_t size[6];
  for (std::int64_t& one : size) one = 256 * random.below(20);
  Rectangles rectangles(static_cast<std::size_t>(random.below(50)));
  for (Rectangle& one : rectangles) {
    one.first = static_cast<int>(random.below(times));
    one.last = static_cast<int>(one.first + random.below(times - one.first));
    if (kind == 1) one.last = std::min(one.last, one.first + 4);
    if (kind == 2 && random.below(2) == 0) {
      one.first /= 2;
      one.last = times - 1 - one.first;
    }
    one.bytes = sizes == 6 ? 256 * random.below(1000) : size[random.below(sizes)];
  }
  return rectangles;
}

TEST(Placement, IsThatOfThePlainRule) {
  Random random;
  for (int i = 0; i < tests::trials(3000); ++i) {
    const int times = static_cast<int>(1 + random.below(80));
    const std::int64_t base = 256 * random.below(5);
    Rectangles placed = random_rectangles(random, times), plainly = placed;
    ASSERT_EQ(place(placed, times, base), place_plainly(plainly, times, base)) << "case " << i;
    for (std::size_t r = 0; r < placed.size(); ++r)
      ASSERT_EQ(placed[r].offset, plainly[r].offset) << "case " << i << ", rectangle " << r;
  }
}

/// Places what is like activations of that many layers: made one after the other, released
/// backward.
double seconds_to_place(int layers) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < 3; ++i) {
    Rectangles rectangles;
    for (int layer = 0; layer < layers; ++layer) {
      rectangles.push_back({4 * layer, 8 * layers - 4 * layer - 1, 4096, -1});
      rectangles.push_back({4 * layer, 4 * layer + 6, 1 << 20, -1});
    }
    // The clock is that of this process: on a busy machine the longer one would be interrupted more
    // often.
    const std::clock_t begin = std::clock();
    place(rectangles, 8 * layers, 0);
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Placement, TimeDoesNotGrowWithTheSquareOfTheLayers) {
  // 16 times the layers: n log n is 23 times the time, the square 256 times.
  EXPECT_LT(seconds_to_place(16000) / seconds_to_place(1000), 80.0);
}

}  // namespace
}  // namespace ostrakon::plan
