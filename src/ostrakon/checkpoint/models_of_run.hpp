// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Whether a path is the output.directory of a run of ostrakon-train. A folder of safetensors, a
/// checkpoint and a folder of checkpoints are not. Throws Error if the system can't tell.
bool is_run_folder(const std::string& path);

/// Returns the files with the model of a run, the best first: weights.h5, which a finished run has,
/// or else its checkpoints, the newest first. `folder` may also be a folder of checkpoints. Damaged
/// ones are skipped, and reported to `tell`. Throws Error if none is left.
std::vector<std::string> models_of_run(const std::string& folder,
                                       const std::function<void(const std::string&)>& tell);

}  // namespace ostrakon::checkpoint
