// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::train {

/// Counts the last steps of a run, so far, that were all skipped. With fp16, gradients sometimes
/// overflow and the loss scale is lowered: such steps do not show that parameters are ruined.
class SkippedSteps {
 public:
  static constexpr std::int64_t most = 100;        ///< maximum in a row: see require_updates()
  static constexpr std::int64_t least_ruined = 3;  ///< number of last steps: see problem()

  /// The number of skipped steps up to the last step.
  std::int64_t in_a_row() const { return in_a_row_; }
  /// Continues from a checkpoint with `in_a_row` skipped steps. `overflowed`: see add(); of the
  /// last one.
  void restore(std::int64_t in_a_row, bool overflowed);
  /// Adds a step: `why` its update was skipped. `overflowed`: whether only the loss scale was too
  /// large.
  void add(const std::string& why, bool overflowed = false);
  /// Restarts the count, after a step that was not skipped.
  void clear() { *this = SkippedSteps(); }

  /// Throws CollectiveError where step `step`, the last one, is one too many: a run whose steps
  /// change nothing any more ends. The count is the same on all ranks, so that all of them throw.
  void require_updates(std::int64_t step) const;
  /// Returns what is wrong with a run that ends after step `last`; "" if its parameters were
  /// updated recently.
  std::string problem(std::int64_t last) const;

 private:
  std::int64_t in_a_row_ = 0, not_overflowed_ = 0;
  std::string why_;  // why the last step was skipped; empty: not known
};

}  // namespace ostrakon::train
