// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <string>

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

/// If environment variables show that several processes were started, but MPI knows only this one:
/// returns what that means and how to start ranks. Each process is a run of 1 rank then, which is
/// seldom intended. Returns "" otherwise.
std::string why_alone();

}  // namespace ostrakon::train
