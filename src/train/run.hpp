// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

struct RunOptions {
  bool dry_run = false;   ///< show the plan, then stop before anything is allocated
  bool terminal = false;  ///< one progress line, rewritten, instead of a line every so often
};

/// Trains as the settings say: shows ranks, settings and plan; trains, validates, writes
/// <output.directory>/{deck.yaml, metrics.jsonl, weights.h5}; ends with a summary of times. A
/// weights.h5 that is there is renamed to weights.previous.h5 before the first step.
/// Collective over `parent`; Kokkos is initialized. Throws AgreedError on all ranks for what a user
/// can mend.
void run(const config::Settings& settings, MPI_Comm parent, const RunOptions& options);

}  // namespace ostrakon::train
