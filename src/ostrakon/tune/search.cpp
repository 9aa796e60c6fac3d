// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/search.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <ostrakon/tune/candidate_cache.hpp>
#include <set>
#include <tuple>
#include <utility>

namespace ostrakon::tune {
namespace {

/// A pair of changes is tried only if its predicted time, from what each change does alone, is
/// below this factor times the best so far.
constexpr double hopeful = 1.02;
/// Nor is it tried unless its predicted memory is below this factor times the memory that there is.
constexpr double large = 1.1;
/// A start that stays slower than this, relative to the best of others, is given up.
constexpr double hopeless = 1.1;
/// What estimates of two changes at once may take in a round: some seconds.
constexpr double most_effort = 4e6;
/// By how much an estimate may be off, relatively.
constexpr double estimate_error = 0.01;

/// Counts through all points in the dimensions that `counts` has; the last is the fastest.
bool next(Point& point, const std::vector<int>& sizes, const std::vector<bool>& counts) {
  for (std::size_t d = point.size(); d-- > 0;) {
    if (!counts[d]) continue;
    if (++point[d] < sizes[d]) return true;
    point[d] = 0;
  }
  return false;
}

class Search {
 public:
  Search(Candidates& candidates, const Memory& room, std::size_t most)
      : candidates_(candidates),
        sizes_(candidates.sizes()),
        is_start_(candidates.are_starts()),
        room_(room),
        limit_{static_cast<double>(room.device), static_cast<double>(room.host)},
        most_(most),
        known_(candidates),
        list_(candidates, known_, room) {}

  SearchResult run() {
    const std::vector<Point> starts = find_starts();
    // Plans may need more memory than was estimated: then from the same starts with less of it.
    constexpr int rounds = 6;
    for (int round = 0; round < rounds; ++round) {
      effort_left_ = most_effort;
      for (const Point& start : starts) go_from(start);
      Point at = least_at_;
      std::optional<Score> best = least_;
      if (best && improve_by_detour(at, best)) go_from(at);
      if (!plan_the_fastest()) break;
    }
    plan_other_kinds();
    list_.take(Point(sizes_.size(), 0));  // estimates err: what is found is no slower than this
    const std::vector<Found> best = list_.fastest(most_);
    const std::optional<Found> smallest = best.empty() ? find_smallest() : std::nullopt;
    SearchResult found = known_.counts();
    found.best = best;
    found.smallest = smallest;
    return found;
  }

 private:
  /// Less is better: first the bytes that there is no room for, then seconds.
  struct Score {
    double excess = 0.0, seconds = 0.0;
    bool operator<(const Score& other) const {
      if (excess != other.excess) return excess < other.excess;
      return seconds < other.seconds * (1.0 - same);
    }
  };

  double excess(const Cost& cost) const {
    return std::max(0.0, static_cast<double>(cost.memory.device) - limit_.device) +
           std::max(0.0, static_cast<double>(cost.memory.host) - limit_.host);
  }

  /// False where it is not possible, or by its bounds is hardly better than `best`.
  bool may_help(const Point& point, const std::optional<Score>& best) {
    const std::optional<Cost>& bound = known_.bound(point);
    if (!bound || too_large_.count(point) > 0) return false;
    if (!best) return true;
    const Score least = {excess(*bound), bound->seconds * least_above_bound()};
    return least < *best &&
           !(least_ && least_->excess == 0.0 && least.seconds > hopeless * least_->seconds);
  }

  std::optional<Cost> estimate(const Point& point) {
    const std::optional<Cost>& bound = known_.bound(point);
    if (!bound) return std::nullopt;
    const std::optional<Cost>& cost = known_.estimate(point);
    if (cost && bound->seconds > 0.0) closest_ = std::min(closest_, cost->seconds / bound->seconds);
    return cost;
  }

  /// Returns the score of a point; nullopt where it can't help.
  std::optional<Score> score(const Point& point, const std::optional<Score>& best) {
    if (!may_help(point, best)) return std::nullopt;
    const std::optional<Cost> cost = estimate(point);
    if (!cost) return std::nullopt;
    return Score{excess(*cost), cost->seconds};
  }

  /// Scores of those of them that may help are asked for next.
  void expect(std::vector<Point> points, const std::optional<Score>& best) {
    points.erase(std::remove_if(points.begin(), points.end(),
                                [&](const Point& point) { return !may_help(point, best); }),
                 points.end());
    known_.expect(std::move(points));
  }

  /// How far above its bound an estimate is expected to be at least: most of what the one that is
  /// closest to its own is, so far. Others may be closer where theirs are far.
  double least_above_bound() const {
    constexpr double most_of = 0.7, most = 1.25;
    return std::min(most, 1.0 + most_of * (closest_ - 1.0));
  }

