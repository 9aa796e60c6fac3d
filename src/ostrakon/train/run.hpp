// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>
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
  AllowedChanges allowed;   ///< since the checkpoint, or the weights, that it goes on from
  bool break_lock = false;  ///< take output.directory from a run that has it, see FolderLock
  bool dry_run = false;     ///< show the plan, then stop before anything is allocated
  bool terminal = false;    ///< one progress line, rewritten, instead of a line every so often
};

enum class RunEnd {
  done,
  stopped  ///< early, because it was asked to, with a checkpoint to go on from
};

/// Trains as the settings say: shows ranks, settings and plan; trains, validates, saves
/// checkpoints, writes <output.directory>/{deck.yaml, metrics.jsonl, weights.h5}; ends with a
/// summary of times. A weights.h5 that is there is renamed to weights.previous.h5 before the first
/// step, and another run's metrics.jsonl to metrics.previous.jsonl, each to .previous-2 and so on
/// where that is taken. A run that is stopped writes no
/// weights.h5: its checkpoint has them. Collective over `parent`; Kokkos is initialized. Throws
/// AgreedError on all ranks for what a user can mend.
RunEnd run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options);

}  // namespace ostrakon::train
