// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/train/continuation.hpp>
#include <string>

namespace ostrakon::train {

/// Where a run begins.
enum class Resume {
  none,       ///< at step 1; checkpoints of an earlier run in its folder are set aside
  automatic,  ///< at the newest of its checkpoints that is not damaged, or at step 1 without any
  path        ///< at one checkpoint
};

struct RunOptions {
  Resume resume = Resume::none;
  std::string
      checkpoint;  ///< of Resume::path: its folder, or one of checkpoints, of which the newest
  AllowedChanges allowed;   ///< since the checkpoint, or the weights, that it continues from
  bool break_lock = false;  ///< take output.directory from a run that has it, see FolderLock
  bool dry_run = false;     ///< show the plan, then stop before anything is allocated
  bool terminal = false;    ///< one progress line, rewritten, instead of a line every so often
};

}  // namespace ostrakon::train
