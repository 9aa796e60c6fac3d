// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/ranks.hpp>

#include <mpi.h>

#include <ostrakon/base/process.hpp>
#include <ostrakon/base/text.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/trainer/step_size.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

mesh::Mesh make_mesh(const config::Settings& settings, MPI_Comm parent, bool dry_run) {
  comm::Communicator world = comm::Communicator::duplicate(parent);
  comm::require_agreement(world, "ranks have different settings", config::facts_of(settings));
  world.run_collectively([&] { config::check_ranks(settings, world.size()); });
  mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node), settings.shard_group,
                  static_cast<int>(settings.pipeline));
  if (!dry_run) world.run_collectively([&] { require_possible_step(settings, mesh); });
  return mesh;
}

}  // namespace

Ranks make_ranks(const config::Settings& settings, MPI_Comm parent, bool dry_run) {
  mesh::Mesh mesh = make_mesh(settings, parent, dry_run);
  const int matrix_threads = set_matrix_threads(settings, mesh.world());
  return {std::move(mesh), matrix_threads};
}

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
