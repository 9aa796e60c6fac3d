// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>
#include <ostrakon/run/run_options.hpp>

namespace ostrakon::train {

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
