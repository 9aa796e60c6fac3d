// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// The checkpoint that a path means.
struct MeantCheckpoint {
  std::string path;
  std::string note;  ///< for people, where that is not what has the name; else empty
};

/// "<folder of checkpoints>/latest" means the checkpoint that was saved last, as manifests say: a
/// copy of the folder may have an old one of that name, a file system may have no links, and a run
/// that was killed may not have changed the link. Any other path means what has that name, and so
/// does this one where what is there can't be shown to be older: its reader says what is wrong.
MeantCheckpoint follow_latest(const std::string& path);

}  // namespace ostrakon::checkpoint
