// SPDX-License-Identifier: Apache-2.0

// Runs that are asked to save or to stop, are killed or lose their disk, and are resumed.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <support/damage.hpp>
#include <support/scratch_folder.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

/// A folder of one test, with the deck.
class Resume : public ::testing::Test {
 protected:
  Resume() { write_bytes(path("deck.yaml"), digest_deck(400)); }

  std::string path(const std::string& name) const { return folder_.file(name); }
  std::string output(const std::string& name) const { return path("run/" + name); }

  Command command(int ranks, const Texts& settings, const Texts& options = {}) const {
    Texts arguments = {"deck.yaml"};
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    arguments.insert(arguments.end(), options.begin(), options.end());
    return program("ostrakon-train", ranks, arguments, path(""));
  }
  Outcome train(int ranks, const Texts& settings, const Texts& options = {}) const {
    return run_command(command(ranks, settings, options));
  }

  std::map<std::int64_t, Json> rows(const std::string& folder = "run") const {
    return rows_of_steps(path(folder + "/metrics.jsonl"));
  }

  /// The steps of checkpoints.
  std::set<std::string> checkpoints() const {
    std::set<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(output("checkpoints"), ignored))
      names.insert(entry.path().filename().string());
    return names;
  }

  /// Ranks of this test's runs, in no order: processes of the program in its folder.
  std::vector<pid_t> ranks() const { return processes_in("ostrakon-train", path("")); }

  /// Waits for something to be so, at most five minutes.
  static bool wait_for(const std::function<bool()>& holds) {
    for (int tenths = 0; tenths < 3000; ++tenths) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  /// Starts a run, and once it has done a few steps does `interfere`; then waits for its end.
  Outcome interrupt(int number, const Texts& settings, const std::function<void()>& interfere) {
    std::future<Outcome> outcome = std::async(std::launch::async, [=] {
      return train(number, settings, {"--resume", "auto"});
    });
    EXPECT_TRUE(
        wait_for([&] { return fs::exists(output("metrics.jsonl")) && rows().size() >= 5; }));
    EXPECT_EQ(static_cast<int>(ranks().size()), number);
    interfere();
    return outcome.get();
  }

  /// Expects the same rows as a run without interruptions, up to the last of `settings`.
  void expect_as_if_nothing_had_happened(const Texts& settings, std::int64_t steps) {
    Texts all = settings;
    all.push_back("output.directory=reference");
    const Outcome reference = train(1, all);
    ASSERT_EQ(reference.status, 0) << reference.err;
    const auto expected = rows("reference"), found = rows();
    ASSERT_EQ(static_cast<std::int64_t>(found.size()), steps);
    for (const auto& [step, row] : found)
      for (const char* key : {"loss", "grad_norm", "learning_rate", "tokens", "state_digest"})
        ASSERT_EQ(row[key], expected.at(step)[key]) << key << " of step " << step;
  }

  ScratchFolder folder_;
};

using namespace std::chrono_literals;

TEST_F(Resume, StopsOnAllRanksWhenOneIsAskedToTerminate) {
  for (const int signal : {SIGTERM, SIGUSR2}) {
    if (signal != SIGTERM && !tests::takes_every_case()) continue;
    fs::remove_all(path("run"));
    // Not rank 0's, which has the smallest number of them.
    std::int64_t before = 0;
    const Outcome outcome = interrupt(4, {}, [&] {
      std::vector<pid_t> all = ranks();
      std::sort(all.begin(), all.end());
      before = rows().rbegin()->first;
      kill(all.back(), signal);
    });
    EXPECT_EQ(outcome.status, 75) << outcome.out << outcome.err;
    const auto done = rows();
    const std::int64_t last = done.rbegin()->first;
    EXPECT_LT(last, 400);
    EXPECT_GE(last, before);
    EXPECT_EQ(checkpoints(), (std::set<std::string>{
                                 "latest", text("step-", std::string(5, '0'), last < 100 ? "0" : "",
                                                last < 10 ? "0" : "", last)}));
    EXPECT_NE(outcome.out.find("as requested by a signal"), std::string::npos) << outcome.out;
    EXPECT_FALSE(fs::exists(output("weights.h5")));
    // On another number of ranks.
    const Outcome rest = train(2, {}, {"--resume", "auto"});
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_NE(rest.out.find("saved by 4 ranks"), std::string::npos) << rest.out;
    EXPECT_TRUE(fs::exists(output("weights.h5")));
    expect_as_if_nothing_had_happened({}, 400);
  }
}

