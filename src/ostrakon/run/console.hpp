// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/run/metrics.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace ostrakon::train {

/// The output of a run: rank 0 prints, the others are silent. On a terminal each progress line
/// replaces the one before; elsewhere there is a line for some of the steps. Text that can't be
/// written because the disk is full waits for the next output, up to a megabyte.
class Console {
 public:
  struct Options {
    bool is_root = false;                         ///< whether this rank prints
    bool terminal = false;                        ///< whether a line can be rewritten
    std::int64_t steps = 1;                       ///< training.steps
    std::int64_t every = 1;                       ///< output.every: steps between lines
    std::function<double()> clock = seconds_now;  ///< seconds, for the time to go
  };
  /// `out` must outlive it.
  Console(std::ostream& out, const Options& options);

  bool is_root() const { return options_.is_root; }

  /// Prints text that has its own ends of lines on lines of its own; control characters in it are
  /// made visible.
  void say(const std::string& words);
  /// Ends a progress line that would be replaced, so that what is printed elsewhere next has its
  /// own line.
  void end_line();
  /// Prints the progress line of a step, if one is due. From the second step shown on it says how
  /// long the remaining ones take if they take as long as those since the first: with what is done
  /// between steps, such as validations and saves, but without the first step, which warms up.
  void show(const StepMetrics& metrics);
  /// Prints a line on a validation.
  void show(const ValidationMetrics& metrics);
  /// Prints a line for each file of questions.
  void show(const EvaluationMetrics& metrics);

 private:
  void put(const std::string& words);
  std::string time_to_go(std::int64_t step);

  std::ostream& out_;
  const Options options_;
  bool is_open_ = false;         ///< whether the progress line has no end yet
  std::string waiting_;          ///< text that could not be written
  std::int64_t first_step_ = 0;  ///< the first step shown; 0: none yet
  double first_end_ = 0.0;       ///< when it ended
};

/// Returns a line for each note, in the format of the lines before step 1.
std::string note_lines(const std::vector<std::string>& notes);

}  // namespace ostrakon::train
