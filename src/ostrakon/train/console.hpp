// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/train/metrics.hpp>
#include <ostream>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What a run prints: rank 0 does, the others keep silent. On a terminal the progress line is one
/// that the next replaces; elsewhere there is a line for some of the steps. What can't be written,
/// as the disk is full that the output goes to, is written with what comes next, up to a megabyte.
class Console {
 public:
  struct Options {
    bool is_root = false;    ///< whether this rank prints
    bool terminal = false;   ///< whether a line can be rewritten
    std::int64_t steps = 1;  ///< training.steps
    std::int64_t every = 1;  ///< output.every: steps between lines
  };
  /// `out` must outlive it.
  Console(std::ostream& out, const Options& options);

  bool is_root() const { return options_.is_root; }

  /// Prints words with their ends of lines; control characters in them are made visible.
  void say(const std::string& words);
  /// Ends a progress line that the next one would replace, so that the next output has a line of
  /// its own.
  void end_line();
  /// The progress line of a step, where one is due.
  void show(const StepMetrics& metrics);
  /// A line on a validation.
  void show(const ValidationMetrics& metrics);

 private:
  void put(const std::string& words);

  std::ostream& out_;
  const Options options_;
  bool is_open_ = false;  ///< the progress line has no end yet
  std::string waiting_;   ///< what could not be written
};

/// A line for each note, in the shape of what is shown before step 1.
std::string note_lines(const std::vector<std::string>& notes);

}  // namespace ostrakon::train
