// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <string>

namespace ostrakon::train {

/// How the ranks of a job have failed.
enum class Failures {
  same,       ///< all ranks, with the same text
  different,  ///< all ranks, with different texts
  of_some     ///< perhaps not all ranks: some have not said so within a second
};

/// Ends a job so that its own message is the last on the screen. mpiexec adds lines of its own if a
/// rank's exit status is not 0, or if one calls MPI_Abort:
///
///                        lines after ours    all ranks return    one calls MPI_Abort
///     Open MPI 4         (mpiexec)           11                  8, or 0 where told not to
///     Open MPI 5         (mpiexec)           0 on one rank, 7    14
///     MPICH 5            (mpiexec)           0                   1
///
/// So all ranks return. With Open MPI 4 and a message, rank 0 instead ends the job for all ranks,
/// without a further message; without one, as after a requested stop, MPI is finalized.
///
/// It has communicators of its own, on which MPI returns errors: whatever state the user's
/// communicators are in, and even if MPI itself has failed, the message is written.
class JobTermination {
 public:
  /// To be constructed before MPI starts, which adds to the environment.
  JobTermination();
  /// Collective over MPI_COMM_WORLD, after MPI has started; before the methods below.
  void begin();

  /// Whether mpiexec, srun, ... has started this process, perhaps among others.
  bool launched() const { return launched_; }

  /// Finalizes MPI and returns `status`, on which all ranks have agreed, to be returned by main.
  /// Rank 0 writes `message` to standard error, unless it is empty. With a message, ranks wait for
  /// each other for 20 s: if some don't come, the ranks had not agreed, and alone() ends the job.
  /// Collective over MPI_COMM_WORLD.
  int together(int status, const std::string& message);

  /// Tells the other ranks that this one has failed, and returns how they did. If all have failed,
  /// together() ends them; else alone() does.
  Failures failures(const std::string& why) const;

  /// Ends all ranks with status 1. Called on one rank or several, in whatever state the others are;
  /// one of them writes `message`.
  [[noreturn]] void alone(const std::string& message) const;

 private:
  bool is_first_alone() const;

  MPI_Comm failing_ = MPI_COMM_NULL;  ///< for failures()
  MPI_Comm ending_ = MPI_COMM_NULL;   ///< for together() and alone()
  int rank_ = 0, ranks_ = 1;
  bool launched_ = false;              ///< by mpiexec, srun, ..., which reads the output of ranks
  bool launched_by_open_mpi_ = false;  ///< by Open MPI's mpiexec
};

}  // namespace ostrakon::train
