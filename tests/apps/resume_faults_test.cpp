// SPDX-License-Identifier: Apache-2.0

// Runs that resume although files can't be read at the moment, are damaged, are not seen by a host,
// or have the names that saves need: what is no damage ends the run and changes nothing.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>
#include <set>
#include <sstream>
#include <string>
#include <support/damage.hpp>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "support/trials.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;
using Environment = std::vector<std::pair<std::string, std::string>>;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 16, heads: 2, vocabulary: 31}
  data: {dataset: synthetic}
  training: {steps: 6, global_batch_size: 4, micro_batch_size: 1, sequence_length: 12}
  checkpoint: {every: 2, keep: 9}
  output: {digest_every: 1, directory: run}
  runtime: {peak_gflops: 1}
)";

const Texts errors = {"eio", "eacces", "estale", "enomem", "emfile"};
const std::map<std::string, std::string> words_of = {
    {"eio", "Input/output error"},     {"eacces", "Permission denied"},
    {"estale", "Stale file handle"},   {"enomem", "Cannot allocate memory"},
    {"emfile", "Too many open files"}, {"enoent", "does not see"}};

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

/// A folder with the deck and a run of two ranks, saved after steps 2, 4 and 6, to be copied.
class ResumeFaults : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new ScratchFolder;
    write_bytes(shared_->file("deck.yaml"), deck);
    const Outcome outcome =
        run_command(program("ostrakon-train", 2, {"deck.yaml"}, shared_->file("")));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  static void TearDownTestSuite() { delete std::exchange(shared_, nullptr); }

  ResumeFaults() { renew(); }

  /// The run as it was.
  void renew() const {
    fs::remove_all(path(""));
    fs::copy(shared_->file(""), path(""),
             fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  std::string path(const std::string& name) const { return folder_.file("copy/" + name); }
  std::string output(const std::string& name) const { return path("run/" + name); }
  std::string checkpoint(const std::string& name) const { return output("checkpoints/" + name); }

  Outcome train(int ranks, const Texts& options = {"--resume", "auto"},
                const Environment& environment = {}) const {
    Texts arguments = {"deck.yaml"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Command command = program("ostrakon-train", ranks, arguments, path(""));
    command.environment.insert(command.environment.end(), environment.begin(), environment.end());
    return run_command(command);
  }

  /// `calls`: kinds; all of them fail, on one rank.
  static Environment fault(const std::string& error, const std::string& file,
                           const std::string& calls, int rank = 0, int first = 1) {
    return {{"LD_PRELOAD", OSTRAKON_FAULTY_FILES},
            {"OSTRAKON_FAULT_PATH", file},
            {"OSTRAKON_FAULT_CALLS", calls},
            {"OSTRAKON_FAULT_RANK", std::to_string(rank)},
            {"OSTRAKON_FAULT", error},
            {"OSTRAKON_FAULT_CALL", std::to_string(first)},
            {"OSTRAKON_FAULT_STAYS", "1"}};
  }

  /// All names below a folder of the run, with what is in the files.
  std::map<std::string, std::string> all_files(const std::string& folder = "") const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(output(folder))) {
      const std::string name = entry.path().string();
      found[name] = entry.is_symlink()     ? fs::read_symlink(entry.path()).string()
                    : entry.is_directory() ? ""
                                           : read_bytes(name);
    }
    return found;
  }

  std::set<std::string> checkpoints() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(output("checkpoints")))
      names.insert(entry.path().filename().string());
    return names;
  }

  /// Such a run ends by name and changes nothing.
  void expect_refused(int ranks, const Environment& environment, const Texts& parts) const {
    const auto before = all_files();
    const Outcome faulty = train(ranks, {"--resume", "auto"}, environment);
    EXPECT_EQ(faulty.status, 1) << faulty.out << faulty.err;
    for (const std::string& part : parts) EXPECT_HAS(faulty.err, part);
    EXPECT_LACKS(faulty.out, "damaged");
    EXPECT_TRUE(all_files() == before);
  }

  /// Without a fault the newest is taken.
  void expect_newest_taken(int ranks) const {
    const Outcome again = train(ranks);
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_HAS(again.out, "step-00000006, step 6 of 6");
    EXPECT_EQ(checkpoints(),
              (std::set<std::string>{"latest", "step-00000002", "step-00000004", "step-00000006"}));
  }

  /// Changes a bit of a file of a checkpoint.
  void flip(const std::string& name) const { damage(checkpoint(name)); }

 private:
  static ScratchFolder* shared_;
  ScratchFolder folder_;
};
ScratchFolder* ResumeFaults::shared_ = nullptr;

