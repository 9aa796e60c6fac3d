// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/scaling/job_script.hpp>
#include <support/scratch_folder.hpp>

namespace ostrakon::scaling {
namespace {

using testing::contains;
using testing::error_of;

Job job() {
  Job of;
  of.name = "ostrakon-16";
  of.ranks = 16;
  of.nodes = 4;
  of.ranks_of_node = 4;
  of.repeat = 3;
  of.time = "00:30:00";
  of.program = "/opt/ostrakon/bin/ostrakon-train";
  return of;
}

void expect_lines(Launcher launcher, const std::vector<std::string>& lines) {
  const std::string script = render_template(job_template(launcher), job(), "");
  EXPECT_EQ(script.rfind("#!/usr/bin/env bash\n", 0), 0u) << script;
  EXPECT_FALSE(contains(script, "@")) << script;
  EXPECT_TRUE(contains(script, "\nfor run in 1 2 3; do\n")) << script;
  for (const std::string& line : lines)
    EXPECT_TRUE(contains(script, line + "\n")) << line << script;
}

TEST(JobScript, OfEachLauncher) {
  const std::string train =
      " /opt/ostrakon/bin/ostrakon-train deck.yaml --set output.directory=\"run-$run\"";
  expect_lines(Launcher::slurm, {"#SBATCH --job-name=ostrakon-16", "#SBATCH --nodes=4",
                                 "#SBATCH --ntasks=16", "#SBATCH --ntasks-per-node=4",
                                 "#SBATCH --time=00:30:00", "  srun --kill-on-bad-exit=1" + train});
  expect_lines(Launcher::pbs, {"#PBS -N ostrakon-16", "#PBS -l select=4:ncpus=4:mpiprocs=4",
                               "#PBS -l walltime=00:30:00", "  mpiexec -n 16" + train});
  expect_lines(Launcher::flux, {"# flux: -N4", "# flux: -n16", "# flux: -t 00:30:00",
                                "  flux run -N4 -n16" + train});
  expect_lines(Launcher::mpiexec, {"cd \"$(dirname \"$0\")\"", "  mpiexec -n 16" + train});
}

TEST(JobScript, OfATemplateOfOnesOwn) {
  EXPECT_EQ(render_template("# me@site.org\nrun @RANKS@ @PROGRAM@ @", job(), "my.sh"),
            "# me@site.org\nrun 16 /opt/ostrakon/bin/ostrakon-train @");
  EXPECT_EQ(error_of([] { render_template("run @TASKS@ @PROGRAM@", job(), "my.sh"); }),
            "my.sh: @TASKS@ is unknown; expected @NAME@, @RANKS@, @NODES@, @RANKS_OF_NODE@, "
            "@TIME@, @REPEATS@ or @PROGRAM@");
  EXPECT_EQ(error_of([] { render_template("run", job(), "my.sh"); }),
            "my.sh: has no @PROGRAM@; expected it where ostrakon-train is started");
}

TEST(JobScript, OfAllSizes) {
  Study study;
  study.sizes.resize(2);
  study.sizes[0].folder = "ranks-1";
  study.sizes[1].folder = "ranks-8";
  const auto line_of = [&](Launcher launcher) {
    study.launcher = launcher;
    return run_all_script(study);
  };
  EXPECT_TRUE(contains(line_of(Launcher::mpiexec), "(cd ranks-8 && bash job.sh)\n"));
  EXPECT_TRUE(contains(line_of(Launcher::slurm), "(cd ranks-8 && sbatch job.sh)\n"));
  EXPECT_TRUE(contains(line_of(Launcher::pbs), "(cd ranks-1 && qsub job.sh)\n"));
  EXPECT_TRUE(contains(line_of(Launcher::flux), "(cd ranks-1 && flux batch job.sh)\n"));
}

TEST(JobScript, WordsAreQuoted) {
  EXPECT_EQ(shell_word("a/b-1.sh"), "a/b-1.sh");
  EXPECT_EQ(shell_word("my study's"), "'my study'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace ostrakon::scaling
