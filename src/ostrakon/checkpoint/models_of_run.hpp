// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Whether a path is the output.directory of a run of ostrakon-train. A folder of safetensors, a
/// checkpoint and a folder of checkpoints are not. Throws Error where the system does not say.
bool is_run_folder(const std::string& path);

/// What holds the model of a run's folder, the best first: its weights.h5, which ends a run, or
/// else its checkpoints, the newest first; or those of a folder of checkpoints. Of those found
/// damaged, which are skipped, `tell` is given what is wrong. Throws Error where none is left.
std::vector<std::string> models_of_run(const std::string& folder,
                                       const std::function<void(const std::string&)>& tell);

}  // namespace ostrakon::checkpoint
