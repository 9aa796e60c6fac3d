// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ostrakon::tune {

/// A point of a space of settings: of each dimension, which of its values.
using Point = std::vector<int>;

/// Memory of a rank, in bytes, on its device and on the host.
struct Memory {
  std::int64_t device = 0;
  std::int64_t host = 0;

  bool fits(const Memory& room) const { return device <= room.device && host <= room.host; }
};

constexpr std::int64_t any_bytes = std::numeric_limits<std::int64_t>::max();
constexpr Memory any_memory = {any_bytes, any_bytes};

/// What a step of a point takes: of time, and of a rank's memory.
struct Cost {
  double seconds = 0.0;
  Memory memory;
};

/// A space to search, and what can be asked of its points. The same question has the same answer;
/// each asks for more work than the one before.
class Candidates {
 public:
  virtual ~Candidates() = default;

  /// The values of each dimension; the point of zeros is where a search begins, and its values are
  /// taken where others are no faster.
  virtual std::vector<int> sizes() const = 0;
  /// Whether a search begins at each combination of a dimension's values with those of the others
  /// of which that holds.
  virtual std::vector<bool> are_starts() const = 0;
  /// Points of one kind are listed once: the fastest of them.
  virtual std::string kind(const Point& point) const = 0;

  /// Lower bounds of both; none where the point is not possible.
  virtual std::optional<Cost> bound(const Point& point) = 0;
  /// What an estimate takes, in actions of about a microsecond; of a point that has a bound.
  virtual double effort(const Point&) { return 0.0; }
  /// Estimates of these, which have bounds, may be asked for next: they may be made at once.
  virtual void expect(const std::vector<Point>&) {}
  /// About what seconds() and memory() say; none where it is not possible.
  virtual std::optional<Cost> estimate(const Point& point) = 0;
  /// Seconds of complete plans; none where it is not possible.
  virtual std::optional<double> seconds(const Point& point) = 0;
  /// Memory of complete plans; of a point that seconds() knows.
  virtual Memory memory(const Point& point) = 0;
};

struct Found {
  Point point;
  Cost cost;  ///< of complete plans
};

struct SearchResult {
  /// The fastest that fits, then the fastest of other kinds. Empty where none fits.
  std::vector<Found> best;
  /// Where none fits: the smallest that was found; none where no point is possible.
  std::optional<Found> smallest;
  std::int64_t bounded = 0, estimated = 0, planned = 0;  ///< points of which that was asked
};

/// The fastest points that fit `room`: `most` kinds of them at most.
///
/// Goes from the fastest starts along one dimension after the other, and then two at once, to the
/// value with the least estimate, as long as that helps; points that by their bounds are too large
/// or hardly faster are not estimated, and two changes at once only as long as the effort is not
/// too large, the most promising first. Plans the points with the least estimates. It may miss the
/// fastest, and finds the same at each call.
SearchResult search(Candidates& candidates, const Memory& room, std::size_t most);

/// Finds the same as search() would if it missed nothing: plans each point that the bounds do not
/// exclude.
SearchResult search_all(Candidates& candidates, const Memory& room, std::size_t most);

}  // namespace ostrakon::tune