  std::vector<Point> find_starts() {
    const std::vector<bool>& counts = is_start_;
    std::vector<std::pair<double, Point>> all;
    Point point(sizes_.size(), 0);
    do {
      if (known_.bound(point)) all.emplace_back(known_.bound(point)->seconds, point);
    } while (next(point, sizes_, counts));
    std::sort(all.begin(), all.end(), comes_first);
    constexpr std::size_t most_estimates = 48;
    all.resize(std::min(all.size(), most_estimates));
    std::vector<std::pair<double, Point>> timed;
    // Others than the fastest may become so with other settings.
    constexpr double slower = 1.35;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [bound, start] : all) {
      if (bound > slower * least) break;
      const std::optional<Cost> cost = estimate(start);
      if (!cost) continue;
      if (timed.empty()) {
        std::vector<Point> others;
        for (const auto& [of_other, other] : all)
          if (of_other <= slower * cost->seconds) others.push_back(other);
        known_.expect(std::move(others));
      }
      timed.emplace_back(cost->seconds, start);
      least = std::min(least, cost->seconds);
    }
    std::sort(timed.begin(), timed.end(), comes_first);
    // The fastest, and the fastest of each value.
    constexpr std::size_t most_starts = 5;
    std::vector<Point> starts = {Point(sizes_.size(), 0)};
    std::vector<std::set<int>> values(sizes_.size());
    for (const auto& [seconds, start] : timed) {
      if (seconds > slower * timed.front().first) break;
      bool is_new = starts.size() < most_starts;
      for (std::size_t d = 0; d < sizes_.size(); ++d)
        is_new |= counts[d] && start[d] != 0 && values[d].insert(start[d]).second;
      if (is_new && start != starts.front()) starts.push_back(start);
    }
    return starts;
  }

  /// Goes to `point` where that is better.
  bool step(Point& at, std::optional<Score>& best, const Point& point) {
    const std::optional<Score> found = score(point, best);
    if (!found || (best && !(*found < *best))) return false;
    best = found;
    at = point;
    return true;
  }

  /// Tries all values of a dimension.
  bool improve(Point& at, std::optional<Score>& best, std::size_t dimension) {
    std::vector<Point> points;
    Point point = at;
    for (int& value = point[dimension] = 0; value < sizes_[dimension]; ++value)
      points.push_back(point);
    expect(points, best);
    bool improves = false;
    for (const Point& one : points) improves |= step(at, best, one);
    return improves;
  }

