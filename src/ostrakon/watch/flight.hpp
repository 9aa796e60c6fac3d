// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/watch/progress.hpp>
#include <string>

namespace ostrakon::watch {

/// Writes FOLDER/rank-N.json: what this rank is doing, and the last actions of each stream, with
/// times in seconds before now. `reason`: why the job ends. Makes the folder, whose parent must
/// exist. Failures are ignored, as the job ends in any case.
void write_flight_record(const std::string& folder, const Progress& progress, const Record& record,
                         const std::string& reason);

/// Why the watchdog has ended a job.
struct Verdict {
  std::uint64_t job = 0;  ///< a random number that its ranks have in common
  std::string reason;
  int rank = -1;     ///< who is at fault; -1: no rank alone
  std::string host;  ///< of that rank; empty where there is none
};

/// Appends a verdict to a file, a JSON object in a line of its own, as ostrakon-launch reads it.
/// Failures are ignored, as above.
void add_verdict(const std::string& path, const Verdict& verdict);

}  // namespace ostrakon::watch
