// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/folder_lock.hpp>
#include <string>

namespace ostrakon::apps {

/// Holds the run's folder that `out` will be in, itself or in its checkpoints, where a run has it
/// or has left its lock there; else nothing. Throws Error where a run is at work in it.
std::unique_ptr<FolderLock> hold_run_folder(const std::string& out);

}  // namespace ostrakon::apps
