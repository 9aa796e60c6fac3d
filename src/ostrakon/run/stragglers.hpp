// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <ostrakon/run/rank_times.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::train {

/// A rank for which others wait.
struct Straggler {
  int rank = 0;
  Part part = Part::compute;  ///< the work that takes it longer than other ranks
  double seconds = 0.0;       ///< of that work, in a step
  double median = 0.0;        ///< what it takes the ranks of its stage
  double share = 0.0;         ///< of the step: how much it costs
};

/// Finds ranks for which the others of their stage wait. Clocks of ranks differ, but the rank that
/// comes last to a collective waits in it for nobody: so a straggler communicates for less time
/// than the median, by at least 5 % of the step and five deviations (base/middle.hpp), and some
/// work of its own takes longer than the median by as much. The smaller of both is what it costs.
/// `ranks`: the times of all ranks, over the same steps.
std::vector<Straggler> find_stragglers(const std::vector<RankTimes>& ranks);

/// Returns the seconds of a step that communication takes the rank that waits the least. Ranks of
/// other stages may all wait for one stage in it, so stages are not told apart.
double least_communication(const std::vector<RankTimes>& ranks);

/// Follows the times of all ranks over a run, and says which are late, where it matters.
class StragglerLog {
 public:
  /// `hosts`: of each rank; `every`: steps of a whole window.
  StragglerLog(std::vector<std::string> hosts, std::int64_t every)
      : hosts_(std::move(hosts)), every_(every) {}

  /// Adds times of all ranks, means over so many steps. Returns lines on ranks that were late in
  /// this window and in the one before, or on communication that takes all ranks longer than in
  /// most of the last 16 windows, while no rank's own work does: a line in the 2nd, 4th, 8th, ...
  /// window in a row. Communication in less than half a window is not judged. Most often empty.
  std::string add(const std::vector<RankTimes>& ranks, std::int64_t steps);
  /// What was found in the last window alone.
  const std::vector<Straggler>& late() const { return late_; }
  /// Lines on ranks that were late over all windows; empty without any.
  std::string summary() const;

 private:
  /// Seconds of a step.
  struct Window {
    double communication = 0.0;    ///< least_communication()
    std::vector<double> own_work;  ///< of each rank
  };

  std::string describe(const std::vector<Straggler>& late) const;
  std::string judge_communication(const std::vector<RankTimes>& ranks, std::int64_t steps);
  std::string compare_with_recent(const Window& now, double step);

  const std::vector<std::string> hosts_;  // of each rank
  const std::int64_t every_;
  std::vector<RankTimes> sums_;  // of each rank
  std::int64_t steps_ = 0;
  std::vector<Straggler> late_;
  std::map<int, int> windows_;  // in a row, in which a rank was late
  std::deque<Window> recent_;   // the last ones, also those in which communication was slow
  int slow_windows_ = 0;        // in a row
};

}  // namespace ostrakon::train
