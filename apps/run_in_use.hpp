// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/folder_lock.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// Holds the runs' folders that `out` will be in, itself or in their checkpoints: none where no run
/// was there, two where a link leads from one's to another's. Throws Error where a run is at work.
std::vector<std::unique_ptr<FolderLock>> hold_run_folders(const std::string& out);

}  // namespace ostrakon::apps
