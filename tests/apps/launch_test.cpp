// SPDX-License-Identifier: Apache-2.0

// ostrakon-launch with launchers that are shell scripts, in which a watchdog adds its row itself.

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"
#include "support/table.hpp"

namespace ostrakon::testing {
namespace {

const std::string verdict =
    R"(echo '{"time":"","job":"1","rank":1,"host":"n001","reason":"hangs"}' >>run/watchdog.jsonl; )";

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

  ScratchFolder folder_;
};

TEST_F(Launch, HasTheStatusOfTheLauncherWhereNoVerdictIsNew) {
  EXPECT_EQ(launch_script("exit 0").status, 0);
  EXPECT_EQ(launch_script(verdict + "exit 0").status, 76);
  EXPECT_EQ(launch_script("exit 75").status, 75);
  EXPECT_EQ(launch_script("kill -KILL $$").status, 137);
}

TEST_F(Launch, HasStatus76WhereTheWatchdogEndedTheRun) {
  EXPECT_EQ(launch_script(verdict + "exit 76").status, 76);
  EXPECT_EQ(launch_script(verdict + "kill -KILL $$").status, 76);
}

TEST_F(Launch, KillsALauncherThatDoesNotEnd) {
  const Outcome outcome = launch_script(verdict + "exec sleep 1000");
  EXPECT_EQ(outcome.status, 76);
  EXPECT_LT(outcome.seconds, 500.0);
  EXPECT_TRUE(says(outcome.err, "ostrakon-launch: 'bash' still runs 1 s after..killed"))
      << outcome.err;
}

TEST_F(Launch, PassesSignalsOn) {
  for (const char* const signal : {"USR1", "USR2", "TERM"}) {
    // The launcher sends the signal to ostrakon-launch, its parent, once it can take it itself.
    const std::string script = std::string("trap 'exit 7' ") + signal + "; kill -s " + signal +
                               " $PPID; for i in $(seq 3000); do sleep 0.1; done; exit 1";
    EXPECT_EQ(launch_script(script).status, 7) << signal;
  }
}

TEST_F(Launch, NamesHosts) {
  EXPECT_EQ(launch({"--named", "1", "run"}).out, "");
  std::ofstream rows(path("run/watchdog.jsonl"));
  const auto verdicts = rows_of(R"(
    1 n003
    2 n001
    2 n003
    3
    4 n003
    5
    6 n002.site
    7 n002.site
    8 n003
  )");
  for (const auto& row : verdicts) {
    const auto words = words_of(row[0]);
    rows << R"({"time":"2026-01-01T00:00:00Z","job":")" << words[0] << R"(","rank":0,"host":")"
         << (words.size() > 1 ? words[1] : "") << R"(","reason":"says \",\"host\":\"n009\""})"
         << '\n';
  }
  rows.close();
  EXPECT_EQ(launch({"--named", "2", "run"}).out, "n002.site\nn003\n");
  EXPECT_EQ(launch({"--named", "3", "run"}).out, "n003\n");
}

TEST_F(Launch, SaysWhereTheFolderIsNotOfTheRun) {
  EXPECT_TRUE(says(launch({"rnu", "false"}).err, "there is no folder 'rnu'; expected the run's"));
  EXPECT_EQ(launch({"run", "false"}).err, "");
}

TEST_F(Launch, RefusesWhatItCannotDo) {
  EXPECT_TRUE(says(launch({}).err, "expected the run's output.directory"));
  const auto rows = rows_of(R"(
    run                   | expected a launcher, such as mpiexec
    run no-such-launcher  | can't find the launcher 'no-such-launcher'
    --patience run true   | --patience 'run': expected a number
    --patience 0 run true | --patience '0': expected a number
    --named 0 run         | --named '0': expected a number
    --named 2 run true    | --named: don't know 'true'
    --nmaed 2 run         | don't know '--nmaed'
  )");
  for (const auto& row : rows) {
    const Outcome outcome = launch(words_of(row[0]));
    EXPECT_EQ(outcome.status, 1) << row[0];
    EXPECT_TRUE(says(outcome.err, "ostrakon-launch: .." + row[1])) << row[0] << ": " << outcome.err;
  }
}

}  // namespace
}  // namespace ostrakon::testing
