// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>

namespace ostrakon::tune {

/// The settings of a run with what parallel.choose says chosen for its ranks, and without
/// parallel.choose; the same where it is empty. Rank 0 chooses, and prints what it chose and
/// expects. Collective over `parent`. Throws CollectiveError where the machine file can't be read,
/// or as choose.
config::Settings choose_for_run(config::Settings settings, MPI_Comm parent);

}  // namespace ostrakon::tune