TEST_F(Resume, SavesWhenAskedAndContinues) {
  const auto save_appears = [&](std::size_t number) {
    return wait_for([&] { return checkpoints().size() == number; });
  };
  const Outcome outcome = interrupt(2, {"training.steps=100000"}, [&] {
    kill(ranks().back(), SIGUSR1);
    EXPECT_TRUE(save_appears(2));  // with `latest`
    write_bytes(output("checkpoint_now"), "");
    EXPECT_TRUE(save_appears(3));
    EXPECT_TRUE(wait_for([&] { return !fs::exists(output("checkpoint_now")); }));
    const std::size_t done = rows().size();
    EXPECT_TRUE(wait_for([&] { return rows().size() > done + 3; }));
    kill(ranks().at(0), SIGTERM);
  });
  EXPECT_EQ(outcome.status, 75) << outcome.out << outcome.err;
}

TEST_F(Resume, StopsInTimeForTheEndOfTheJob) {
  // What all takes but training itself, on a machine as busy as it is now.
  const Outcome start = train(2, {"training.steps=1", "output.directory=start"});
  ASSERT_EQ(start.status, 0) << start.err;
  const int limit = 5 + static_cast<int>(3.0 * start.seconds);
  char wall_time[32];
  std::snprintf(wall_time, sizeof wall_time, "runtime.wall_time=%d:%02d", limit / 60, limit % 60);
  const Outcome outcome = train(2, {"training.steps=100000000", wall_time}, {"--resume", "auto"});
  EXPECT_EQ(outcome.status, 75) << outcome.out << outcome.err;
  EXPECT_LT(outcome.seconds, limit + 0.5 * start.seconds);
  EXPECT_NE(outcome.out.find("as runtime.wall_time ends"), std::string::npos) << outcome.out;
  EXPECT_EQ(checkpoints().size(), 2u);
}

TEST_F(Resume, ResumesAfterItsProcessesWereKilled) {
  const Texts settings = {"checkpoint.every=3", "training.steps=120"};
  for (int times = 0; times < 3; ++times) {
    std::future<Outcome> outcome = std::async(std::launch::async, [&] {
      return train(2, settings, {"--resume", "auto"});
    });
    const std::size_t had = fs::exists(output("metrics.jsonl")) ? rows().size() : 0;
    EXPECT_TRUE(wait_for([&] {
      return fs::exists(output("metrics.jsonl")) &&
             rows().size() >= std::min<std::size_t>(had + 8, 120);
    }));
    for (const pid_t rank : ranks()) kill(rank, SIGKILL);
    outcome.wait();
  }
  const Outcome rest = train(4, settings, {"--resume", "auto"});
  EXPECT_EQ(rest.status, 0) << rest.err;
  expect_as_if_nothing_had_happened(settings, 120);
  // Once more: nothing is left to do.
  const Outcome again = train(2, settings, {"--resume", "auto"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("are done already"), std::string::npos) << again.out;
}

TEST_F(Resume, KeepsTheLastAndEveryMth) {
  const Outcome outcome = train(2, {"training.steps=23", "checkpoint.every=2", "checkpoint.keep=3",
                                    "checkpoint.keep_every=8", "checkpoint.verify=true"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"latest", "step-00000008", "step-00000016", "step-00000020",
                                   "step-00000022", "step-00000023"}));
  EXPECT_EQ(fs::read_symlink(output("checkpoints/latest")), "step-00000023");
  // A run that begins anew sets them aside.
  const Outcome anew = train(1, {"training.steps=3"});
  EXPECT_EQ(anew.status, 0) << anew.err;
  EXPECT_TRUE(fs::exists(output("checkpoints.previous/step-00000023")));
}