TEST_F(ResumeFaults, WhatCanNotBeReadNowEndsTheRunAndChangesNothing) {
  struct Case {
    std::string file, calls;
    int rank;
    bool with_no_memory;  ///< calls that may fail so
  };
  int number = 0;
  // By rank 0: the manifest, its folder, the list of them. By rank 1: its file of arrays.
  for (const Case& one : std::vector<Case>{{"step-00000006/manifest.json", "opens", 0, true},
                                           {"step-00000006/manifest.json", "reads", 0, false},
                                           {"step-00000006/manifest.json", "stats", 0, false},
                                           {"run/checkpoints", "opens", 0, true},
                                           {"run/checkpoints", "reads", 0, false},
                                           {"step-00000006/rank-00001.h5", "opens", 1, true},
                                           {"step-00000006/rank-00001.h5", "reads", 1, false},
                                           {"step-00000006/rank-00001.h5", "stats", 1, false},
                                           {"step-00000004/manifest.json", "reads", 0, false}}) {
    for (const std::string& error : errors) {
      if (!one.with_no_memory && (error == "enomem" || error == "emfile")) continue;
      if (++number % tests::every_nth(5) != 0) continue;
      SCOPED_TRACE(text(error, " where it ", one.calls, " ", one.file));
      expect_refused(
          2, fault(error, one.file, one.calls, one.rank),
          {words_of.at(error), one.file, text("rank ", one.rank, " on ", host_name(), ": ")});
    }
  }
  expect_newest_taken(2);
}

TEST_F(ResumeFaults, EachReadOfAManifestAndOfNumbersMayFail) {
  // Not only the first one of a file.
  for (const auto& [file, rank] :
       {std::pair{"step-00000006/manifest.json", 0}, std::pair{"step-00000006/rank-00000.h5", 0},
        std::pair{"step-00000006/rank-00001.h5", 1}}) {
    Environment counting = fault("count", file, "opens,reads,stats", rank, 0);
    for (auto& [key, value] : counting)
      if (key == "OSTRAKON_FAULT") value.clear();
    counting.emplace_back("OSTRAKON_FAULT_COUNT", path("calls"));
    ASSERT_EQ(train(2, {"--resume", "auto"}, counting).status, 0);
    int calls = 0;
    std::istringstream lines(read_bytes(path("calls")));
    for (int count = 0; lines >> count;) calls = std::max(calls, count);
    ASSERT_GE(calls, 3) << file;
    for (int call = 1; call <= calls; call += tests::every_nth(9)) {
      SCOPED_TRACE(text("call ", call, " of ", calls, " for ", file));
      renew();
      const auto before = all_files("checkpoints");
      const Outcome faulty =
          train(2, {"--resume", "auto"}, fault("eio", file, "opens,reads,stats", rank, call));
      EXPECT_LACKS(faulty.out, "damaged");
      if (faulty.status == 0) {  // what is read when all is decided may fail without harm
        EXPECT_HAS(faulty.out, "step 6 of 6");
        continue;
      }
      EXPECT_EQ(faulty.status, 1) << faulty.err;
      EXPECT_HAS(faulty.err, file);
      EXPECT_TRUE(all_files("checkpoints") == before);
    }
  }
}

TEST_F(ResumeFaults, WhatOneHostDoesNotSeeEndsTheRun) {
  const std::string root = text("rank 0 on ", host_name(), ": "),
                    other = text("rank 1 on ", host_name(), ": ");
  // Rank 1 sees no file of the newest, one file less, or an old handle.
  for (const char* const file : {"/step-00000006", "step-00000006/rank-00001.h5"}) {
    SCOPED_TRACE(file);
    expect_refused(2, fault("enoent", file, "opens,stats", 1), {other, "does not see", file});
    expect_refused(2, fault("estale", file, "opens,stats", 1), {other, "Stale file handle", file});
  }
  // Rank 0 does not.
  expect_refused(2, fault("enoent", "/step-00000006", "opens,stats", 0),
                 {root, "not visible on this host", "/step-00000006"});
  expect_refused(2, fault("enoent", "step-00000006/manifest.json", "opens,stats", 0),
                 {root, "does not see the file (yet)", "step-00000006"});
  expect_newest_taken(2);
}

