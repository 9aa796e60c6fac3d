// SPDX-License-Identifier: Apache-2.0

// ostrakon-launch with launchers that are shell scripts, in which a watchdog adds its row itself.

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"
#include "support/table.hpp"

namespace ostrakon::testing {
namespace {

using Texts = std::vector<std::string>;

/// A command of a shell that adds a verdict, as a watchdog does.
std::string add_verdict(int job, int step = 7, const std::string& host = "n001") {
  return "echo '{\"time\":\"\",\"job\":\"" + std::to_string(job) +
         "\",\"step\":" + std::to_string(step) + ",\"rank\":1,\"host\":\"" + host +
         "\",\"reason\":\"says \\\"host\\\"\"}' >>run/watchdog.jsonl; ";
}

class Launch : public ::testing::Test {
 protected:
  Launch() { std::filesystem::create_directory(path("run")); }

  std::string path(const std::string& name) const { return folder_.file(name); }

  Command command(const std::vector<std::string>& arguments) const {
    Command made;
    made.arguments = {OSTRAKON_APPS_DIR "/ostrakon-launch"};
    made.arguments.insert(made.arguments.end(), arguments.begin(), arguments.end());
    made.folder = path("");
    return made;
  }
  Outcome launch(const std::vector<std::string>& arguments) const {
    return run_command(command(arguments));
  }
  Outcome launch_script(const std::string& script) const {
    return launch({"--patience", "1", "run", "bash", "-c", script});
  }
  void add(int job, int step = 7, const std::string& host = "n001") const {
    Command shell;
    shell.arguments = {"sh", "-c", add_verdict(job, step, host)};
    shell.folder = path("");
    ASSERT_EQ(run_command(shell).status, 0);
  }

  ScratchFolder folder_;
};

TEST_F(Launch, HasTheStatusOfTheLauncher) {
  EXPECT_EQ(launch_script("exit 0").status, 0);
  EXPECT_EQ(launch_script("exit 75").status, 75);
  EXPECT_EQ(launch_script("kill -KILL $$").status, 137);
}

TEST_F(Launch, HasStatus76WhereTheWatchdogEndedTheRun) {
  EXPECT_EQ(launch_script(add_verdict(1, 5) + "exit 76").status, 76);
  EXPECT_EQ(launch_script(add_verdict(2, 9) + "kill -KILL $$").status, 76);
}

TEST_F(Launch, LeavesVerdictsOfEarlierJobsAlone) {
  add(1);
  EXPECT_EQ(launch_script("exit 1").status, 1);
  EXPECT_EQ(launch_script(add_verdict(1) + "sleep 3; exit 1").status, 1) << "of ranks of that job";
  EXPECT_EQ(launch_script("rm run/watchdog.jsonl; " + add_verdict(2) + "exit 1").status, 76);
}

TEST_F(Launch, EndsALauncherThatDoesNotEndWithAllThatItHasStarted) {
  const Outcome outcome =
      launch_script("trap '' TERM; bash -c 'exec -a of-this-test sleep 1000' & echo $! >child; " +
                    add_verdict(1) + "wait; sleep 1000");
  EXPECT_EQ(outcome.status, 76);
  EXPECT_TRUE(says(outcome.err, "ostrakon-launch: \"bash\" still runs 1 s after..is ended"))
      << outcome.err;
  std::ifstream file(path("child"));
  pid_t child = 0;
  ASSERT_TRUE(file >> child);
  EXPECT_NE(::kill(child, 0), 0);
}

TEST_F(Launch, PassesSignalsOn) {
  for (const char* const signal : {"USR1", "USR2", "TERM", "INT", "HUP", "QUIT"}) {
    // The launcher sends the signal to ostrakon-launch, its parent, once it can take it itself.
    const std::string script = std::string("trap 'exit 7' ") + signal + "; kill -s " + signal +
                               " $PPID; for i in $(seq 3000); do sleep 0.1; done; exit 1";
    EXPECT_EQ(launch_script(script).status, 7) << signal;
  }
}

TEST_F(Launch, HasTheStatusOfALauncherThatWasAskedToEnd) {
  EXPECT_EQ(launch_script("trap '" + add_verdict(1) +
                          "exit 143' TERM; kill -s TERM $PPID; sleep 2; exit 1")
                .status,
            143);
}

TEST_F(Launch, GivesUpAfterThreeJobsThatEndedInOneStep) {
  const auto status_after = [&](int job, int step, const Texts& options = {}) {
    Texts all = options;
    all.insert(all.end(), {"run", "bash", "-c", add_verdict(job, step) + "exit 76"});
    return launch(all).status;
  };
  EXPECT_EQ(status_after(1, 4), 76);
  EXPECT_EQ(status_after(2, 8), 76);
  EXPECT_EQ(status_after(3, 8), 76);
  EXPECT_EQ(status_after(4, 8), 1);
  EXPECT_EQ(status_after(5, 8, {"--give-up", "0"}), 76);
  EXPECT_EQ(status_after(6, 9), 76);
}

TEST_F(Launch, NamesHosts) {
  EXPECT_EQ(launch({"--named", "1", "run"}).out, "");
  int job = 0;
  for (const char* const host : {"n003", "n001", "n003", "", "n003", "", "n002.site", "n002.site"})
    add(++job, 7, host);
  add(job, 7, "n001");  // of ranks of the last job, later
  add(++job, 7, "n003");
  Command shell;
  shell.arguments = {"sh", "-c", "echo '{\"time\":\"2026' >>run/watchdog.jsonl"};
  shell.folder = path("");
  run_command(shell);
  EXPECT_EQ(launch({"--named", "2", "run"}).out, "n002.site\nn003\n");
  EXPECT_EQ(launch({"--named", "3", "run"}).out, "n003\n");
}

TEST_F(Launch, SaysWhereTheFolderIsNotOfTheRun) {
  EXPECT_TRUE(says(launch({"rnu", "false"}).err, "there is no folder \"rnu\"; expected the run's"));
  EXPECT_EQ(launch({"run", "false"}).err, "");
}

TEST_F(Launch, RefusesWhatItCannotDo) {
  EXPECT_TRUE(says(launch({}).err, "no OUTPUT given"));
  EXPECT_TRUE(says(launch({"", "true"}).err, "OUTPUT = \"\": expected the run's output.directory"));
  const auto rows = rows_of(R"(
    run                   | after "run" expected a launcher, such as mpiexec
    run no-such-launcher  | can't start the launcher "no-such-launcher": No such file
    mpiexec -n 4 true     | the launcher "-n": expected OUTPUT, the run's output.directory, before
    --patience run true   | --patience run: expected an integer
    --patience 0 run true | --patience 0: expected an integer
    --named 0 run         | --named 0: expected an integer
    --named 2 run true    | don't know "true"; with --named only OUTPUT is expected
    --named 2 rnu         | there is no folder "rnu"
    --nmaed 2 run         | unknown option --nmaed
  )");
  for (const auto& row : rows) {
    const Outcome outcome = launch(words_of(row[0]));
    EXPECT_EQ(outcome.status, 1) << row[0];
    EXPECT_TRUE(says(outcome.err, "ostrakon-launch: error: .." + row[1]))
        << row[0] << ": " << outcome.err;
  }
}

}  // namespace
}  // namespace ostrakon::testing
