// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::train {

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
class JobEnd {
 public:
  /// Before MPI starts, which adds to the environment.
  JobEnd();

  /// Whether some mpiexec, srun, ... has started this process, perhaps among others.
  bool launched() const { return launched_; }

  /// Collective over MPI_COMM_WORLD, where all ranks have agreed on `status`: finalizes MPI and
  /// returns it, to be returned by main. A `message` is written by rank 0 to standard error;
  /// nothing is written where it is empty.
  int together(int status, const std::string& message) const;

  /// From a rank that has failed, for a reason that the others may not know of: whether all fail
  /// within a second, for the same reason. Then together() ends them; else alone() does.
  bool all_fail(const std::string& why) const;

  /// From one rank, while the others do whatever they do: writes `message`, ends all with status 1.
  [[noreturn]] void alone(const std::string& message) const;

 private:
  bool launched_ = false;              ///< by some mpiexec, srun, ..., which reads what ranks write
  bool launched_by_open_mpi_ = false;  ///< by its mpiexec
};

}  // namespace ostrakon::train
