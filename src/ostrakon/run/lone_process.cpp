// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/lone_process.hpp>

#include <mpi.h>

#include <ostrakon/base/process.hpp>
#include <ostrakon/base/text.hpp>

namespace ostrakon::train {

std::string why_alone() {
  int ranks = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks > 1) return "";
  const auto together = started_together();
  if (!together) return "";
  return text(together->starter, " started ", together->at_least ? "at least " : "",
              together->processes, " processes (", together->variable, " = ", together->value,
              "), but MPI knows of 1 rank here: each process is a run of its own. To make them "
              "ranks of one run, start them with mpiexec of the MPI that this program is built "
              "with, or with srun --mpi=pmix (docs/jobs.md)");
}

}  // namespace ostrakon::train
