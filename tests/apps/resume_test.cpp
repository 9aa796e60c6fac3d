// SPDX-License-Identifier: Apache-2.0
// Runs that are asked to save or to stop, are killed or lose their disk, and are resumed.
#include <signal.h>

#include <cstdio>
#include <support/damage.hpp>

#include "resume_fixture.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

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
    EXPECT_HAS(outcome.out, "as requested by a signal");
    EXPECT_FALSE(fs::exists(output("weights.h5")));
    // On another number of ranks.
    const Outcome rest = train(2, {}, {"--resume", "auto"});
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_HAS(rest.out, "saved by 4 ranks");
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
  EXPECT_HAS(outcome.out, "as runtime.wall_time ends");
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
  EXPECT_HAS(again.out, "are done already");
}

/// What is saved of frozen parameters are their copies in 16 bits, as floats.
TEST_F(Resume, ContinuesWithAdaptersBesideFrozenParametersWithoutMasters) {
  for (const char* const async : {"true", "false"}) {
    fs::remove_all(path("run"));
    const Texts settings = {"lora.rank=2",
                            "lora.targets=q_proj, o_proj, down_proj",
                            "precision.gather=bf16",
                            "precision.frozen=gather",
                            "training.steps=12",
                            "checkpoint.every=4",
                            text("checkpoint.async=", async)};
    const Outcome whole = train(2, settings);
    ASSERT_EQ(whole.status, 0) << whole.err;
    fs::remove_all(output("checkpoints/step-00000012"));
    fs::remove(output("checkpoints/latest"));
    fs::remove(output("weights.h5"));
    const Outcome rest = train(4, settings, {"--resume", "auto"});
    EXPECT_EQ(rest.status, 0) << rest.err;
    EXPECT_HAS(rest.out, "step-00000008, step 8 of 12, saved by 2 ranks");
    expect_as_if_nothing_had_happened(settings, 12);
  }
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
  EXPECT_HAS(outcome.out, "step-00000012/rank-00001.h5");
  EXPECT_HAS(outcome.out, "step-00000009/manifest.json");
  EXPECT_HAS(outcome.out, "step-00000006, step 6 of 12");
  expect_as_if_nothing_had_happened(settings, 12);
  EXPECT_TRUE(fs::exists(output("checkpoints/step-00000012.damaged"))) << outcome.out;

  // All of them: better no run than one that begins anew unasked.
  for (const std::string& name : checkpoints())
    if (name.find('.') == std::string::npos && name != "latest")
      damage(output("checkpoints/" + name + "/manifest.json"));
  const Outcome none = train(2, settings, {"--resume", "auto"});
  EXPECT_EQ(none.status, 1);
  EXPECT_HAS(none.err, "--resume none begins at step 1");
  // One that is named.
  const Outcome named = train(2, settings, {"--resume", output("checkpoints/step-00000012")});
  EXPECT_EQ(named.status, 1);
  EXPECT_HAS(named.err, "step-00000012");
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
  EXPECT_HAS(again.out, "step-00000012, step 12 of 12");
  const Outcome by_folder = train(2, settings, {"--resume", path("other")});
  EXPECT_HAS(by_folder.out, "step-00000012, step 12 of 12");

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
  EXPECT_HAS(outcome.out, "checkpoint failed");
  EXPECT_HAS(outcome.err, "the last checkpoint could not be saved");
  EXPECT_EQ(rows().size(), 9u);
  EXPECT_TRUE(fs::exists(output("weights.h5")));
  // Who is asked to stop, and can't save, does not say that it can be started again.
  const Outcome stopped = train(2, {"training.steps=1000000", "runtime.wall_time=0:04"});
  EXPECT_EQ(stopped.status, 1);
  EXPECT_HAS(stopped.err, "stopped as asked, but without a checkpoint");
}

TEST_F(Resume, WhatIsFromBeforeSkippedStepsStaysAndTheRunIsNotDone) {
  const Texts good = {"checkpoint.every=5", "training.steps=20"};
  ASSERT_EQ(train(2, good).status, 0);
  const Texts bad = {"checkpoint.every=5", "training.steps=60", "training.on_non_finite=skip",
                     "optimizer.learning_rate=1e30"};
  for (const bool again : {false, true}) {
    const Outcome ruined = train(2, bad, {"--resume", "auto"});
    EXPECT_EQ(ruined.status, 1) << ruined.out;
    EXPECT_HAS(ruined.out, "skipped steps: 39 of 60, the last 39 among them\n");
    EXPECT_HAS(ruined.err, "training is done, but the last 39 steps were skipped");
    EXPECT_HAS(ruined.err, ": resume from " + output("checkpoints/step-00000020"));
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
  EXPECT_LACKS(back.out, "skipped");
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
  EXPECT_HAS(outcome.out,
             "what had the name latest is in " + output("checkpoints/latest.previous") + " now\n");
  EXPECT_LACKS(outcome.out, "can't");
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"latest", "latest.previous", "step-00000010", "step-00000012"}));
  EXPECT_EQ(fs::read_symlink(output("checkpoints/latest")), "step-00000012");
  // A copy that is older than what is there.
  fs::remove(output("checkpoints/latest"));
  fs::copy(output("checkpoints/latest.previous"), output("checkpoints/latest"));
  const Outcome by_name =
      train(1, {"training.steps=12"}, {"--resume", output("checkpoints/latest")});
  EXPECT_HAS(by_name.out, "latest' is an older checkpoint: takes the newest, '");
  EXPECT_HAS(by_name.out, "step-00000012, step 12 of 12");
}

TEST_F(Resume, RenamedCheckpointsAreNotDamaged) {
  ASSERT_EQ(train(1, {"checkpoint.every=2", "training.steps=4"}).status, 0);
  fs::rename(output("checkpoints/step-00000004"), output("checkpoints/step-00000400"));
  fs::copy(output("checkpoints/step-00000400"), path("best"));
  const Texts settings = {"training.steps=5", "checkpoint.every=5"};
  for (const std::string& from : {std::string("auto"), path("best")}) {
    const Outcome outcome = train(1, settings, {"--resume", from});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_LACKS(outcome.out, "damaged");
    EXPECT_HAS(outcome.out, ", step 4 of 5");
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
  EXPECT_HAS(resumed.err, words);
  const Outcome begun = train(2, {"checkpoint.initial_weights=" + path("link")});
  EXPECT_EQ(begun.status, 1);
  EXPECT_HAS(begun.err, words);
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
  EXPECT_HAS(begin_with(path("run")), "begin as in            " + weights + "\n");
  const Json row = rows("other").at(1);
  fs::remove(weights);
  const std::string newest = output("checkpoints/step-00000004");
  for (const std::string& from : {path("run"), output("checkpoints")}) {
    const std::string out = begin_with(from);
    EXPECT_HAS(out, "begin as in            " + newest + "\n");
    EXPECT_EQ(rows("other").at(1)["state_digest"], row["state_digest"]);
  }
  fs::resize_file(newest + "/manifest.json", 9);
  const std::string out = begin_with(path("run"));
  EXPECT_HAS(out, "damaged: ");
  EXPECT_HAS(out, output("checkpoints/step-00000002") + "\n");
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
  EXPECT_HAS(resumed.out, "resumes from");
  expect_as_if_nothing_had_happened(settings, 400);
}

}  // namespace
}  // namespace ostrakon::testing
