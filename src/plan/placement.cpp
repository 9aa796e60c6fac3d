// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <numeric>
#include <ostrakon/plan/placement.hpp>

namespace ostrakon::plan {
namespace {

/// Indices of `rectangles` for which before(a, b) says that a comes before b.
template <class Before>
std::vector<int> sorted(const Rectangles& rectangles, const Before& before) {
  std::vector<int> order(rectangles.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return before(rectangles[static_cast<std::size_t>(a)], rectangles[static_cast<std::size_t>(b)]);
  });
  return order;
}

/// Places `rectangles` one by one in the given order, each at the lowest offset from `base` where
/// it meets none that is alive with it; `obstacles` stay where they are. Returns the end of the
/// highest. Looks at all pairs.
std::int64_t place_in_order(Rectangles& rectangles, const std::vector<int>& order,
                            const Rectangles& obstacles, std::int64_t base) {
  const auto lower = [](const Rectangle& a, const Rectangle& b) { return a.offset < b.offset; };
  Rectangles placed = obstacles;  // by offset
  std::sort(placed.begin(), placed.end(), lower);
  placed.reserve(placed.size() + rectangles.size());
  std::int64_t highest = base;
  for (int index : order) {
    Rectangle& rectangle = rectangles[static_cast<std::size_t>(index)];
    rectangle.offset = base;
    for (const Rectangle& other : placed) {
      if (rectangle.end() <= other.offset) break;
      if (rectangle.first <= other.last && other.first <= rectangle.last)
        rectangle.offset = std::max(rectangle.offset, other.end());
    }
    highest = std::max(highest, rectangle.end());
    placed.insert(std::upper_bound(placed.begin(), placed.end(), rectangle, lower), rectangle);
  }
  return highest;
}

/// Walks through time and gives each rectangle that is born the smallest hole that holds it. Looks
/// at nothing but what is alive. Otherwise as above; obstacles are alive when the walk begins.
std::int64_t place_in_time(Rectangles& rectangles, const Rectangles& obstacles, std::int64_t base) {
  std::map<std::int64_t, std::int64_t> holes;  // below `highest`: offset -> bytes
  std::int64_t highest = base;
  const auto take = [&](std::int64_t bytes) {
    auto best = holes.end();
    for (auto hole = holes.begin(); hole != holes.end(); ++hole)
      if (hole->second >= bytes && (best == holes.end() || hole->second < best->second))
        best = hole;
    if (best == holes.end()) {
      // Grow the last hole if it ends at the end.
      if (holes.empty() || holes.rbegin()->first + holes.rbegin()->second < highest)
        holes.emplace(highest, 0);
      best = std::prev(holes.end());
      best->second = bytes;
      highest = best->first + bytes;
    }
    const auto [offset, size] = *best;
    holes.erase(best);
    if (size > bytes) holes.emplace(offset + bytes, size - bytes);
    return offset;
  };
  const auto give_back = [&](std::int64_t offset, std::int64_t bytes) {
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = holes.erase(next);
    }
    if (next != holes.begin() && std::prev(next)->first + std::prev(next)->second == offset)
      std::prev(next)->second += bytes;
    else
      holes.emplace(offset, bytes);
  };

  Rectangles all = obstacles;
  std::sort(all.begin(), all.end(),
            [](const Rectangle& a, const Rectangle& b) { return a.offset < b.offset; });
  for (const Rectangle& obstacle : all) {
    if (obstacle.offset > highest) holes.emplace(highest, obstacle.offset - highest);
    highest = obstacle.end();
  }
  all.insert(all.end(), rectangles.begin(), rectangles.end());
  const std::vector<int> dying =
      sorted(all, [](const Rectangle& a, const Rectangle& b) { return a.last < b.last; });
  auto next_dead = dying.begin();
  const auto earlier = [](const Rectangle& a, const Rectangle& b) {
    return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
  };
  for (int index : sorted(rectangles, earlier)) {
    Rectangle& rectangle = rectangles[static_cast<std::size_t>(index)];
    for (; all[static_cast<std::size_t>(*next_dead)].last < rectangle.first; ++next_dead) {
      const Rectangle& dead = all[static_cast<std::size_t>(*next_dead)];
      give_back(dead.offset, dead.bytes);
    }
    rectangle.offset = take(rectangle.bytes);
    all[obstacles.size() + static_cast<std::size_t>(index)].offset = rectangle.offset;
  }
  return highest;
}

/// Rectangles of which all pairs may be looked at.
constexpr std::size_t few = 4096;

/// No way of placing is best for all plans: the best of three, or the first that ends at `enough`.
/// Of more than `few`, only the way that does not look at all pairs.
std::int64_t place_well(Rectangles& rectangles, const Rectangles& obstacles, std::int64_t base,
                        std::int64_t enough) {
  std::int64_t highest = place_in_time(rectangles, obstacles, base);
  const auto span = [](const Rectangle& a) { return a.last - a.first; };
  const auto larger = [&](const Rectangle& a, const Rectangle& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : span(a) > span(b);
  };
  const auto longer = [&](const Rectangle& a, const Rectangle& b) {
    return span(a) != span(b) ? span(a) > span(b) : a.bytes > b.bytes;
  };
  for (bool by_size : {true, false}) {
    if (highest <= enough || rectangles.size() > few) break;
    Rectangles others = rectangles;
    const std::vector<int> order = by_size ? sorted(others, larger) : sorted(others, longer);
    const std::int64_t end = place_in_order(others, order, obstacles, base);
    if (end >= highest) continue;
    highest = end;
    rectangles = std::move(others);
  }
  return highest;
}

