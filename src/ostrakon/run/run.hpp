// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>
#include <ostrakon/run/question_files.hpp>
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
  OpenQuestions open_questions;  ///< for decks with training.evaluate
};

enum class RunEnd {
  done,
  stopped  ///< early, on request, with a checkpoint to resume from
};

/// Trains as the settings say: shows ranks, settings and plan; trains, validates, saves
/// checkpoints, writes <output.directory>/{deck.yaml, metrics.jsonl, weights.h5}; ends with a
/// summary of times. An existing weights.h5 is renamed to weights.previous.h5 before the first
/// step, and another run's metrics.jsonl to metrics.previous.jsonl, each to .previous-2 and so on
/// if that name is taken. A stopped run writes no weights.h5: its checkpoint has them. Settings are
/// final: parallel.choose is empty (tune::choose_for_run). Collective over `parent`; Kokkos must be
/// initialized. Throws CollectiveError on all ranks for errors that a user can correct.
RunEnd run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options);

}  // namespace ostrakon::train
