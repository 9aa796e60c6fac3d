// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// The checkpoint that a path stands for.
struct ResolvedCheckpoint {
  std::string path;
  std::string note;  ///< for people, if `path` is another path; else empty
};

/// Returns the checkpoint for a path. "<folder of checkpoints>/latest" stands for the last saved
/// one by manifests: the link may be outdated in a copy of the folder or after a run was killed, or
/// missing on file systems without links. Any other path stands for itself, and so does `latest` if
/// it can't be shown to be older: its reader reports what is wrong.
ResolvedCheckpoint follow_latest(const std::string& path);

}  // namespace ostrakon::checkpoint
