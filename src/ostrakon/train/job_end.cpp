// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/job_end.hpp>

#include <dlfcn.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <thread>

namespace ostrakon::train {
namespace {

/// What `mpiexec --quiet` sets in mpiexec, in this process: Open MPI 4 has no call for it. Null
/// with any other MPI.
bool* open_mpi_4_is_quiet() {
  return static_cast<bool*>(dlsym(RTLD_DEFAULT, "orte_execute_quiet"));
}

/// Waits until the reader of our output has read it, and has had a moment to forward it.
void wait_until_read(int descriptor) {
  using std::chrono::milliseconds;
  constexpr int most_waits = 200;
  struct stat kind {};
  if (fstat(descriptor, &kind) == 0 && S_ISFIFO(kind.st_mode)) {
    int unread = 0;
    for (int i = 0; i < most_waits; ++i) {
      if (ioctl(descriptor, FIONREAD, &unread) != 0 || unread == 0) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  std::this_thread::sleep_for(milliseconds(50));
}

/// In one piece, so that nothing of other ranks comes between; after all of standard output, which
/// takes another way to the screen.
void write_error(const std::string& message, bool launched) {
  std::cout << std::flush;
  if (launched) wait_until_read(STDOUT_FILENO);
  std::cerr << message + "\n" << std::flush;
}

volatile std::sig_atomic_t status_when_ended = 1;

/// Open MPI's mpiexec tells ranks of the abort, then sends SIGTERM. To it, a rank that leaves at
/// once, or from inside MPI_Finalize, is a failure, with a message of its own; some of these cases
/// have hung it.
extern "C" void leave_in_a_moment(int) {
  const std::timespec moment{0, 200'000'000};
  nanosleep(&moment, nullptr);
  _exit(static_cast<int>(status_when_ended));
}

/// Until rank 0 has ended the job; not for ever.
[[noreturn]] void wait_to_be_ended(int status) {
  status_when_ended = status;
  std::signal(SIGTERM, SIG_IGN);  // forgets one that waits (train::note_signals)
  std::signal(SIGTERM, leave_in_a_moment);
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &terminate, nullptr);
  MPI_Barrier(MPI_COMM_WORLD);
  std::this_thread::sleep_for(std::chrono::seconds(30));
  _exit(status);
}

/// Ends all ranks. Some launchers stop reading at once.
void abort_job(int status) {
  wait_until_read(STDOUT_FILENO);
  wait_until_read(STDERR_FILENO);
  if (bool* const quiet = open_mpi_4_is_quiet()) *quiet = true;
  MPI_Abort(MPI_COMM_WORLD, status);
}

}  // namespace

JobEnd::JobEnd() : launched_by_open_mpi_(std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
  for (const char* one : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    launched_ = launched_ || std::getenv(one) != nullptr;
}

int JobEnd::together(int status, const std::string& message) const {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // Without a message there is nothing that mpiexec's lines could hide: profilers need
  // MPI_Finalize.
  const bool one_ends_all =
      status != 0 && !message.empty() && launched_by_open_mpi_ && open_mpi_4_is_quiet() != nullptr;
  if (one_ends_all) {
    // A rank that is ended has nothing left to do.
    if (rank > 0) wait_to_be_ended(status);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (rank == 0 && !message.empty()) write_error(message, launched_);
  if (one_ends_all) abort_job(status);
  MPI_Finalize();
  return status;
}

bool JobEnd::all_fail(const std::string& why) const {
  // Which MPI may still write to where not all fail: until the job is aborted.
  static std::uint64_t mine[2], largest[2];
  mine[0] = std::hash<std::string>()(why);
  mine[1] = ~mine[0];
  MPI_Request request = MPI_REQUEST_NULL;
  int is_done = 0;
  if (MPI_Iallreduce(mine, largest, 2, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD, &request) !=
      MPI_SUCCESS)
    return false;
  for (int waits = 0; waits < 1000; ++waits) {
    if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (is_done != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return is_done != 0 && largest[0] == ~largest[1];
}

void JobEnd::alone(const std::string& message) const {
  write_error(message, launched_);
  abort_job(1);
  std::abort();
}

}  // namespace ostrakon::train
