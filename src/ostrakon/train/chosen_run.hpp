// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>

namespace ostrakon::train {

/// Returns the settings of a run with the layout that parallel.choose asks for, and without
/// parallel.choose; unchanged if it is empty. Rank 0 chooses, and prints its choice and prediction.
/// Collective over `parent`. Throws AgreedError where the machine file can't be read, or as
/// choose_layouts.
config::Settings with_chosen_layout(config::Settings settings, MPI_Comm parent);

}  // namespace ostrakon::train