/// Most bytes that are alive at one time.
std::int64_t most_alive(const Rectangles& rectangles) {
  int last = 0;
  for (const Rectangle& rectangle : rectangles) last = std::max(last, rectangle.last);
  std::vector<std::int64_t> change(static_cast<std::size_t>(last) + 2, 0);
  for (const Rectangle& rectangle : rectangles) {
    change[static_cast<std::size_t>(rectangle.first)] += rectangle.bytes;
    change[static_cast<std::size_t>(rectangle.last) + 1] -= rectangle.bytes;
  }
  std::int64_t alive = 0, most = 0;
  for (std::int64_t by : change) most = std::max(most, alive += by);
  return most;
}

/// A segment: what is born in it, and what is still alive from before, in time from its begin.
struct Segment {
  Rectangles own;
  Rectangles obstacles;

  /// Numbers by which segments are the same to place.
  std::vector<std::int64_t> look() const {
    std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(obstacles.size())};
    for (const Rectangle& obstacle : obstacles)
      numbers.insert(numbers.end(), {obstacle.last, obstacle.bytes, obstacle.offset});
    for (const Rectangle& rectangle : own)
      numbers.insert(numbers.end(), {rectangle.first, rectangle.last, rectangle.bytes});
    return numbers;
  }
};

/// Places the rectangles with the given indices segment by segment, as place() does.
std::int64_t place_passing(Rectangles& rectangles, const std::vector<int>& passing, int times,
                           const std::vector<int>& cuts, std::int64_t base) {
  const auto at = [&](int index) -> Rectangle& {
    return rectangles[static_cast<std::size_t>(index)];
  };
  // Time counts only where one of these begins or ends: segments that differ by actions on what
  // lasts look the same.
  std::vector<int> time(static_cast<std::size_t>(times) + 1, 0);
  std::vector<std::vector<int>> born(cuts.size() + 1);
  Rectangles all;
  for (int index : passing) {
    const auto segment = std::upper_bound(cuts.begin(), cuts.end(), at(index).first) - cuts.begin();
    born[static_cast<std::size_t>(segment)].push_back(index);
    time[static_cast<std::size_t>(at(index).first) + 1] = 1;
    time[static_cast<std::size_t>(at(index).last) + 1] = 1;
    all.push_back(at(index));
  }
  std::partial_sum(time.begin(), time.end(), time.begin());
  const std::int64_t enough = base + most_alive(all);

  std::int64_t highest = base;
  std::vector<int> alive;
  std::map<std::vector<std::int64_t>, std::vector<std::int64_t>> offsets;  // by a segment's look
  for (std::size_t s = 0; s < born.size(); ++s) {
    const int begin = s == 0 ? 0 : cuts[s - 1];
    const auto in_segment = [&](int index) {
      Rectangle rectangle = at(index);
      for (int* when : {&rectangle.first, &rectangle.last})
        *when = time[static_cast<std::size_t>(*when)] - time[static_cast<std::size_t>(begin)];
      return rectangle;
    };
    Segment segment;
    for (int index : born[s]) segment.own.push_back(in_segment(index));
    for (int index : alive) segment.obstacles.push_back(in_segment(index));
    const auto [found, is_new] = offsets.try_emplace(segment.look());
    if (is_new) {
      highest = std::max(highest, place_well(segment.own, segment.obstacles, base, enough));
      for (const Rectangle& rectangle : segment.own) found->second.push_back(rectangle.offset);
    }
    for (std::size_t i = 0; i < born[s].size(); ++i) at(born[s][i]).offset = found->second[i];

    if (s == cuts.size()) break;
    alive.insert(alive.end(), born[s].begin(), born[s].end());
    const auto is_dead = [&](int index) { return at(index).last < cuts[s]; };
    alive.erase(std::remove_if(alive.begin(), alive.end(), is_dead), alive.end());
  }
  return highest;
}

/// place(), with or without cuts.
std::int64_t place_segments(Rectangles& rectangles, int times, const std::vector<int>& cuts,
                            std::int64_t base) {
  const int half_a_segment = times / static_cast<int>(2 * cuts.size() + 2);
  std::vector<int> lasting, passing;
  Rectangles zone;
  for (int r = 0; r < static_cast<int>(rectangles.size()); ++r) {
    const Rectangle& rectangle = rectangles[static_cast<std::size_t>(r)];
    const auto cut = std::upper_bound(cuts.begin(), cuts.end(), rectangle.first);
    const bool crosses = cut != cuts.end() && *cut <= rectangle.last;
    if (crosses && rectangle.last - rectangle.first > half_a_segment) {
      lasting.push_back(r);
      zone.push_back(rectangle);
    } else {
      passing.push_back(r);
    }
  }
  const std::int64_t end_of_zone = place_well(zone, {}, base, base + most_alive(zone));
  for (std::size_t i = 0; i < lasting.size(); ++i)
    rectangles[static_cast<std::size_t>(lasting[i])].offset = zone[i].offset;
  return place_passing(rectangles, passing, times, cuts, end_of_zone);
}

}  // namespace

std::int64_t place(Rectangles& rectangles, int times, const std::vector<int>& cuts,
                   std::int64_t base) {
  std::int64_t highest = place_segments(rectangles, times, cuts, base);
  // Where all pairs can be looked at, what lasts and what passes may share bytes.
  if (cuts.empty() || rectangles.size() > few || highest <= base + most_alive(rectangles))
    return highest;
  Rectangles others = rectangles;
  const std::int64_t end = place_segments(others, times, {}, base);
  if (end >= highest) return highest;
  rectangles = std::move(others);
  return end;
}

}  // namespace ostrakon::plan
