// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ostrakon::watch {

/// Why the watchdog has ended a job.
struct Verdict {
  std::uint64_t job = 0;  ///< a random number that the job's ranks have in common
  std::int64_t step = 0;  ///< in which the rank was that says so
  std::string reason;     ///< one line for people
  int rank = -1;          ///< who is at fault; -1: no rank alone
  std::string host;       ///< of that rank; empty where no host is to blame
};

/// Writes a line to standard error, without std::cerr, whose lock a thread that is stuck may have.
void write_line(const std::string& line);

/// Writes a verdict to standard error, and where flight records are. `folder`: that of the run;
/// empty: there are no records.
void say_why(const Verdict& verdict, const std::string& folder);

/// Appends a verdict to FOLDER/watchdog.jsonl, a JSON object in a line of its own. Does nothing
/// where `folder` is empty, and where it can't, as the job ends in any case.
void add_verdict(const Verdict& verdict, const std::string& folder);

/// Reads them: of each job the first one, in order. Ranks that a cut link has separated from others
/// add verdicts of their own, later. Lines that can't be read are left out; none where there is no
/// such file.
std::vector<Verdict> read_verdicts(const std::string& folder);

}  // namespace ostrakon::watch
