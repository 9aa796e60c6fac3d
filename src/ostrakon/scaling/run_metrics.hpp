// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// What a study takes from a row of metrics.jsonl.
struct MetricsRow {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  ///< of all steps so far
  double seconds = 0.0;     ///< of this step
  double mfu = 0.0;
  bool mfu_uncertain = false;
  std::int64_t peak_bytes = 0;
};

/// The rows of steps 1 to `study.steps` of a run, read from `file`. Throws Error, naming the file,
/// the line, and what was expected, where it is missing, a row is torn or is no row of a step,
/// steps are missing, or they are not of `size`: other tokens in a step.
std::vector<MetricsRow> read_metrics(const std::string& file, const Study& study,
                                     const StudySize& size);

}  // namespace ostrakon::scaling
