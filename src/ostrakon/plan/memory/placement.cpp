// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/memory/placement.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

namespace ostrakon::plan {
namespace {

/// Returns the peak of live bytes.
std::int64_t most_alive(const Rectangles& rectangles, int times) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(times) + 1, 0);
  for (const Rectangle& rectangle : rectangles) {
    change[static_cast<std::size_t>(rectangle.first)] += rectangle.bytes;
    change[static_cast<std::size_t>(rectangle.last) + 1] -= rectangle.bytes;
  }
  std::int64_t live_bytes = 0, most = 0;
  for (std::int64_t by : change) most = std::max(most, live_bytes += by);
  return most;
}

/// Returns the rectangles in order of size, the largest first; equal sizes by begin or, with
/// `backward`, by end from the last.
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

/// Bytes that are taken: sorted runs of offsets, none of which touch.
class Taken {
 public:
  void add(std::int64_t begin, std::int64_t end) {
    // All runs that touch the new one are merged with it.
    const auto from = first_beyond(begin - 1);
    auto to = from;
    for (; to != runs_.end() && to->begin <= end; ++to) {
      begin = std::min(begin, to->begin);
      end = std::max(end, to->end);
    }
    if (from == to) {
      runs_.insert(from, {begin, end});
    } else {
      *from = {begin, end};
      runs_.erase(from + 1, to);
    }
  }

  /// Returns the lowest offset from `offset` on with that many free bytes.
  std::int64_t lowest_free(std::int64_t offset, std::int64_t bytes) {
    for (auto run = first_beyond(offset); run != runs_.end() && run->begin < offset + bytes; ++run)
      offset = run->end;
    return offset;
  }

 private:
  struct Run {
    std::int64_t begin = 0, end = 0;
  };

  /// Returns the first run that ends above `offset`.
  std::vector<Run>::iterator first_beyond(std::int64_t offset) {
    return std::upper_bound(runs_.begin(), runs_.end(), offset,
                            [](std::int64_t value, const Run& run) { return value < run.end; });
  }

  std::vector<Run> runs_;
};

/// Numbers the times at which rectangles begin: of two with overlapping lifetimes, one is live when
/// the other begins, so no other times matter.
class Begins {
 public:
  Begins(const Rectangles& rectangles, int times) : number_(static_cast<std::size_t>(times), 0) {
    for (const Rectangle& rectangle : rectangles)
      number_[static_cast<std::size_t>(rectangle.first)] = 1;
    std::partial_sum(number_.begin(), number_.end(), number_.begin());
  }

  std::size_t count() const { return number_.empty() ? 0 : at(number_.size() - 1) + 1; }
  std::size_t first(const Rectangle& rectangle) const {
    return at(static_cast<std::size_t>(rectangle.first));
  }
  std::size_t last(const Rectangle& rectangle) const {
    return at(static_cast<std::size_t>(rectangle.last));
  }

 private:
  /// Returns the index of the last begin up to `time`.
  std::size_t at(std::size_t time) const { return static_cast<std::size_t>(number_[time]) - 1; }

  std::vector<int> number_;  // number of begins up to each time
};

/// The placed rectangles in a segment tree over time (J. L. Bentley, 1977). A rectangle's lifetime
/// is a few nodes of the tree, the largest that lie inside it; rectangles that are live at the same
/// time are found at these nodes and those above them. Equal rectangles, one after the other in
/// time or one above the other, are one run of bytes there, however many they are.
class Placed {
 public:
  explicit Placed(const Begins& begins) : begins_(begins) {
    while (leaves_ < begins_.count()) leaves_ *= 2;
    always_live_.resize(leaves_);
    sometimes_live_.resize(2 * leaves_);
  }

  /// Returns the lowest offset from `base` on at which the rectangle intersects no placed one.
  std::int64_t lowest_free(const Rectangle& rectangle, std::int64_t base) {
    obstacles_.clear();
    visit(
        rectangle, [&](std::size_t inside) { obstacles_.push_back(&sometimes_live_[inside]); },
        [&](std::size_t above) { obstacles_.push_back(&always_live_[above]); });
    // The offset rises until the range is free at all times.
    std::int64_t offset = base;
    std::size_t next = 0;
    for (std::size_t to_check = obstacles_.size(); to_check > 0; --to_check) {
      const std::int64_t before = offset;
      offset = obstacles_[next]->lowest_free(offset, rectangle.bytes);
      if (offset != before) to_check = obstacles_.size();
      if (++next == obstacles_.size()) next = 0;
    }
    return offset;
  }

