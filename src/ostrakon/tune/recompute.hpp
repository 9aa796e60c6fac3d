// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <iosfwd>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/tune/search.hpp>
#include <string>
#include <vector>

// What memory.activation_checkpointing = auto stands for on some ranks: what blocks keep for
// backward and what they compute again. Other than choose.hpp it asks for no time, so that it needs
// no description of the machine: settings are ordered by what they compute again, all plans of a
// run are made with one after the other, and the first that fits is taken.

namespace ostrakon::tune {

struct RankCounts {
  int ranks = 1, ranks_per_node = 1;
};

/// What was chosen where a deck leaves open what is computed again.
struct RecomputeChoice {
  config::Settings settings;         ///< of the deck, but with what was chosen
  std::vector<std::string> changes;  ///< SECTION.KEY=VALUE of what was chosen
  /// A run takes these. Without a device, `device` is the sum of both arenas, which share its
  /// memory.
  Memory arenas;
  Memory room;
};

/// The settings of a deck that compute the least again and fit `room`: of what blocks keep, and
/// then, where parameters are gathered and the deck does not give parallel.reshard_after_forward,
/// of how long these stay. Changes no bit of a result. `threads`: on which steps are planned; no
/// choice depends on it. Throws Error where the deck does not fit these ranks, or nothing fits the
/// room, naming the smallest.
RecomputeChoice choose_recompute(const config::Settings& deck, const RankCounts& on,
                                 const Memory& room, int threads);

/// Bytes that the arenas of each rank may take: the least of all ranks of what is free on its
/// device and on its host for each of those that share it, but for a sixteenth and what a process
/// takes besides, and no more than memory.limit of the deck. Collective over the mesh.
Memory room_of_run(const config::Settings& deck, mesh::Mesh& mesh);

/// The settings of a run with what memory.activation_checkpointing = auto stands for on its ranks;
/// the same where it has another value. Rank 0 chooses, and writes to `out` what it chose.
/// Collective over `parent`. Throws CollectiveError as choose_recompute.
config::Settings choose_recompute_for_run(config::Settings settings, MPI_Comm parent,
                                          std::ostream& out);

}  // namespace ostrakon::tune
