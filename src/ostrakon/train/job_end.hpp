// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <string>

namespace ostrakon::train {

/// What the ranks of a job have failed with.
enum class Failures {
  same,       ///< all, with the same text
  different,  ///< all, with different texts
  of_some     ///< perhaps not all: some have not said so within a second
};

/// How a job ends so that its own message is the last on the screen. mpiexec adds lines of its own
/// where a rank's exit status is not 0, or where one calls MPI_Abort:
///
///                        lines after ours    all ranks return    one calls MPI_Abort
///     Open MPI 4         (mpiexec)           11                  8, or 0 where told not to
///     Open MPI 5         (mpiexec)           0 on one rank, 7    14
///     MPICH 5            (mpiexec)           0                   1
///
/// So all ranks return. With Open MPI 4, where there is a message, rank 0 ends the job for all of
/// them, without a further message; where there is none, as after a stop that was asked for, MPI is
/// finalized.
///
/// It has communicators of its own, on which MPI's errors are returned: whatever state those of the
/// user are in, and also where MPI is what failed, our message is written.
class JobEnd {
 public:
  /// Before MPI starts, which adds to the environment.
  JobEnd();
  /// Collective over MPI_COMM_WORLD, after MPI has started; before the methods below.
  void begin();

  /// Whether some mpiexec, srun, ... has started this process, perhaps among others.
  bool launched() const { return launched_; }

  /// Collective over MPI_COMM_WORLD, where all ranks have agreed on `status`: finalizes MPI and
  /// returns it, to be returned by main. A `message` is written by rank 0 to standard error;
  /// nothing is written where it is empty. With a message, ranks wait for each other for 20 s: if
  /// some don't come, the ranks had not agreed, and alone() ends the job.
  int together(int status, const std::string& message);

  /// From a rank that has failed, for a reason that the others may not know of. Where all fail,
  /// together() ends them; else alone() does.
  Failures failures(const std::string& why) const;

  /// From one rank or several, while the others do whatever they do: writes `message`, of one of
  /// these ranks only, and ends all with status 1.
  [[noreturn]] void alone(const std::string& message) const;

 private:
  bool is_first_alone() const;

  MPI_Comm failing_ = MPI_COMM_NULL;  ///< for failures()
  MPI_Comm ending_ = MPI_COMM_NULL;   ///< for together() and alone()
  int rank_ = 0, ranks_ = 1;
  bool launched_ = false;              ///< by some mpiexec, srun, ..., which reads what ranks write
  bool launched_by_open_mpi_ = false;  ///< by its mpiexec
};

}  // namespace ostrakon::train
