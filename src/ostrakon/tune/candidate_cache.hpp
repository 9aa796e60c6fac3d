// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <ostrakon/tune/search.hpp>
#include <string>
#include <utility>
#include <vector>

// What a search knows of points so far. Only search.cpp includes this file.

namespace ostrakon::tune {

/// What is slower by less, relatively, is taken as equal.
constexpr double same = 1e-4;

/// Answers are asked for once.
class CandidateCache {
 public:
  explicit CandidateCache(Candidates& candidates) : candidates_(candidates) {}

  const std::optional<Cost>& bound(const Point& point) {
    return once(bounds_, point, [&] { return candidates_.bound(point); });
  }
  /// Estimates of these are asked for next.
  void expect(std::vector<Point> points) {
    points.erase(std::remove_if(points.begin(), points.end(),
                                [&](const Point& point) { return estimates_.count(point) > 0; }),
                 points.end());
    if (points.size() > 1) candidates_.expect(points);
  }
  bool has_estimate(const Point& point) const { return estimates_.count(point) > 0; }
  const std::optional<Cost>& estimate(const Point& point) {
    return once(estimates_, point, [&] { return candidates_.estimate(point); });
  }
  const std::optional<double>& seconds(const Point& point) {
    return once(seconds_, point, [&] { return candidates_.seconds(point); });
  }
  const Memory& memory(const Point& point) {
    return once(memory_, point, [&] { return candidates_.memory(point); });
  }
  const std::map<Point, std::optional<Cost>>& estimates() const { return estimates_; }
  SearchResult counts() const {
    SearchResult counts;
    counts.bounded = static_cast<std::int64_t>(bounds_.size());
    counts.estimated = static_cast<std::int64_t>(estimates_.size());
    counts.planned = static_cast<std::int64_t>(seconds_.size());
    return counts;
  }

 private:
  template <class Answer, class Ask>
  static const Answer& once(std::map<Point, Answer>& known, const Point& point, const Ask& ask) {
    const auto found = known.find(point);
    return found != known.end() ? found->second : known.emplace(point, ask()).first->second;
  }

  Candidates& candidates_;
  std::map<Point, std::optional<Cost>> bounds_, estimates_;
  std::map<Point, std::optional<double>> seconds_;
  std::map<Point, Memory> memory_;
};

inline bool comes_first(const std::pair<double, Point>& one,
                        const std::pair<double, Point>& other) {
  return one.first != other.first ? one.first < other.first : one.second < other.second;
}

/// Plans points in the order of their estimates, and keeps the fastest that fits of each kind.
class FastestOfKinds {
 public:
  FastestOfKinds(Candidates& candidates, CandidateCache& known, const Memory& room)
      : candidates_(candidates), known_(known), room_(room) {}

  /// Whether it fits.
  bool take(const Point& point) {
    const std::optional<double>& seconds = known_.seconds(point);
    if (!seconds) return false;
    const std::string kind = candidates_.kind(point);
    const auto there = found_.find(kind);
    if (there != found_.end() && there->second.cost.seconds <= *seconds * (1.0 + same)) return true;
    const Memory& memory = known_.memory(point);
    if (!memory.fits(room_)) return false;
    found_[kind] = {point, {*seconds, memory}};
    return true;
  }
  bool has(const Point& point) const { return found_.count(candidates_.kind(point)) > 0; }
  bool empty() const { return found_.empty(); }
  std::size_t size() const { return found_.size(); }  // kinds

  std::vector<Found> fastest(std::size_t most) const {
    std::vector<Found> all;
    for (const auto& [kind, found] : found_) all.push_back(found);
    std::sort(all.begin(), all.end(), [](const Found& one, const Found& other) {
      return comes_first({one.cost.seconds, one.point}, {other.cost.seconds, other.point});
    });
    all.resize(std::min(all.size(), most));
    return all;
  }
  double least_seconds() const {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [kind, found] : found_) least = std::min(least, found.cost.seconds);
    return least;
  }

 private:
  Candidates& candidates_;
  CandidateCache& known_;
  const Memory room_;
  std::map<std::string, Found> found_;  // by kind
};

}  // namespace ostrakon::tune
