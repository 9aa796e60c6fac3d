// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/mesh/mesh.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Checkpoints that a run may go on from; the same on all ranks, but for `problems`.
struct FoundCheckpoints {
  std::vector<std::string> sound;     ///< paths, the newest first: those whose manifest is sound
  std::vector<std::string> damaged;   ///< paths of those whose manifest is damaged
  std::vector<std::string> problems;  ///< on rank 0, of each of `damaged`: what is wrong with it
  bool in_folder = false;             ///< all of a folder, rather than the one that was named
};

/// Looks for the checkpoints at `path`, and changes nothing: the folder of them of this run or, not
/// `automatic`, one checkpoint, a folder of them or that of a run. Rank 0 looks; one rank of every
/// other node makes sure that rank 0 misses none. Collective over `mesh.world()`; throws
/// AgreedError where a file can't be read, or where hosts see different checkpoints.
FoundCheckpoints find_resumable(mesh::Mesh& mesh, std::string path, bool automatic);

}  // namespace ostrakon::train
