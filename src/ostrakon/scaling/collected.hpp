// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostrakon/scaling/factors.hpp>
#include <ostrakon/scaling/statistics.hpp>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <vector>

namespace ostrakon::scaling {

/// A step that took much longer than the others of its run: see find_outliers().
struct OutlierStep {
  std::int64_t step = 0;
  double seconds = 0.0;
  double usual = 0.0;  ///< median of the run's steps, in seconds
  bool is_traced = false;
  // The cause: the stream and rank whose time grew most over its median in traced steps.
  std::string stream;  ///< "gather"; "waiting" where no stream ran
  int rank = 0;        ///< rank of that stream
  double more = 0.0;   ///< growth in seconds
};

/// The measurements of a run.
struct CollectedRun {
  std::string folder;  ///< relative to the study's folder: "ranks-4/run-1"
  int ranks = 1;
  int run = 1;  ///< number of the run among those of its size
  int hosts = 1;
  std::int64_t steps = 0;  ///< steps after warm-up, which count
  Interval step_seconds;
  double tokens_per_second = 0.0;  ///< at the mean step
  double tokens_per_second_per_rank = 0.0;
  double mfu = 0.0;            ///< mean over steps, as a share
  bool mfu_uncertain = false;  ///< whether mfu of any step is an upper bound
  std::int64_t peak_bytes = 0;
  std::int64_t traced_steps = 0;  ///< traced steps among those that count
  Shares shares;                  ///< shares of the traced steps
  Factors factors;
  std::vector<OutlierStep> outliers;
};

/// A run that can't be used.
struct MissingRun {
  std::string folder;
  std::string reason;
};

/// The runs of a study: collected.json.
struct Collected {
  Study study;
  std::vector<CollectedRun> runs;  ///< in the order of the study
  std::vector<MissingRun> missing;
};

/// Collects one run. Throws Error, naming the file, where it is unfinished or does not match the
/// study.
CollectedRun collect_run(const std::string& study_folder, const Study& study, const StudySize& size,
                         int run);

/// Collects all runs. Throws Error where a run can't be used; with `partial` it is listed as
/// missing instead. Throws Error where no run is left.
Collected collect(const std::string& study_folder, bool partial);

std::string collected_csv(const Collected& collected);

/// DIR/collected.json, with what results.hpp makes of the runs for those that show it; reading
/// makes it anew. Throw Error.
void write_collected(const std::string& study_folder, const Collected& collected);
Collected read_collected(const std::string& study_folder);

}  // namespace ostrakon::scaling
