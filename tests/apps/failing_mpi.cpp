// SPDX-License-Identifier: Apache-2.0

// An MPI, preloaded, whose all-gather fails once: on rank 1, at the call that the environment
// variable OSTRAKON_FAILING_CALL counts.

#include <mpi.h>

#include <atomic>
#include <cstdlib>

extern "C" int MPI_Allgather(const void* send, int send_count, MPI_Datatype send_type,
                             void* receive, int receive_count, MPI_Datatype receive_type,
                             MPI_Comm comm) {
  static std::atomic<int> calls{0};
  const char* const failing = std::getenv("OSTRAKON_FAILING_CALL");
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 1 && failing != nullptr && ++calls == std::atoi(failing)) return MPI_ERR_OTHER;
  return PMPI_Allgather(send, send_count, send_type, receive, receive_count, receive_type, comm);
}
