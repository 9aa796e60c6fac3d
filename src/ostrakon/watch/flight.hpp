// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/watch/progress.hpp>
#include <string>

namespace ostrakon::watch {

/// Where flight records are in the folder of a run.
inline std::string flight_folder(const std::string& folder) { return folder + "/flight"; }

/// Writes FOLDER/rank-N.json: what this rank is doing, and the last actions of each stream, with
/// times in seconds before now. `reason`: why the job ends. Makes the folder, whose parent must
/// exist. Failures are ignored, as the job ends in any case.
void write_flight_record(const std::string& folder, const Progress& progress, const Record& record,
                         const std::string& reason);

}  // namespace ostrakon::watch
