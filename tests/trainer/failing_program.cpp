// SPDX-License-Identifier: Apache-2.0
// Fails as its argument says, on 3 ranks; those that don't fail are left in a barrier.
#include <mpi.h>

#include <chrono>
#include <ostrakon/base/error.hpp>
#include <ostrakon/training.hpp>
#include <string>
#include <thread>

namespace {

/// A barrier that leaves the cores to others while it waits.
void wait_for_all() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int is_done = 0; is_done == 0;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
  }
}

int fail(const ostrakon::Arguments& arguments) {
  ostrakon::Mesh mesh(MPI_COMM_WORLD);
  const std::string& which = arguments.at(0);
  const int rank = mesh.world().rank();
  const std::string of_rank = ostrakon::text("bad samples ", rank);
  if (which == "all") throw ostrakon::Error("bad samples");
  if (which == "all_differently") throw ostrakon::Error(of_rank);
  if (which == "all_agreed") throw ostrakon::CollectiveError("bad samples");
  if (which == "all_unknown") throw 1;
  if (which == "two" && rank != 1) throw ostrakon::Error(of_rank);
  if (which == "one" && rank == 1) throw ostrakon::Error(of_rank);
  if (which == "one_agreed" && rank == 1) throw ostrakon::CollectiveError(of_rank);
  if (which == "one_differently" && rank == 1) throw ostrakon::Error(of_rank);
  if (which == "one_differently") throw ostrakon::CollectiveError("bad deck");
  if (which == "one_unknown" && rank == 1) throw 1;
  if (which == "all_in_different_calls") {
    MPI_Request request = MPI_REQUEST_NULL;
    if (rank == 1) MPI_Ibarrier(MPI_COMM_WORLD, &request);
    throw ostrakon::Error("bad samples");
  }
  if (which == "mpi")  // there is no such rank
    ostrakon::comm::check_mpi(MPI_Send(&rank, 1, MPI_INT, 99, 0, mesh.world().mpi()), "MPI_Send");
  if (which == "one_agreed") wait_for_all();  // 20 s
  MPI_Barrier(MPI_COMM_WORLD);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return ostrakon::run_program("failing_program", "usage: failing_program WHICH\n", argc, argv,
                               fail);
}
