// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/train/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Checkpoints that a run may resume from; the same on all ranks, but for `problems`.
struct FoundCheckpoints {
  std::vector<std::string> sound;     ///< paths, the newest first: those whose manifest is sound
  std::vector<std::string> damaged;   ///< paths of those whose manifest is damaged
  std::vector<std::string> problems;  ///< on rank 0, of each of `damaged`: what is wrong with it
  std::string note;                   ///< on rank 0: of checkpoint::follow_latest
  bool in_folder = false;             ///< all of a folder, rather than the one that was named
};

/// Looks for checkpoints, and changes nothing: in this run's `own` folder or, where `asked` has a
/// path, there: one checkpoint, a folder of them or that of a run. Rank 0 looks, and its `own`
/// remembers what it has read; one rank of every other node makes sure that rank 0 misses none.
/// Collective over `mesh.world()`; throws AgreedError where a file can't be read, or where hosts
/// see different checkpoints.
FoundCheckpoints find_resumable(mesh::Mesh& mesh, const checkpoint::Folder& own,
                                const std::optional<std::string>& asked);

/// A checkpoint that all ranks read: rank 0 reads its manifest, and every rank looks at some of its
/// files. Collective; throws AgreedError, and AgreedDamage where another checkpoint may do.
std::unique_ptr<checkpoint::CheckpointReader> open_checkpoint(mesh::Mesh& mesh,
                                                              const std::string& path);

/// What a run asks and is told when it looks for a checkpoint to go on from.
struct ResumeCalls {
  /// On every rank: throws Error where the run can't go on from a sound checkpoint, though its
  /// parameters and state fit. `path` is that of the checkpoint.
  std::function<void(const checkpoint::Manifest& manifest, const std::string& path)> require_fit;
  /// Is told of one that is passed over; what it throws ends the search.
  std::function<void(const std::string& path, const AgreedDamage& damage)> note_damage;
  const char* to_what = "";  ///< what it has to fit, for messages: " the deck"
};

struct RestoredCheckpoint {
  std::string path;
  std::unique_ptr<checkpoint::CheckpointReader> reader;  ///< null: none
};

/// Restores the trainer's state from the first checkpoint of `paths` that is not damaged. What
/// can't be read just now may be good: then a run had better not go back to an older one. None
/// where all are damaged. Collective; throws AgreedError.
RestoredCheckpoint restore_first(mesh::Mesh& mesh, Trainer& trainer,
                                 const std::vector<std::string>& paths, const ResumeCalls& calls);

}  // namespace ostrakon::train