  void add(const Rectangle& rectangle) {
    const auto take = [&](Taken& taken) { taken.add(rectangle.offset, rectangle.end()); };
    visit(
        rectangle,
        [&](std::size_t inside) {
          if (inside < leaves_) take(always_live_[inside]);
          take(sometimes_live_[inside]);
        },
        [&](std::size_t above) { take(sometimes_live_[above]); });
  }

 private:
  /// Calls inside(node) for the largest nodes whose times are all in a lifetime, and above(node)
  /// for nodes that have other times, too.
  template <class Inside, class Above>
  void visit(const Rectangle& rectangle, const Inside& inside, const Above& above) const {
    const std::size_t first = leaves_ + begins_.first(rectangle);
    const std::size_t last = leaves_ + begins_.last(rectangle);
    for (std::size_t begin = first, end = last + 1; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) inside(begin++);
      if (end % 2 == 1) inside(--end);
    }
    std::size_t low = first / 2, high = last / 2;
    for (std::size_t width = 2; low > 0; low /= 2, high /= 2, width *= 2) {
      if (low * width < first || (low + 1) * width > last + 1) above(low);
      if (high != low && (high + 1) * width > last + 1) above(high);
    }
  }

  const Begins& begins_;
  std::size_t leaves_ = 1;          // at least one per time: a power of two
  std::vector<Taken> always_live_;  // per inner node of the tree: bytes that are live at all of its
                                    // times, but not at all of its parent's
  std::vector<Taken> sometimes_live_;  // per node: bytes that are live at some of its times, but
                                       // not `always_live_` in a node above it
  std::vector<Taken*> obstacles_;
};

/// Places `rectangles` one by one in the given order, each at the lowest offset from `base` where
/// it intersects none, until one of them ends at `limit` or above. Returns the highest end.
std::int64_t place_in_order(Rectangles& rectangles, const std::vector<int>& order,
                            const Begins& begins, std::int64_t base, std::int64_t limit) {
  Placed placed(begins);
  std::int64_t highest = base;
  for (int index : order) {
    if (highest >= limit) break;
    Rectangle& rectangle = rectangles[static_cast<std::size_t>(index)];
    rectangle.offset = base;
    if (rectangle.bytes == 0) continue;
    rectangle.offset = placed.lowest_free(rectangle, base);
    placed.add(rectangle);
    highest = std::max(highest, rectangle.end());
  }
  return highest;
}

}  // namespace

std::int64_t place(Rectangles& rectangles, int times, std::int64_t base) {
  constexpr int tries = 4;
  constexpr std::size_t many = 2000;
  const bool is_many = rectangles.size() > many;
  const std::int64_t bound = base + most_alive(rectangles, times);
  const Begins begins(rectangles, times);
  Rectangles placed = rectangles;
  constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
  std::int64_t least = no_limit;
  for (bool backward : {false, true}) {
    std::vector<int> order = largest_first(rectangles, backward);
    std::int64_t before = no_limit;
    for (int i = 0; i < tries; ++i) {
      // All but the last try run to the end, as the next one learns from it; the last one counts
      // only if it is better.
      const std::int64_t limit = i + 1 < tries ? no_limit : least;
      const std::int64_t highest = place_in_order(placed, order, begins, base, limit);
      if (highest < least) {
        least = highest;
        rectangles = placed;
      }
      if (least <= bound + bound / 200) return least;
      // With many rectangles a further try hardly ever helps then, and takes long.
      if (is_many && highest >= before) break;
      before = highest;
      std::stable_partition(order.begin(), order.end(), [&](int index) {
        return placed[static_cast<std::size_t>(index)].end() > bound;
      });
    }
  }
  return least;
}

}  // namespace ostrakon::plan