TEST_F(ResumeFaults, WhatRankZeroAloneDoesNotSeeEndsTheRun) {
  const auto before = all_files();
  const Texts on_two_nodes = {"--resume", "auto", "--set", "parallel.ranks_per_node=1"};
  const Outcome outcome =
      train(2, on_two_nodes, fault("enoent", "run/checkpoints", "opens,stats", 0));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  for (const std::string& part : {text("rank 1 on ", host_name(), ": sees checkpoint '"),
                                  std::string("step-00000006', which "),
                                  text("rank 0 on ", host_name(), " does not see (yet)")})
    EXPECT_HAS(outcome.err, part);
  EXPECT_TRUE(all_files() == before);
  EXPECT_HAS(train(2, on_two_nodes).out, "step 6 of 6");
}

TEST_F(ResumeFaults, ALinkThatLeadsNowhereEndsTheRun) {
  fs::rename(output("checkpoints"), path("disk"));
  fs::create_directory_symlink(path("mount"), output("checkpoints"));
  const auto before = all_files();
  const Outcome outcome = train(2);
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_HAS(
      outcome.err,
      "run/checkpoints' is a link whose target does not exist, or is not mounted on this host");
  EXPECT_TRUE(all_files() == before);
  fs::rename(path("disk"), path("mount"));
  EXPECT_HAS(train(2).out, "step 6 of 6");
}

