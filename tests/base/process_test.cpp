// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <ostrakon/base/process.hpp>
#include <string>

namespace ostrakon {
namespace {

using Variables = std::map<std::string, std::string>;

/// Returns a text such as "srun 4" or "mpiexec 3+, PALS_RANKID=2"; "alone" if nothing is found.
std::string said_by(const Variables& variables) {
  const auto found = started_together([&](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? std::string() : at->second;
  });
  if (!found) return "alone";
  return found->starter + " " + std::to_string(found->processes) + (found->at_least ? "+" : "") +
         ", " + found->variable + "=" + found->value;
}

TEST(StartedTogether, AsLaunchersSay) {
  EXPECT_EQ(said_by({}), "alone");
  EXPECT_EQ(said_by({{"OMPI_COMM_WORLD_SIZE", "2"}}), "mpiexec 2, OMPI_COMM_WORLD_SIZE=2");
  EXPECT_EQ(said_by({{"PMI_SIZE", "3"}, {"PMI_RANK", "0"}}), "mpiexec 3, PMI_SIZE=3");
  EXPECT_EQ(said_by({{"PALS_RANKID", "2"}}), "mpiexec 3+, PALS_RANKID=2");
  EXPECT_EQ(said_by({{"FLUX_JOB_SIZE", "4"}}), "flux run 4, FLUX_JOB_SIZE=4");
  EXPECT_EQ(said_by({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_PROCID", "0"}}),
            "srun 8, SLURM_STEP_NUM_TASKS=8");
  EXPECT_EQ(said_by({{"PMIX_RANK", "1"}}), "a launcher 2+, PMIX_RANK=1");
}

TEST(StartedTogether, OneProcessOfALargeJobIsAlone) {
  // A batch script starts a single program in a job of many tasks.
  EXPECT_EQ(said_by({{"SLURM_JOB_ID", "42"}, {"SLURM_NTASKS", "64"}, {"SLURM_PROCID", "0"}}),
            "alone");
  EXPECT_EQ(said_by({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "64"}}), "alone");
  // mpiexec -n 1, with daemons that srun has started on all nodes.
  EXPECT_EQ(
      said_by(
          {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}}),
      "alone");
  // Open MPI sets this variable in a process without a launcher.
  EXPECT_EQ(said_by({{"PMIX_RANK", "0"}}), "alone");
  EXPECT_EQ(said_by({{"PMI_SIZE", "many"}}), "alone");
}

}  // namespace
}  // namespace ostrakon
