// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <numeric>
#include <ostrakon/plan/placement.hpp>

namespace ostrakon::plan {
namespace {

/// Most bytes that are alive at one time.
std::int64_t most_alive(const Rectangles& rectangles, int times) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(times) + 1, 0);
  for (const Rectangle& rectangle : rectangles) {
    change[static_cast<std::size_t>(rectangle.first)] += rectangle.bytes;
    change[static_cast<std::size_t>(rectangle.last) + 1] -= rectangle.bytes;
  }
  std::int64_t alive = 0, most = 0;
  for (std::int64_t by : change) most = std::max(most, alive += by);
  return most;
}

/// The largest first; those of one size as they begin or, `backward`, from the last to end on.
std::vector<int> largest_first(const Rectangles& rectangles, bool backward) {
  std::vector<int> order(rectangles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    const Rectangle& a = rectangles[static_cast<std::size_t>(x)];
    const Rectangle& b = rectangles[static_cast<std::size_t>(y)];
    if (a.bytes != b.bytes) return a.bytes > b.bytes;
    return backward ? a.last > b.last : a.first < b.first;
  });
  return order;
}

/// Places `rectangles` one by one in the given order, each at the lowest offset from `base` where
/// it meets none that is alive with it. Returns the end of the highest.
std::int64_t place_in_order(Rectangles& rectangles, const std::vector<int>& order, int times,
                            std::int64_t base) {
  // What is placed, by offset, in windows of time: a rectangle is compared with what is near only.
  constexpr int window_times = 1024;
  std::vector<Rectangles> windows(static_cast<std::size_t>(times / window_times) + 1);
  const auto lower = [](const Rectangle& a, const Rectangle& b) { return a.offset < b.offset; };
  std::int64_t highest = base;
  for (int index : order) {
    Rectangle& rectangle = rectangles[static_cast<std::size_t>(index)];
    const auto begin = windows.begin() + rectangle.first / window_times;
    const auto end = windows.begin() + rectangle.last / window_times + 1;
    rectangle.offset = base;
    auto window = begin;
    // Up and up, until it meets nothing in any of its windows.
    for (auto to_check = end - begin; to_check > 0; --to_check) {
      const std::int64_t before = rectangle.offset;
      for (const Rectangle& other : *window) {
        if (rectangle.end() <= other.offset) break;
        if (rectangle.first <= other.last && other.first <= rectangle.last)
          rectangle.offset = std::max(rectangle.offset, other.end());
      }
      if (rectangle.offset != before) to_check = end - begin;
      if (++window == end) window = begin;
    }
    highest = std::max(highest, rectangle.end());
    for (window = begin; window != end; ++window)
      window->insert(std::upper_bound(window->begin(), window->end(), rectangle, lower), rectangle);
  }
  return highest;
}

}  // namespace

std::int64_t place(Rectangles& rectangles, int times, std::int64_t base) {
  constexpr int tries = 4;
  const std::int64_t bound = base + most_alive(rectangles, times);
  Rectangles placed = rectangles;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (bool backward : {false, true}) {
    std::vector<int> order = largest_first(rectangles, backward);
    for (int i = 0; i < tries; ++i) {
      const std::int64_t highest = place_in_order(placed, order, times, base);
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

}  // namespace ostrakon::plan
