// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// The fields of a row of metrics.jsonl that a study uses.
struct MetricsRow {
  std::int64_t step = 0;
  std::int64_t tokens = 0;  ///< tokens of all steps so far
  double seconds = 0.0;     ///< time of this step
  double mfu = 0.0;
  bool mfu_uncertain = false;
  std::int64_t peak_bytes = 0;
};

/// Reads the rows of steps 1 to `study.steps` of a run from `file`. Throws Error, naming the file,
/// the line, and what was expected, where the file is missing, a row is torn or not of a step,
/// steps are missing, or a step has another number of tokens than `size`.
std::vector<MetricsRow> read_metrics(const std::string& file, const Study& study,
                                     const StudySize& size);

}  // namespace ostrakon::scaling