TEST_F(Resume, TakesTheNewestThatIsNotDamaged) {
  const Texts settings = {"training.steps=12", "checkpoint.every=3", "checkpoint.keep=9"};
  ASSERT_EQ(train(2, settings).status, 0);
  damage(output("checkpoints/step-00000012/rank-00001.h5"));
  damage(output("checkpoints/step-00000009/manifest.json"));
  const Outcome outcome = train(4, settings, {"--resume", "auto"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("step-00000012/rank-00001.h5"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("step-00000009/manifest.json"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("step-00000006, step 6 of 12"), std::string::npos) << outcome.out;
  expect_as_if_nothing_had_happened(settings, 12);
  EXPECT_TRUE(fs::exists(output("checkpoints/step-00000012.damaged"))) << outcome.out;

  // All of them: better no run than one that begins anew unasked.
  for (const std::string& name : checkpoints())
    if (name.find('.') == std::string::npos && name != "latest")
      damage(output("checkpoints/" + name + "/manifest.json"));
  const Outcome none = train(2, settings, {"--resume", "auto"});
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("--resume none begins at step 1"), std::string::npos) << none.err;
  // One that is named.
  const Outcome named = train(2, settings, {"--resume", output("checkpoints/step-00000012")});
  EXPECT_EQ(named.status, 1);
  EXPECT_NE(named.err.find("step-00000012"), std::string::npos) << named.err;
}

TEST_F(Resume, ResumesFromAnotherRunAndBeginsWithItsWeights) {
  const Texts settings = {"training.steps=12", "checkpoint.every=4", "checkpoint.keep=9"};
  Texts other = settings;
  other.push_back("output.directory=other");
  ASSERT_EQ(train(2, other).status, 0);
  // Rows and checkpoints of this folder are of another story, and later ones.
  ASSERT_EQ(train(1, {"training.steps=20", "checkpoint.every=10", "training.seed=7"}).status, 0);
  const Outcome outcome = train(4, settings, {"--resume", path("other/checkpoints/step-00000004")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto expected = rows("other"), found = rows();
  ASSERT_EQ(found.size(), 8u);
  for (const auto& [step, row] : found)
    EXPECT_EQ(row["state_digest"], expected.at(step)["state_digest"]) << step;
  EXPECT_EQ(fs::read_symlink(output("checkpoints/latest")), "step-00000012");
  // The newest is the one saved last, not that of the highest step.
  const Outcome again = train(2, settings, {"--resume", "auto"});
  EXPECT_NE(again.out.find("step-00000012, step 12 of 12"), std::string::npos) << again.out;
  const Outcome by_folder = train(2, settings, {"--resume", path("other")});
  EXPECT_NE(by_folder.out.find("step-00000012, step 12 of 12"), std::string::npos) << by_folder.out;

  // Weights from a checkpoint that is set aside meanwhile.
  const Outcome weights = train(
      2, {"training.steps=3", "checkpoint.initial_weights=" + output("checkpoints/step-00000012")});
  EXPECT_EQ(weights.status, 0) << weights.err;
  EXPECT_TRUE(fs::exists(output("checkpoints.previous/step-00000012")));
  EXPECT_LT(rows().at(1)["loss"].get<double>(), expected.at(2)["loss"].get<double>());
}

TEST_F(Resume, OutlivesSavesThatFail) {
  const Texts settings = {"training.steps=9", "checkpoint.every=3"};
  fs::create_directories(path("run"));
  fs::create_directory_symlink("/sys", output("checkpoints"));  // where folders can't be made
  const Outcome outcome = train(2, settings, {"--resume", "auto"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.out.find("checkpoint failed"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("the last checkpoint could not be saved"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(rows().size(), 9u);
  EXPECT_TRUE(fs::exists(output("weights.h5")));
  // Who is asked to stop, and can't save, does not say that it can be started again.
  const Outcome stopped = train(2, {"training.steps=1000000", "runtime.wall_time=0:04"});
  EXPECT_EQ(stopped.status, 1);
  EXPECT_NE(stopped.err.find("stopped as asked, but without a checkpoint"), std::string::npos)
      << stopped.err;
}

TEST_F(Resume, WhatIsFromBeforeSkippedStepsStaysAndTheRunIsNotDone) {
  const Texts good = {"checkpoint.every=5", "training.steps=20"};
  ASSERT_EQ(train(2, good).status, 0);
  const Texts bad = {"checkpoint.every=5", "training.steps=60", "training.on_non_finite=skip",
                     "optimizer.learning_rate=1e30"};
  for (const bool again : {false, true}) {
    const Outcome ruined = train(2, bad, {"--resume", "auto"});
    EXPECT_EQ(ruined.status, 1) << ruined.out;
    EXPECT_NE(ruined.out.find("skipped steps: 39 of 60, the last 39 among them\n"),
              std::string::npos)
        << ruined.out;
    EXPECT_NE(ruined.err.find("training is done, but the last 39 steps were skipped"),
              std::string::npos)
        << ruined.err;
    EXPECT_NE(ruined.err.find(": resume from " + output("checkpoints/step-00000020")),
              std::string::npos)
        << ruined.err;
    EXPECT_EQ(ruined.out.find("note                   the last 39 steps before it were skipped") !=
                  std::string::npos,
              again)
        << ruined.out;
    EXPECT_TRUE(fs::exists(output("weights.h5")));
    EXPECT_EQ(checkpoints(),
              (std::set<std::string>{"latest", "step-00000020", "step-00000055", "step-00000060"}));
  }
  const Outcome back = train(2, {"checkpoint.every=5", "training.steps=30"},
                             {"--resume", output("checkpoints/step-00000020")});
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out.find("skipped"), std::string::npos) << back.out;
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"latest", "step-00000025", "step-00000030"}));
}

TEST_F(Resume, ACopyWithoutLinksIsContinuedAsTheRunItself) {
  const Texts settings = {"checkpoint.every=2", "training.steps=4"};
  ASSERT_EQ(train(1, settings).status, 0);
  // This is what scp -r or rsync -L make.
  fs::remove(output("checkpoints/latest"));
  fs::copy(output("checkpoints/step-00000004"), output("checkpoints/latest"));
  const Outcome outcome =
      train(1, {"checkpoint.every=2", "training.steps=12"}, {"--resume", "auto"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("what had the name latest is in " +
                             output("checkpoints/latest.previous") + " now\n"),
            std::string::npos)
      << outcome.out;
  EXPECT_EQ(outcome.out.find("can't"), std::string::npos) << outcome.out;
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"latest", "latest.previous", "step-00000010", "step-00000012"}));
  EXPECT_EQ(fs::read_symlink(output("checkpoints/latest")), "step-00000012");
  // A copy that is older than what is there.
  fs::remove(output("checkpoints/latest"));
  fs::copy(output("checkpoints/latest.previous"), output("checkpoints/latest"));
  const Outcome by_name =
      train(1, {"training.steps=12"}, {"--resume", output("checkpoints/latest")});
  EXPECT_NE(by_name.out.find("latest' is an older checkpoint: takes the newest, '"),
            std::string::npos)
      << by_name.out;
  EXPECT_NE(by_name.out.find("step-00000012, step 12 of 12"), std::string::npos) << by_name.out;
}

TEST_F(Resume, RenamedCheckpointsAreNotDamaged) {
  ASSERT_EQ(train(1, {"checkpoint.every=2", "training.steps=4"}).status, 0);
  fs::rename(output("checkpoints/step-00000004"), output("checkpoints/step-00000400"));
  fs::copy(output("checkpoints/step-00000400"), path("best"));
  const Texts settings = {"training.steps=5", "checkpoint.every=5"};
  for (const std::string& from : {std::string("auto"), path("best")}) {
    const Outcome outcome = train(1, settings, {"--resume", from});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out.find("damaged"), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find(", step 4 of 5"), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(checkpoints().count("step-00000400"), 1u);
}

TEST_F(Resume, LinksThatLeadNowhereAreNamed) {
  fs::create_symlink("nowhere", path("link"));
  const std::string words =
      "'" + path("link") +
      "' is a link whose target does not exist, or is not mounted on this host";
  const Outcome resumed = train(2, {}, {"--resume", path("link")});
  EXPECT_EQ(resumed.status, 1);
  EXPECT_NE(resumed.err.find(words), std::string::npos) << resumed.err;
  const Outcome begun = train(2, {"checkpoint.initial_weights=" + path("link")});
  EXPECT_EQ(begun.status, 1);
  EXPECT_NE(begun.err.find(words), std::string::npos) << begun.err;
}

TEST_F(Resume, InitialWeightsMayBeARunsFolder) {
  ASSERT_EQ(train(1, {"checkpoint.every=2", "training.steps=4"}).status, 0);
  const std::string weights = output("weights.h5");
  const auto begin_with = [&](const std::string& from) {
    const Outcome outcome = train(
        2, {"checkpoint.initial_weights=" + from, "training.steps=1", "output.directory=other"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_NE(begin_with(path("run")).find("begin as in            " + weights + "\n"),
            std::string::npos);
  const Json row = rows("other").at(1);
  fs::remove(weights);
  const std::string newest = output("checkpoints/step-00000004");
  for (const std::string& from : {path("run"), output("checkpoints")}) {
    const std::string out = begin_with(from);
    EXPECT_NE(out.find("begin as in            " + newest + "\n"), std::string::npos) << out;
    EXPECT_EQ(rows("other").at(1)["state_digest"], row["state_digest"]);
  }
  fs::resize_file(newest + "/manifest.json", 9);
  const std::string out = begin_with(path("run"));
  EXPECT_NE(out.find("damaged: "), std::string::npos) << out;
  EXPECT_NE(out.find(output("checkpoints/step-00000002") + "\n"), std::string::npos) << out;
}

TEST_F(Resume, KilledWhileTheDiskIsFullLosesNoRow) {
  const Texts settings = {"checkpoint.every=3", "schedule.tail=constant"};
  Texts endless = settings;
  endless.emplace_back("training.steps=1000000");
  Command full = command(1, endless, {"--resume", "auto"});
  full.environment.insert(full.environment.end(), {{"LD_PRELOAD", OSTRAKON_FAULTY_FILES},
                                                   {"OSTRAKON_FAULT_PATH", output("")},
                                                   {"OSTRAKON_FAULT", "enospc"},
                                                   {"OSTRAKON_FAULT_CALL", "150"},
                                                   {"OSTRAKON_FAULT_STAYS", "1"},
                                                   {"OSTRAKON_FAULT_HALF", "1"},
                                                   {"OSTRAKON_FAULT_LOG", path("calls")}});
  std::future<Outcome> outcome = std::async(std::launch::async, [&] { return run_command(full); });
  const auto calls = [&] {
    const std::string log = fs::exists(path("calls")) ? read_bytes(path("calls")) : "";
    return std::count(log.begin(), log.end(), '\n');
  };
  EXPECT_TRUE(wait_for([&] { return calls() > 300; }));
  for (const pid_t rank : ranks()) kill(rank, SIGKILL);
  EXPECT_EQ(outcome.get().status, -1);
  EXPECT_LT(rows().size(), 400u);
  const Outcome resumed = train(2, settings, {"--resume", "auto"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("resumes from"), std::string::npos) << resumed.out;
  expect_as_if_nothing_had_happened(settings, 400);
}

/// Calls of the system that a run makes in its folder of checkpoints are made to fail, one by one:
/// each in a folder of its own.
class Faults : public Resume {
 protected:
  Texts in(const std::string& folder, Texts settings) const {
    settings.push_back("output.directory=" + folder);
    return settings;
  }

  Outcome train_with(const Texts& settings, const std::string& fault, int call,
                     int ranks = 1) const {
    Command faulty = command(ranks, settings, {"--resume", "auto"});
    faulty.environment.insert(faulty.environment.end(),
                              {{"LD_PRELOAD", OSTRAKON_FAULTY_FILES},
                               {"OSTRAKON_FAULT_PATH", "/checkpoints"},
                               {"OSTRAKON_FAULT", fault},
                               {"OSTRAKON_FAULT_CALL", std::to_string(call)},
                               {"OSTRAKON_FAULT_COUNT", path("calls")}});
    return run_command(faulty);
  }

  /// Trains without faults into the folder `reference`; returns the number of calls.
  int count_calls(const Texts& settings) const {
    const Outcome outcome = train_with(in("reference", settings), "count", 0);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    int calls = 0;
    std::ifstream(path("calls")) >> calls;
    return calls;
  }

  /// A run that was interrupted, or not, continues to where the reference is.
  void expect_to_end_as_the_reference(const std::string& folder, const Texts& settings) const {
    const Outcome rest = train(2, in(folder, settings), {"--resume", "auto"});
    ASSERT_EQ(rest.status, 0) << rest.out << rest.err;
    EXPECT_EQ(rest.out.find("damaged"), std::string::npos) << rest.out;
    const auto expected = rows("reference"), found = rows(folder);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [step, row] : found)
      for (const char* key : {"loss", "grad_norm", "state_digest"})
        ASSERT_EQ(row[key], expected.at(step)[key]) << key << " of step " << step;
    EXPECT_EQ(fs::read_symlink(path(folder + "/checkpoints/latest")), "step-00000006");
    for (const auto& entry : fs::directory_iterator(path(folder + "/checkpoints")))
      EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  }
};

TEST_F(Faults, KilledAnywhereItResumesBitForBit) {
  const Texts settings = {"training.steps=6", "checkpoint.every=2", "checkpoint.keep=1"};
  const int calls = count_calls(settings);
  std::cout << calls << " calls\n";
  ASSERT_GT(calls, 40);
  const int every = tests::every_nth(5);
  in_parallel(calls / every, [&](int number) {
    const int call = every * number + 1;
    SCOPED_TRACE(text("call ", call, " of ", calls));
    const std::string folder = text("run-", number);
    const Outcome killed =
        train_with(in(folder, settings), number % 2 == 0 ? "kill" : "kill-half", call);
    EXPECT_NE(killed.status, 0);
    // A complete save is what is resumed from.
    std::int64_t newest = 0;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(path(folder + "/checkpoints"), none_yet)) {
      const std::string name = entry.path().filename().string();
      if (name.rfind("step-", 0) == 0 && name.find('.') == std::string::npos)
        newest = std::max<std::int64_t>(newest, std::stoll(name.substr(5)));
    }
    const std::int64_t done = static_cast<std::int64_t>(rows(folder).size());
    EXPECT_GE(newest, done - 4) << "more is lost than one save";
    expect_to_end_as_the_reference(folder, settings);
    fs::remove_all(path(folder));
  });
}

/// Ranks make different calls, and one may be ahead of the other.
TEST_F(Faults, TwoRanksKilledAnywhereResumeBitForBit) {
  for (const char* const files : {"rank", "single"}) {
    const Texts settings = {"training.steps=6", "checkpoint.every=2", "checkpoint.keep=1",
                            text("checkpoint.files=", files)};
    fs::remove_all(path("reference"));
    const int calls = count_calls(settings);
    const int every = 4 * tests::every_nth(5);
    in_parallel(calls / every, [&](int number) {
      const int call = every * number + 1;
      SCOPED_TRACE(text(files, ", call ", call, " of ", calls));
      const std::string folder = text("run-", number);
      EXPECT_NE(train_with(in(folder, settings), "kill", call, 2).status, 0);
      expect_to_end_as_the_reference(folder, settings);
      fs::remove_all(path(folder));
    });
  }
}

TEST_F(Faults, FullDisksAndErrorsHarmNoOlderCheckpoint) {
  const Texts settings = {"training.steps=6", "checkpoint.every=2", "checkpoint.keep=9"};
  const int calls = count_calls(settings);
  const int every = tests::every_nth(5);
  in_parallel(calls / every, [&](int number) {
    const std::string fault = number % 2 == 0 ? "enospc" : "eio";
    const int call = every * number + 1;
    SCOPED_TRACE(text(fault, " at call ", call));
    const std::string folder = text("run-", number);
    const Outcome faulty = train_with(in(folder, settings), fault, call);
    // Training continues; the status reports a last save that failed.
    EXPECT_TRUE(faulty.status == 0 || faulty.status == 1) << faulty.status << faulty.err;
    EXPECT_EQ(rows(folder).size(), 6u) << faulty.out << faulty.err;
    if (faulty.status == 1) {
      EXPECT_NE(faulty.err.find("could not be saved"), std::string::npos) << faulty.err;
    }
    expect_to_end_as_the_reference(folder, settings);
    fs::remove_all(path(folder));
  });
}

}  // namespace
}  // namespace ostrakon::testing
