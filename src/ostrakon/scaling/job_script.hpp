// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/scaling/study.hpp>
#include <string>

namespace ostrakon::scaling {

/// What a job script is filled in with.
struct Job {
  std::string name;  ///< "ostrakon-4"
  int ranks = 1;
  int nodes = 1;
  int ranks_of_node = 1;
  int repeat = 1;       ///< runs, one after the other
  std::string time;     ///< limit of the job: "01:00:00"
  std::string program;  ///< path of ostrakon-train
};

/// The template of a launcher, with @NAME@, @RANKS@, @NODES@, @RANKS_OF_NODE@, @TIME@, @REPEATS@
/// and
/// @PROGRAM@ to be filled in.
std::string job_template(Launcher launcher);

/// Fills in a template. Throws Error, beginning with `source`, where it has another @WORD@, or no
/// @PROGRAM@.
std::string fill_in(const std::string& job_template, const Job& job, const std::string& source);

/// A script that starts, or submits, the jobs of all sizes.
std::string run_all_script(const Study& study);

/// A word for a POSIX shell, quoted where it has to be.
std::string shell_word(const std::string& text);

}  // namespace ostrakon::scaling
