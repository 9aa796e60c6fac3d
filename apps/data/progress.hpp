// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/text/sources/corpus.hpp>
#include <string>

namespace ostrakon::apps::data_program {

/// Tells how far a build has come, on the standard error: on a terminal a line that changes, else a
/// line every ten seconds.
class ProgressLine {
 public:
  /// `bytes`: of all files; 0 if it is not known. `id_bytes`: of an id in a token file, with
  /// whether it counts.
  ProgressLine(std::int64_t bytes, std::int64_t id_bytes);
  ~ProgressLine() { clear(); }

  void tell(const texts::Progress& progress);
  /// Clears a terminal's line, for other output.
  void clear();

  /// Ids that all files will have, as those so far have been; 0 while that is not known.
  std::int64_t expected_ids(const texts::Progress& progress) const;

 private:
  std::string line(const texts::Progress& progress) const;

  std::int64_t bytes_, id_bytes_;
  std::int64_t first_taken_ = -1;  // where this process began
  bool is_terminal_, is_shown_ = false;
  Stopwatch clock_;
  double told_ = 0.0;
};

}  // namespace ostrakon::apps::data_program
