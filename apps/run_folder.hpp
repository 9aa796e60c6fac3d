// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// Whether a path is the output.directory of a run of ostrakon-train. A folder of safetensors, a
/// checkpoint and a folder of checkpoints are not.
bool is_run_folder(const std::string& path);

/// What holds the model of a run's folder, the best first: its weights.h5, which ends a run, or
/// else its checkpoints, the newest first. Those found damaged are skipped and reported to `log`, a
/// line each. Throws Error where none is left.
std::vector<std::string> models_of_run(const std::string& folder, std::ostream& log);

}  // namespace ostrakon::apps