TEST_F(ResumeFaults, ShortJobsKeepNoMoreThanLongOnes) {
  for (int steps = 7; steps <= 9; ++steps) {
    const Outcome outcome = train(1, {"--resume", "auto", "--set", "checkpoint.keep=3", "--set",
                                      text("training.steps=", steps)});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  EXPECT_EQ(checkpoints(),
            (std::set<std::string>{"latest", "step-00000007", "step-00000008", "step-00000009"}));
}

TEST_F(ResumeFaults, MissingAndLaterOnesEndTheRun) {
  const std::string manifest = checkpoint("step-00000006/manifest.json");
  const std::string shard = checkpoint("step-00000006/rank-00001.h5");
  const std::string whole = read_bytes(manifest);
  const auto later = [&] {
    std::string words = whole;
    words.replace(words.find("\"version\": 1"), 12, "\"version\": 2");
    const std::string sum = format_hex(checkpoint::checksum_of_text(words));
    write_bytes(manifest, words.replace(checkpoint::checksum_place(words), sum.size(), sum));
  };
  struct Case {
    std::function<void()> damage;
    Texts parts;
    std::function<void()> repair;
  };
  for (const Case& one : std::vector<Case>{
           {later,
            {"step-00000006/manifest.json", "is of version 2", "use the program that wrote it"},
            [&] { write_bytes(manifest, whole); }},
           {[&] { fs::rename(manifest, path("away")); },
            {"step-00000006", "has no manifest.json"},
            [&] { fs::rename(path("away"), manifest); }},
           {[&] { fs::rename(shard, path("away")); },
            {"step-00000006/rank-00001.h5", "is missing"},
            [&] { fs::rename(path("away"), shard); }}}) {
    one.damage();
    const auto before = all_files();
    const Outcome outcome = train(2);
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    for (const std::string& part : one.parts) EXPECT_HAS(outcome.err, part);
    EXPECT_TRUE(all_files() == before);
    one.repair();
  }
  EXPECT_EQ(train(2).status, 0);
}

TEST_F(ResumeFaults, WhatIsDamagedIsSetAsideAndTheOneBeforeTaken) {
  const auto cut = [&](const std::string& name, std::uintmax_t bytes) {
    fs::resize_file(checkpoint("step-00000006/" + name), bytes);
  };
  const std::vector<std::function<void()>> damages = {
      [&] { flip("step-00000006/manifest.json"); },
      [&] { cut("manifest.json", 0); },
      [&] { cut("manifest.json", 500); },
      [&] { write_bytes(checkpoint("step-00000006/manifest.json"), "{}"); },
      [&] { flip("step-00000006/rank-00001.h5"); },
      [&] { cut("rank-00001.h5", 0); },
      [&] { cut("rank-00001.h5", fs::file_size(checkpoint("step-00000006/rank-00001.h5")) - 1); },
      [&] { cut("rank-00001.h5", fs::file_size(checkpoint("step-00000006/rank-00001.h5")) + 1); },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    SCOPED_TRACE(i);
    renew();
    damages[i]();
    const Outcome outcome = train(2);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_HAS(outcome.out, "damaged: ");
    EXPECT_HAS(outcome.out, "renamed to ");
    EXPECT_HAS(outcome.out, "step-00000004, step 4 of 6");
    EXPECT_EQ(checkpoints(), (std::set<std::string>{"latest", "step-00000002", "step-00000004",
                                                    "step-00000006", "step-00000006.damaged"}));
    EXPECT_EQ(fs::read_symlink(checkpoint("latest")), "step-00000006");
  }
}

TEST_F(ResumeFaults, SavesRenameWhatHasTheirName) {
  // Another learning rate from step 2 on, in the same folder.
  const std::string old = read_bytes(checkpoint("step-00000004/manifest.json"));
  const Texts from_2 = {"--resume", checkpoint("step-00000002"),   "--set", "training.steps=4",
                        "--set",    "optimizer.learning_rate=1e-4"};
  const Outcome outcome = train(2, from_2);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_HAS(outcome.out, "an earlier checkpoint of step 4 is in ");
  EXPECT_HAS(outcome.out, "step-00000004.previous now");
  EXPECT_EQ(read_bytes(checkpoint("step-00000004.previous/manifest.json")), old);
  EXPECT_EQ(checkpoints(), (std::set<std::string>{"latest", "step-00000002", "step-00000004",
                                                  "step-00000004.previous", "step-00000006"}));
  EXPECT_EQ(fs::read_symlink(checkpoint("latest")), "step-00000004");
  // The newest is what was saved last.
  const Outcome next = train(2);
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_HAS(next.out, "step-00000004, step 4 of 6");
  EXPECT_TRUE(fs::exists(checkpoint("step-00000006.previous")));
  EXPECT_EQ(fs::read_symlink(checkpoint("latest")), "step-00000006");
  // The checkpoint of a run that was interrupted while it renamed is found, and gets its name back.
  fs::rename(checkpoint("step-00000006"), checkpoint("step-00000006.replaced.partial"));
  const Outcome back = train(2);
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_HAS(back.out, "step 6 of 6");
  EXPECT_TRUE(fs::exists(checkpoint("step-00000006/manifest.json")));
}

TEST_F(ResumeFaults, OfAnEarlierOneThatIsOnlyNamedLatestStays) {
  const Outcome outcome =
      train(2, {"--resume", checkpoint("step-00000002"), "--set", "training.steps=2"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(fs::read_symlink(checkpoint("latest")), "step-00000006");
  EXPECT_HAS(train(2).out, "step 6 of 6");
}

TEST_F(ResumeFaults, AFailedSaveNamesRankHostAndFile) {
  fs::remove_all(path("run"));
  const Outcome outcome =
      train(2, {"--resume", "auto"}, fault("enospc", "/rank-00001.h5", "changes", 1));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  const std::string expected = text("rank 1 on ", host_name(), ": can't write '");
  for (const std::string& words : {outcome.out, outcome.err}) {
    EXPECT_HAS(words, expected);
    EXPECT_HAS(words, "rank-00001.h5': No space left on device");
  }
  fs::remove_all(path("run"));
  const Outcome root = train(1, {}, fault("eio", "/manifest.json", "changes", 0));
  EXPECT_EQ(root.status, 1) << root.out;
  EXPECT_HAS(root.err, text("rank 0 on ", host_name(), ": can't write '"));
  EXPECT_HAS(root.err, "manifest.json': Input/output error");
}

/// Where a file system reports only then that there is no space.
TEST_F(ResumeFaults, AFailureToCloseMetricsOrATraceIsTold) {
  const Texts short_run = {"--set", "training.time_limit_minutes=1e-6", "--set", "output.trace=9"};
  for (const char* const name : {"metrics.jsonl", "trace.json"}) {
    fs::remove_all(path("run"));
    const Outcome outcome = train(1, short_run, fault("enospc", text("/run/", name), "closes"));
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_HAS(outcome.err, text(name, "': No space left on device"));
    EXPECT_TRUE(fs::exists(output("weights.h5")));
  }
}

TEST_F(ResumeFaults, ADiskThatIsFullForAWhileLosesNoRow) {
  const auto results = [&] {
    std::vector<std::string> found;
    std::istringstream lines(read_bytes(output("metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json row = Json::parse(line);
      found.push_back(text(row["step"].dump(), " ", row["loss"].dump(), " ",
                           row["grad_norm"].dump(), " ", row["state_digest"].dump()));
    }
    return found;
  };
  const std::vector<std::string> expected = results();
  ASSERT_EQ(expected.size(), 6u);
  // The file is made, a row is written, half of the second. Then that can be cut off, or not.
  for (const int last : {3, 4, 8}) {
    fs::remove_all(path("run"));
    Environment environment = fault("enospc", "/metrics.jsonl", "changes", 0, 3);
    environment.back() = {"OSTRAKON_FAULT_LAST", std::to_string(last)};
    environment.emplace_back("OSTRAKON_FAULT_HALF", "1");
    const Outcome outcome = train(2, {}, environment);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(results() == expected) << read_bytes(output("metrics.jsonl"));
    const std::string warning = "/metrics.jsonl': No space left on device; rows wait in memory";
    const std::size_t first = outcome.out.find(warning);
    EXPECT_EQ(first != std::string::npos, last > 3) << outcome.out;
    if (last > 3) {
      EXPECT_EQ(outcome.out.find(warning, first + 1), std::string::npos) << outcome.out;
      EXPECT_HAS(outcome.out, "/metrics.jsonl' has all rows again");
    }
  }
}

TEST_F(ResumeFaults, ADiskThatStaysFullIsToldAtTheEnd) {
  for (const char* const name : {"metrics.jsonl", "trace.json"}) {
    fs::remove_all(path("run"));
    const Outcome outcome = train(2, {"--set", "output.trace=2"},
                                  fault("enospc", text("/run/", name), "changes", 0, 4));
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_HAS(outcome.err, text(name, "': No space left on device"));
    EXPECT_HAS(outcome.out, "in memory until it can be written");
    EXPECT_HAS(outcome.out, "checkpoint of step 6");
    EXPECT_TRUE(fs::exists(output("weights.h5")));
  }
}

TEST_F(ResumeFaults, OfSeveralFailuresTheFirstEndsTheRun) {
  fs::remove_all(path("run"));
  // It stops after its first step. Neither a checkpoint nor weights can be written.
  const Outcome outcome =
      train(1, {"--set", "runtime.wall_time=0:01"}, fault("enospc", ".h5", "changes"));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_HAS(outcome.err, "stopped as asked, but without a checkpoint of step 1: ");
  EXPECT_HAS(outcome.out, "weights could not be saved: ");
}

TEST_F(ResumeFaults, MetricsLoseNothing) {
  const std::string metrics = output("metrics.jsonl");
  const auto steps = [&](const std::string& file) {
    std::string found;
    std::istringstream lines(read_bytes(file));
    for (std::string line; std::getline(lines, line);) {
      const Json row = Json::parse(line, nullptr, false);
      found += row.is_object() ? std::to_string(row["step"].get<int>()) : "-";
    }
    return found;
  };
  ASSERT_EQ(steps(metrics), "123456");
  const std::string before = read_bytes(metrics);
  for (const char* const calls : {"opens", "reads", "stats"}) {
    const Outcome faulty = train(2, {"--resume", "auto"}, fault("eio", "/metrics.jsonl", calls));
    EXPECT_EQ(faulty.status, 1) << calls << faulty.out;
    EXPECT_HAS(faulty.err, "metrics.jsonl': Input/output error");
    EXPECT_EQ(read_bytes(metrics), before);
  }
  // A line that is no row among them, and one that was not written to its end.
  const std::size_t third = before.find("{\"step\":3");
  write_bytes(metrics, before.substr(0, third) + "junk\n" + before.substr(third) + "{\"step\":7,");
  const Outcome further = train(2, {"--resume", "auto", "--set", "training.steps=8"});
  EXPECT_EQ(further.status, 0) << further.err;
  EXPECT_EQ(steps(metrics), "12-345678");
  // Back to step 4.
  EXPECT_EQ(train(2, {"--resume", checkpoint("step-00000004"), "--set", "training.steps=5"}).status,
            0);
  EXPECT_EQ(steps(metrics), "12-345");
  // A run that begins anew.
  const Outcome anew = train(2, {"--set", "training.steps=1"});
  EXPECT_EQ(anew.status, 0) << anew.err;
  EXPECT_HAS(anew.out, "metrics of an earlier run are in ");
  EXPECT_EQ(steps(metrics), "1");
  EXPECT_EQ(steps(output("metrics.previous.jsonl")), "12-345");
}

}  // namespace
}  // namespace ostrakon::testing
