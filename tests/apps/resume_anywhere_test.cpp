// SPDX-License-Identifier: Apache-2.0
// Runs that are killed at any call of the system, or whose calls fail, and are resumed.
#include <fstream>
#include <iostream>

#include "resume_fixture.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

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
    EXPECT_LACKS(rest.out, "damaged");
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
      EXPECT_HAS(faulty.err, "could not be saved");
    }
    expect_to_end_as_the_reference(folder, settings);
    fs::remove_all(path(folder));
  });
}

}  // namespace
}  // namespace ostrakon::testing
