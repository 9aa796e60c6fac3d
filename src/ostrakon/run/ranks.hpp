// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>

namespace ostrakon::train {

/// The ranks of a run, which have agreed on its settings.
struct Ranks {
  mesh::Mesh mesh;
  int matrix_threads;  ///< per rank, for matrix products
};

/// Collective over `parent`: makes the mesh, and sets the threads of matrix products. Throws
/// CollectiveError where ranks have different settings, or settings do not fit the number of ranks;
/// unless `dry_run`, also where a step is too large to be planned, or its parameters for the host.
Ranks make_ranks(const config::Settings& settings, MPI_Comm parent, bool dry_run);

}  // namespace ostrakon::train
