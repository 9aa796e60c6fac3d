// SPDX-License-Identifier: Apache-2.0
// Preloaded: sends a process a signal (OSTRAKON_SIGNAL) at a moment of its life that is hard to
// hit by chance (OSTRAKON_SIGNAL_AT): before or after MPI starts or ends, or when main has
// returned.

#include <mpi.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

namespace {

void raise_at(const char* moment) {
  const char* const wanted = std::getenv("OSTRAKON_SIGNAL_AT");
  const char* const signal = std::getenv("OSTRAKON_SIGNAL");
  // Not mpiexec, which ends, too.
  if (std::string(program_invocation_short_name) != "ostrakon-train") return;
  if (wanted != nullptr && signal != nullptr && std::string(wanted) == moment)
    std::raise(static_cast<int>(std::strtol(signal, nullptr, 10)));
}

__attribute__((destructor)) void at_exit() { raise_at("exit"); }

}  // namespace

extern "C" {

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  raise_at("before MPI_Init");
  const int result = PMPI_Init_thread(argc, argv, required, provided);
  raise_at("after MPI_Init");
  return result;
}

int MPI_Finalize() {
  raise_at("before MPI_Finalize");
  const int result = PMPI_Finalize();
  raise_at("after MPI_Finalize");
  return result;
}
}
