// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/job_termination.hpp>

#include <dlfcn.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <ostrakon/watch/watchdog.hpp>
#include <thread>

namespace ostrakon::train {
namespace {

/// Returns the flag that `mpiexec --quiet` sets in mpiexec, for this process: Open MPI 4 has no
/// call for it. Null with any other MPI.
bool* open_mpi_4_is_quiet() {
  return static_cast<bool*>(dlsym(RTLD_DEFAULT, "orte_execute_quiet"));
}

/// Waits until the reader of our output has read it, and had some time to forward it.
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

/// Writes a message in one piece, so that no output of other ranks comes between; after all of
/// standard output, which takes another way to the screen.
void write_error(const std::string& message, bool launched) {
  std::cout << std::flush;
  if (launched) wait_until_read(STDOUT_FILENO);
  std::cerr << message + "\n" << std::flush;
}

volatile std::sig_atomic_t status_when_ended = 1;

/// Handles SIGTERM after an abort: Open MPI's mpiexec tells ranks of the abort, then sends it. If a
/// rank leaves at once, or from inside MPI_Finalize, mpiexec reports a failure with a message of
/// its own; some of these cases have hung it.
extern "C" void leave_in_a_moment(int) {
  const std::timespec moment{0, 200'000'000};
  nanosleep(&moment, nullptr);
  _exit(static_cast<int>(status_when_ended));
}

/// Prepares for another rank to end the job soon.
void expect_the_end(int status) {
  status_when_ended = status;
  std::signal(SIGTERM, SIG_IGN);  // discards a pending one (train::note_signals)
  std::signal(SIGTERM, leave_in_a_moment);
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  pthread_sigmask(SIG_UNBLOCK, &terminate, nullptr);
}

/// Waits until another rank has ended the job, for a limited time.
[[noreturn]] void wait_to_be_ended(int status) {
  expect_the_end(status);
  std::this_thread::sleep_for(std::chrono::seconds(30));
  _exit(status);
}

/// Whether `request` is done within `limit`, without an error.
bool is_done_within(std::chrono::milliseconds limit, MPI_Request request) {
  const auto last = std::chrono::steady_clock::now() + limit;
  for (;;) {
    int is_done = 0;
    if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (is_done != 0) return true;
    if (std::chrono::steady_clock::now() > last) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Whether all ranks of `comm` arrive here in time.
bool all_arrive(MPI_Comm comm) {
  constexpr std::chrono::seconds limit(20);
  MPI_Request request = MPI_REQUEST_NULL;
  return MPI_Ibarrier(comm, &request) == MPI_SUCCESS && is_done_within(limit, request);
}

/// Ends all ranks, after output was read: some launchers stop reading at once.
void abort_job(int status) {
  wait_until_read(STDOUT_FILENO);
  wait_until_read(STDERR_FILENO);
  if (bool* const quiet = open_mpi_4_is_quiet()) *quiet = true;
  MPI_Abort(MPI_COMM_WORLD, status);
}

}  // namespace

JobTermination::JobTermination()
    : launched_by_open_mpi_(std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) {
  for (const char* one : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    launched_ = launched_ || std::getenv(one) != nullptr;
}

void JobTermination::begin() {
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
  for (MPI_Comm* const comm : {&failing_, &ending_}) {
    MPI_Comm_dup(MPI_COMM_WORLD, comm);
    MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
  }
}

int JobTermination::together(int status, const std::string& message) {
  // Without a message there is nothing that mpiexec's lines could hide, and profilers need
  // MPI_Finalize.
  const bool one_ends_all =
      status != 0 && !message.empty() && launched_by_open_mpi_ && open_mpi_4_is_quiet() != nullptr;
  if (!message.empty()) {
    if (one_ends_all && rank_ > 0) expect_the_end(status);
    if (!all_arrive(ending_)) alone(message);
    // The rank has nothing left to do when it is ended.
    if (one_ends_all && rank_ > 0) wait_to_be_ended(status);
    if (rank_ == 0) write_error(message, launched_);
  }
  if (one_ends_all) abort_job(status);
  MPI_Comm_free(&failing_);
  MPI_Comm_free(&ending_);
  MPI_Finalize();
  return status;
}

Failures JobTermination::failures(const std::string& why) const {
  if (ranks_ == 1) return Failures::same;
  // These are static as MPI may still write to them until the job is aborted, if not all ranks
  // fail.
  static std::uint64_t mine[2], largest[2];
  mine[0] = std::hash<std::string>()(why);
  mine[1] = ~mine[0];
  constexpr std::chrono::seconds limit(1);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Iallreduce(mine, largest, 2, MPI_UINT64_T, MPI_MAX, failing_, &request) != MPI_SUCCESS ||
      !is_done_within(limit, request))
    return Failures::of_some;
  return largest[0] == ~largest[1] ? Failures::same : Failures::different;
}

/// Whether this rank reports to the user, of the ranks that end the job alone at about the same
/// time. A rank that was told of another leaves it to that one; of ranks that tell each other at
/// the same time, the lowest writes.
bool JobTermination::is_first_alone() const {
  constexpr int tag = 0;
  constexpr int waits = 250;  // milliseconds, more than a note takes
  static char note = 0;
  int has_come = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, tag, ending_, &has_come, &status) == MPI_SUCCESS && has_come != 0)
    return false;
  for (int other = 0; other < ranks_; ++other) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (other != rank_ &&
        MPI_Isend(&note, 0, MPI_CHAR, other, tag, ending_, &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
  for (int i = 0; i < waits; ++i) {
    while (MPI_Iprobe(MPI_ANY_SOURCE, tag, ending_, &has_come, &status) == MPI_SUCCESS &&
           has_come != 0) {
      if (status.MPI_SOURCE < rank_) return false;
      MPI_Recv(&note, 0, MPI_CHAR, status.MPI_SOURCE, tag, ending_, MPI_STATUS_IGNORE);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void JobTermination::alone(const std::string& message) const {
  // The thread that watches the device may call this at the same time as the one that uses it.
  static std::atomic_flag taken = ATOMIC_FLAG_INIT;
  watch::stand_down();
  if (taken.test_and_set() || !is_first_alone()) wait_to_be_ended(1);
  write_error(message, launched_);
  abort_job(1);
  std::abort();
}

}  // namespace ostrakon::train