  /// Tries two changes at once: those whose sum would help, or nearly, if each did what it does
  /// alone. So what needs more memory comes with what saves some.
  bool improve_by_two(Point& at, std::optional<Score>& best) {
    struct Change {
      std::size_t dimension;
      int value;
      bool is_possible = false;
      double seconds = 0.0, bytes = 0.0;  // that it adds
    };
    const Point from = at;
    const Cost before = *known_.estimate(from);
    const auto bytes_before = static_cast<double>(before.memory.device);
    std::vector<Change> changes;
    std::vector<Point> points;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      Point point = from;
      for (int& value = point[d] = 0; value < sizes_[d]; ++value) {
        const std::optional<Cost>& bound = known_.bound(point);
        if (value == from[d] || !bound) continue;
        if (bound->seconds * least_above_bound() > hopeful * before.seconds) continue;
        changes.push_back({d, value});
        points.push_back(point);
      }
    }
    known_.expect(points);
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const std::optional<Cost> cost = estimate(points[i]);
      changes[i].is_possible = cost.has_value();
      if (!cost) continue;
      changes[i].seconds = cost->seconds - before.seconds;
      changes[i].bytes = static_cast<double>(cost->memory.device) - bytes_before;
    }
    // One change of a dimension stays of those that do the same.
    std::set<std::tuple<std::size_t, double, double>> seen;
    changes.erase(std::remove_if(
                      changes.begin(), changes.end(),
                      [&](const Change& change) {
                        return !change.is_possible ||
                               !seen.emplace(change.dimension, change.seconds, change.bytes).second;
                      }),
                  changes.end());
    const auto may_help_together = [&](const Change& one, const Change& other) {
      if (other.dimension <= one.dimension) return false;
      return before.seconds + one.seconds + other.seconds <= hopeful * best->seconds &&
             (best->excess > 0.0 ||
              bytes_before + one.bytes + other.bytes <= large * limit_.device);
    };
    const auto with = [&](const Change& one, const Change& other) {
      Point point = from;
      point[one.dimension] = one.value;
      point[other.dimension] = other.value;
      return point;
    };
    struct Pair {
      const Change *one, *other;
      double excess, seconds;  // if each does what it does alone
    };
    std::vector<Pair> pairs;
    for (const Change& one : changes)
      for (const Change& other : changes)
        if (may_help_together(one, other))
          pairs.push_back({&one, &other,
                           std::max(0.0, bytes_before + one.bytes + other.bytes - limit_.device),
                           one.seconds + other.seconds});
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
      return std::pair(a.excess, a.seconds) < std::pair(b.excess, b.seconds);
    });
    points.clear();
    double effort_left = effort_left_ / 2.0;  // for other starts the rest
    for (const Pair& pair : pairs) {
      const Point point = with(*pair.one, *pair.other);
      if (!may_help(point, best)) continue;
      if (!known_.has_estimate(point)) {
        if (effort_left <= 0.0) continue;
        const double effort = candidates_.effort(point);
        effort_left -= effort;
        effort_left_ -= effort;
      }
      points.push_back(point);
    }
    expect(points, best);
    bool improves = false;
    for (const Point& point : points) improves |= step(at, best, point);
    return improves;
  }

  /// Tries changes that are faster and too large, the fastest first, each with changes of all that
  /// does not divide the work, which may make room for it.
  bool improve_by_detour(Point& at, std::optional<Score>& best) {
    if (best->excess > 0.0) return false;
    struct Change {
      double seconds;
      std::size_t dimension;
      Point point;
    };
    std::vector<Change> changes;
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      Point point = at;
      for (int& value = point[d] = 0; value < sizes_[d]; ++value) {
        if (value == at[d] || is_start_[d] || !known_.has_estimate(point)) continue;
        const std::optional<Cost>& cost = known_.estimate(point);
        if (cost && excess(*cost) > 0.0 && cost->seconds < best->seconds * (1.0 - same))
          changes.push_back({cost->seconds, d, point});
      }
    }
    std::stable_sort(changes.begin(), changes.end(),
                     [](const Change& a, const Change& b) { return a.seconds < b.seconds; });
    constexpr std::size_t most_detours = 3;
    changes.resize(std::min(changes.size(), most_detours));
    for (const Change& change : changes) {
      Point end = change.point;
      std::optional<Score> found = score(end, std::nullopt);
      // What made room at first may not be needed when all have been tried.
      for (int sweep = 0; sweep < 2; ++sweep)
        for (std::size_t d = 0; found && d < sizes_.size(); ++d)
          if (d != change.dimension && !is_start_[d]) improve(end, found, d);
      if (!found || !(*found < *best)) continue;
      at = end;
      best = found;
      return true;
    }
    return false;
  }

  /// Nothing more need be known of starts that come to nothing.
  bool is_hopeless(const std::optional<Score>& best) const {
    return least_ && least_->excess == 0.0 && best && best->seconds > hopeless * least_->seconds;
  }

  void go_from(Point at) {
    std::optional<Score> best = score(at, std::nullopt);
    if (least_) {
      // The changes that have helped another start are tried here.
      Point like_best = at;
      for (std::size_t d = 0; d < sizes_.size(); ++d)
        if (!is_start_[d]) like_best[d] = least_at_[d];
      step(at, best, like_best);
    }
    // The other dimensions are varied first: this start may be slow until they fit it.
    for (std::size_t d = 0; d < sizes_.size(); ++d) {
      if (is_start_[d]) continue;
      improve(at, best, d);
      if (is_hopeless(best)) return;
    }
    for (bool improves = true; improves;) {
      improves = false;
      for (std::size_t d = 0; d < sizes_.size(); ++d) improves |= improve(at, best, d);
      if (improves || !best || ends_.count(at) > 0) continue;
      if (!least_ || *best < *least_) {
        least_ = best;
        least_at_ = at;
      }
      if (is_hopeless(best)) continue;
      improves = improve_by_two(at, best);
    }
    ends_.insert(at);
  }

  struct Estimated {
    double seconds;
    Point point;
    std::string kind;
  };

  /// By estimate, of points that may fit. Of a kind's settings that make no difference, the first.
  std::vector<Estimated> in_order() {
    std::vector<std::pair<double, Point>> order;
    for (const auto& [point, cost] : known_.estimates())
      if (cost && too_large_.count(point) == 0 && excess(*cost) == 0.0)
        order.emplace_back(cost->seconds, point);
    std::sort(order.begin(), order.end(), comes_first);
    std::vector<Estimated> distinct;
    std::set<std::tuple<double, std::int64_t, std::string>> seen;
    for (const auto& [seconds, point] : order) {
      const std::string kind = candidates_.kind(point);
      if (seen.emplace(seconds, known_.estimate(point)->memory.device, kind).second)
        distinct.push_back({seconds, point, kind});
    }
    return distinct;
  }

  /// Less than `room` where what was estimated needs more.
  static void tighten(double& limit, std::int64_t estimated, std::int64_t needed,
                      std::int64_t room) {
    if (needed > room)
      limit = std::min(limit, static_cast<double>(estimated) * static_cast<double>(room) /
                                  static_cast<double>(needed));
  }

  /// Whether estimates of memory were too low for what is fast, so that it is worth another search.
  bool plan_the_fastest() {
    constexpr int most_that_fit = 6, most_of_kind = 2, most_too_large = 4;
    int fits = 0, too_large = 0;
    std::map<std::string, int> fits_of_kind;
    for (const auto& [seconds, point, kind] : in_order()) {
      if (seconds > list_.least_seconds() * (1.0 + estimate_error) || fits == most_that_fit)
        return false;
      // Estimates of one kind err alike.
      if (fits_of_kind[kind] == most_of_kind) continue;
      if (list_.take(point)) {
        ++fits;
        ++fits_of_kind[kind];
        continue;
      }
      too_large_.insert(point);
      if (!known_.seconds(point)) continue;
      if (++too_large < most_too_large) continue;
      const Memory &needed = known_.memory(point), &estimated = known_.estimate(point)->memory;
      tighten(limit_.device, estimated.device, needed.device, room_.device);
      tighten(limit_.host, estimated.host, needed.host, room_.host);
      ends_.clear();
      least_.reset();
      return true;
    }
    return false;
  }

  /// Some, and those that may be as fast as the fastest: estimates of another kind err otherwise.
  void plan_other_kinds() {
    const std::size_t enough = std::max<std::size_t>(most_, 4), most_kinds = enough + 4;
    std::map<std::string, int> tries;
    for (const auto& [seconds, point, kind] : in_order()) {
      const bool is_as_fast = seconds <= list_.least_seconds() * (1.0 + estimate_error);
      if (list_.empty() || list_.size() >= (is_as_fast ? most_kinds : enough)) return;
      if (list_.has(point) || ++tries[kind] > 2) continue;
      list_.take(point);
    }
  }

  /// Searches those with the least estimates of memory: where nothing fits, the search goes there.
  std::optional<Found> find_smallest() {
    const auto bytes_of = [&](const Memory& memory) {
      return memory.device + std::max<std::int64_t>(0, memory.host - room_.host);
    };
    std::set<std::pair<std::int64_t, Point>> order;
    for (const auto& [point, cost] : known_.estimates())
      if (cost) order.emplace(bytes_of(cost->memory), point);
    std::optional<Found> smallest;
    int tries_left = 4;
    for (const auto& [least, point] : order) {
      if (!known_.seconds(point)) continue;
      const Found found{point, {*known_.seconds(point), known_.memory(point)}};
      if (!smallest || bytes_of(found.cost.memory) < bytes_of(smallest->cost.memory))
        smallest = found;
      if (--tries_left == 0) break;
    }
    return smallest;
  }

  Candidates& candidates_;
  const std::vector<int> sizes_;
  const std::vector<bool> is_start_;
  const Memory room_;
  struct {
    double device, host;
  } limit_;  // of estimates, in bytes
  const std::size_t most_;
  CandidateCache known_;
  FastestOfKinds list_;
  std::optional<Score> least_;  // where any start has led
  Point least_at_;
  double effort_left_ = 0.0;                                  // in a round, for two changes at once
  double closest_ = std::numeric_limits<double>::infinity();  // of estimates over their bounds
  std::set<Point> too_large_, ends_;
};

}  // namespace

SearchResult search(Candidates& candidates, const Memory& room, std::size_t most) {
  return Search(candidates, room, most).run();
}

SearchResult search_all(Candidates& candidates, const Memory& room, std::size_t most) {
  CandidateCache known(candidates);
  FastestOfKinds list(candidates, known, room);
  const std::vector<int> sizes = candidates.sizes();
  std::optional<Found> smallest;
  Point point(sizes.size(), 0);
  do {
    const std::optional<Cost>& bound = known.bound(point);
    if (!bound || (!bound->memory.fits(room) && !list.empty())) continue;
    if (list.take(point) || !list.empty() || !known.seconds(point)) continue;
    if (!smallest || known.memory(point).device < smallest->cost.memory.device)
      smallest = {point, {*known.seconds(point), known.memory(point)}};
  } while (next(point, sizes, std::vector<bool>(sizes.size(), true)));
  SearchResult found = known.counts();
  found.best = list.fastest(most);
  if (found.best.empty()) found.smallest = smallest;
  return found;
}

}  // namespace ostrakon::tune
