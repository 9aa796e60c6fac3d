// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Checkpoints that a run may resume from; the same on all ranks, except `problems` and `note`.
struct FoundCheckpoints {
  std::vector<std::string> sound;     ///< paths of checkpoints with a sound manifest, the newest
                                      ///< first
  std::vector<std::string> damaged;   ///< paths of checkpoints with a damaged manifest
  std::vector<std::string> problems;  ///< on rank 0, for each of `damaged`: what is wrong with it
  std::string note;                   ///< on rank 0: the note of checkpoint::follow_latest
  bool in_folder = false;             ///< all checkpoints of a folder, rather than a named one
};

/// Searches checkpoints, and changes nothing: in this run's `own` folder or, if `asked` has a path,
/// there: one checkpoint, a folder of them or a run's folder. Rank 0 searches, and its `own` caches
/// what it has read; one rank of every other node checks that rank 0 misses none. Collective over
/// `mesh.world()`; throws CollectiveError where a file can't be read, or where hosts see different
/// checkpoints.
FoundCheckpoints find_resumable(mesh::Mesh& mesh, const checkpoint::Folder& own,
                                const std::optional<std::string>& asked);

/// Opens a checkpoint for all ranks: rank 0 reads its manifest, and every rank checks some of its
/// files. Collective; throws CollectiveError, or CollectiveDamagedError if another checkpoint may
/// be sound.
std::unique_ptr<checkpoint::CheckpointReader> open_checkpoint(mesh::Mesh& mesh,
                                                              const std::string& path);

/// Callbacks of a search for a checkpoint to resume from.
struct ResumeCalls {
  /// Called on every rank: throws Error where the run can't resume from a sound checkpoint, though
  /// its parameters and state fit. `path` is the checkpoint's.
  std::function<void(const checkpoint::Manifest& manifest, const std::string& path)> require_fit;
  /// Called with a damaged checkpoint that is passed over; if it throws, the search ends.
  std::function<void(const std::string& path, const CollectiveDamagedError& damage)> note_damage;
  const char* to_what = "";  ///< for messages, what a checkpoint has to fit: " the deck"
};

struct RestoredCheckpoint {
  std::string path;
  std::unique_ptr<checkpoint::CheckpointReader> reader;  ///< null: none
};

/// Restores the trainer's state from the first checkpoint of `paths` that is not damaged; returns
/// none if all are. A checkpoint that can't be read at the moment may be sound, so it is an error:
/// an older one is not taken instead. Collective; throws CollectiveError.
RestoredCheckpoint restore_first(mesh::Mesh& mesh, Trainer& trainer,
                                 const std::vector<std::string>& paths, const ResumeCalls& calls);

}  // namespace ostrakon::train
