// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/shell_word.hpp>
#include <ostrakon/scaling/study.hpp>
#include <string>

namespace ostrakon::scaling {

/// The values for the placeholders of a job script.
struct Job {
  std::string name;  ///< "ostrakon-4"
  int ranks = 1;
  int nodes = 1;
  int ranks_of_node = 1;
  int repeat = 1;       ///< number of runs, one after the other
  std::string time;     ///< time limit of the job: "01:00:00"
  std::string program;  ///< path of ostrakon-train
};

/// Returns the template of a launcher, with the placeholders @NAME@, @RANKS@, @NODES@,
/// @RANKS_OF_NODE@, @TIME@, @REPEATS@ and @PROGRAM@.
std::string job_template(Launcher launcher);

/// Fills in a template. Throws Error, beginning with `source`, where it has another @WORD@, or no
/// @PROGRAM@.
std::string render_template(const std::string& job_template, const Job& job,
                            const std::string& source);

/// Returns a script that starts, or submits, the jobs of all sizes.
std::string run_all_script(const Study& study);

}  // namespace ostrakon::scaling
