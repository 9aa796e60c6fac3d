// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/files/folder_lock.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// Locks the folders of runs that contain `out`, directly or in their checkpoints: none if there is
/// no such run, two if a link leads from one run's folder to another's. Throws Error if a run is
/// active.
std::vector<std::unique_ptr<FolderLock>> lock_run_folders(const std::string& out);

}  // namespace ostrakon::apps
