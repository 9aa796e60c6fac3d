// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/saving/continuation.hpp>
#include <string>

namespace ostrakon::train {

/// The checkpoint at which a run begins.
enum class Resume {
  none,       ///< step 1; checkpoints of an earlier run in its folder are set aside
  automatic,  ///< the newest of its checkpoints that is not damaged, or step 1 without any
  path        ///< a given checkpoint
};

struct RunOptions {
  Resume resume = Resume::none;
  std::string checkpoint;   ///< for Resume::path: its folder, or a folder of checkpoints, of which
                            ///< the newest
  AllowedChanges allowed;   ///< changes since the checkpoint, or weights, that it continues from
  bool break_lock = false;  ///< take output.directory from a run that has it, see FolderLock
  bool dry_run = false;     ///< show the plan, then stop before anything is allocated
  bool terminal = false;    ///< rewrite one progress line instead of printing several
};

}  // namespace ostrakon::train
