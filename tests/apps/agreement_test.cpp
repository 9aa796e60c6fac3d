// SPDX-License-Identifier: Apache-2.0

// What has to be the same on all ranks, in a checkpoint, and for the one run in a folder: starts
// that differ are refused by name, and nothing hangs.

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <ostrakon/base/files/folder_lock.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 32, heads: 4, vocabulary: 61}
  data: {dataset: synthetic}
  training: {steps: 4, global_batch_size: 4, micro_batch_size: 1, sequence_length: 24}
  checkpoint: {every: 2}
  output: {directory: run}
  runtime: {peak_gflops: 1}
)";

std::string app(const std::string& name) { return std::string(OSTRAKON_APPS_DIR "/") + name; }

class Agreement : public ::testing::Test {
 protected:
  Agreement() { write_bytes(path("deck.yaml"), deck); }

  std::string path(const std::string& name) const { return folder_.file(name); }

  Outcome train(const Texts& arguments, int ranks = 1) const {
    Texts all = {"deck.yaml"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(program("ostrakon-train", ranks, all, path("")));
  }
  Outcome expect_done(const Texts& arguments, int ranks = 1) const {
    const Outcome outcome = train(arguments, ranks);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome;
  }
  void expect_refused(const Texts& arguments, const Texts& parts, int ranks = 1) const {
    const Outcome outcome = train(arguments, ranks);
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_FALSE(outcome.timed_out);
    expect_in(outcome.err, parts);
  }

  /// One rank with the one command, one with the other.
  Outcome start_unlike(const Texts& first, const Texts& second) const {
    Command command;
    command.arguments = {OSTRAKON_MPIEXEC, OSTRAKON_MPIEXEC_NUMPROC_FLAG, "1"};
    command.arguments.insert(command.arguments.end(), first.begin(), first.end());
    for (const char* part : {":", OSTRAKON_MPIEXEC_NUMPROC_FLAG, "1"})
      command.arguments.emplace_back(part);
    command.arguments.insert(command.arguments.end(), second.begin(), second.end());
    command.folder = path("");
    return run_command(command);
  }

  /// Tokens that begin with `first`.
  void write_tokens(const std::string& name, const std::string& tokenizer, int first) const {
    std::vector<std::int32_t> tokens(1000);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<std::int32_t>((i * i + static_cast<std::size_t>(first)) % 61);
    data::TokenFileWriter writer(path(name), tokenizer, 61, {});
    writer.append(tokens.data(), static_cast<std::int64_t>(tokens.size()));
    writer.finish();
  }
  static Texts on_tokens(const std::string& name, const Texts& more = {}) {
    Texts all = {"--set", "data.dataset=tokens", "--set", "data.path=" + name};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Changes what a checkpoint says of itself.
  void rewrite(const std::string& checkpoint,
               const std::function<void(checkpoint::Manifest&)>& change) const {
    const std::string file = checkpoint::manifest_path(path(checkpoint));
    checkpoint::Manifest manifest = checkpoint::read_manifest(read_bytes(file), file);
    change(manifest);
    write_bytes(file, checkpoint::write_manifest(manifest));
  }

  /// All files of a folder, but for the lock, with what is in them.
  std::map<std::string, std::string> contents(const std::string& folder) const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path(folder)))
      if (entry.is_regular_file() && entry.path().filename() != "run.lock")
        found[entry.path().string()] = read_bytes(entry.path().string());
    return found;
  }

  bool wait_for(const std::function<bool()>& holds) const {
    for (int i = 0; i < 600; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  /// A run that does not end by itself, from when it trains on.
  std::future<Outcome> start_long_run(const Texts& more = {}) {
    Texts all = {"--set", "training.steps=100000000"};
    all.insert(all.end(), more.begin(), more.end());
    std::future<Outcome> outcome =
        std::async(std::launch::async, [this, all] { return train(all, 2); });
    EXPECT_TRUE(wait_for(
        [&] { return fs::exists(path("run/checkpoints/latest")) && holder().process > 0; }));
    return outcome;
  }
  LockHolder holder() const {
    return read_holder(read_bytes(path("run/run.lock"))).value_or(LockHolder());
  }
  void end_run(int signal) const {
    const auto process = static_cast<pid_t>(holder().process);
    if (process > 0) kill(process, signal);
  }

 private:
  ScratchFolder folder_;
};

TEST_F(Agreement, RanksThatAreStartedUnlikeAreRefused) {
  const std::string train = app("ostrakon-train"), bench = app("ostrakon-bench");
  struct Start {
    Texts first, second;
    std::string message;
  };
  const Texts plain = {train, "deck.yaml"};
  const Start starts[] = {
      {plain,
       {train, "deck.yaml", "--dry-run"},
       "the command line is \"deck.yaml --dry-run\" on rank 1"},
      {{train, "deck.yaml", "--resume", "auto"}, plain, "\"deck.yaml --resume auto\" on rank 0"},
      {plain,
       {train, "deck.yaml", "--set", "model.width=16"},
       "\"deck.yaml --set model.width=16\""},
      {plain, {train, "other.yaml"}, "the command line is \"other.yaml\" on rank 1 (host "},
      {plain, {train, "--print-defaults"}, "\"--print-defaults\" on rank 1"},
      {plain, {train, "--help"}, "\"--help\" on rank 1"},
      {{train, "--version"}, plain, "\"--version\" on rank 0"},
      {plain, {bench, "deck.yaml"}, "the program is ostrakon-bench on rank 1"},
      {{bench, "comm"}, {bench, "kernels"}, "the command line is \"kernels\" on rank 1"}};
  for (const Start& start : starts) {
    const Outcome outcome = start_unlike(start.first, start.second);
    EXPECT_FALSE(outcome.timed_out) << start.message;
    EXPECT_EQ(outcome.status, 1) << start.message;
    expect_in(outcome.err, {"error: ranks were not started alike: ", start.message});
  }
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(Agreement, WhatAllRanksAreAskedIsAnsweredOnce) {
  const Outcome outcome = run_command(program("ostrakon-train", 2, {"--version"}, path("")));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, text("ostrakon-train ", version(), "\n"));
}

TEST_F(Agreement, RanksThatFindOtherDataAreRefused) {
  fs::create_directory(path("other"));
  write_tokens("data.h5", "test", 0);
  write_tokens("other/data.h5", "test", 1);
  const std::string train = app("ostrakon-train"), here = path("deck.yaml");
  const Texts first = {train, here, "--set", "data.dataset=tokens", "--set", "data.path=data.h5"};
  Texts second = {"env", "-C", "other"};
  second.insert(second.end(), first.begin(), first.end());
  Outcome outcome = start_unlike(first, second);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_EQ(outcome.status, 1);
  expect_in(outcome.err, {"data.path", "ranks find different training data", "the checksum is ",
                          "on rank 1 (host ", "on rank 0 (host "});
  EXPECT_FALSE(fs::exists(path("run")));
  write_tokens("other/data.h5", "test", 0);
  outcome = start_unlike(first, second);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST_F(Agreement, RanksThatComputeUnlikeAreNotSaidToHaveTheBitsOfOneRank) {
  const std::string train = app("ostrakon-train");
  Texts first = {train, "deck.yaml", "--dry-run"};
  const auto with_least_instructions = [](Texts command) {
    command.insert(command.begin(), {"env", "ONEDNN_MAX_CPU_ISA=SSE41"});
    return command;
  };
  Texts second = with_least_instructions(first);
  // In fp32 processors may differ.
  const Outcome in_float = start_unlike(first, second);
  expect_in(in_float.out, {"sums over leaves       bitwise equal to 1 rank"});
  first.insert(first.end(), {"--set", "precision.gather=bf16"});
  second = with_least_instructions(first);
  const Outcome alike = start_unlike(first, first), unlike = start_unlike(first, second);
  ASSERT_EQ(alike.status, 0) << alike.err;
  ASSERT_EQ(unlike.status, 0) << unlike.err;
  expect_in(alike.out, {"sums over leaves       bitwise equal to 1 rank"});
  const Outcome least = start_unlike(second, second);
  expect_in(least.out, {"bitwise equal to 1 rank"});
  if (std::string(math::gemm_kernel_16bit()).find("oneDNN") == std::string::npos)
    GTEST_SKIP() << "oneDNN multiplies no bf16 on this processor";
  expect_in(unlike.out, {"equal to 1 rank up to rounding, as ranks have different kernels:\n",
                         "the kernel of bf16 products is in float on rank 1 (host "});
}

TEST_F(Agreement, OtherDataIsRefusedUnlessAllowed) {
  write_tokens("a.h5", "test", 0);
  write_tokens("b.h5", "test", 1);
  write_tokens("c.h5", "another", 0);
  expect_done(on_tokens("a.h5", {"--set", "training.steps=2"}), 2);
  const auto before = contents("run/checkpoints");
  expect_refused(on_tokens("b.h5", {"--resume", "auto"}),
                 {"does not fit the deck: the checksum of its training data was ", ", and is ",
                  "--allow-changes data"},
                 2);
  expect_refused(on_tokens("c.h5", {"--resume", "auto", "--allow-changes", "data"}),
                 {"trained on tokens of the tokenizer 'test'; the data's is 'another'",
                  "--allow-changes tokenizer"});
  for (const char* list : {"date", "", "data,", "data,steps"})
    expect_refused(on_tokens("b.h5", {"--resume", "auto", std::string("--allow-changes=") + list}),
                   {"--allow-changes", "expected data, program or tokenizer"});
  EXPECT_EQ(contents("run/checkpoints"), before);
  // Data in another place is the same data.
  fs::copy_file(path("a.h5"), path("copy.h5"));
  expect_done(on_tokens("copy.h5", {"--resume", "auto", "--set", "training.steps=3"}));
  const Outcome outcome =
      expect_done(on_tokens("c.h5", {"--resume", "auto", "--allow-changes", "tokenizer,data"}), 2);
  expect_in(outcome.out, {"as --allow-changes tokenizer says", "resumes from"});
}

TEST_F(Agreement, OtherSyntheticDataIsRefused) {
  expect_done({"--set", "training.steps=2"});
  expect_refused({"--resume", "auto", "--set", "data.synthetic_noise=0.25"},
                 {"the noise of its training data was 0.1", "and is 0.25"});
}

TEST_F(Agreement, CheckpointsThatDoNotSayTheirDataAreResumed) {
  expect_done({"--set", "training.steps=2"});
  rewrite("run/checkpoints/step-00000002", [](checkpoint::Manifest& manifest) {
    EXPECT_FALSE(manifest.data.empty());
    manifest.data.clear();
  });
  const Outcome outcome = expect_done({"--resume", "auto"});
  expect_in(outcome.out, {"it does not say what data it was trained on"});
}

TEST_F(Agreement, OtherVersionsOfTheProgramAreSaidOrRefused) {
  expect_done({"--set", "training.steps=2"});
  const auto saved_by = [&](const std::string& program) {
    rewrite("run/checkpoints/step-00000002",
            [&](checkpoint::Manifest& manifest) { manifest.program = program; });
  };
  saved_by("Ostrakon 1000.0.1");
  expect_refused({"--resume", "auto"},
                 {text("it was saved by Ostrakon 1000.0.1; this is Ostrakon ", version()),
                  "--allow-changes program"});
  expect_in(expect_done({"--resume", "auto", "--allow-changes", "program"}).out,
            {"saved by Ostrakon 1000.0.1; this is"});
  fs::remove_all(path("run/checkpoints/step-00000004"));
  // It is unknown which version these are.
  for (const char* odd : {"Ostrakon 0.0.9xyz", "Ostrakon 0.0.9.1", "Ostrakon 0.0", "Other 0.0.9"}) {
    saved_by(odd);
    expect_refused({"--resume", "auto"},
                   {std::string("it was saved by ") + odd, "--allow-changes program"});
  }
  saved_by("Ostrakon 0.0.9");
  expect_in(expect_done({"--resume", "auto"}).out, {"saved by Ostrakon 0.0.9; this is"});
}

TEST_F(Agreement, AnotherOptimizerOrModelIsRefusedWhereSizesAreTheSame) {
  // One moment each.
  expect_done({"--set", "training.steps=2", "--set", "optimizer.name=lion"});
  expect_refused({"--resume", "auto", "--set", "optimizer.name=sgd"},
                 {"its optimizer.name is lion, but sgd in the deck"});
  const Texts lion = {"--resume", "auto", "--set", "optimizer.name=lion", "--set"};
  const std::pair<const char*, const char*> changes[] = {
      {"model.heads=2", "model.heads is 4 in it, but 2 in the deck"},
      {"model.norm_epsilon=1e-3", "model.norm_epsilon is "},
      {"model.rotary_base=500000", "model.rotary_base is "}};
  for (const auto& [setting, message] : changes) {
    Texts arguments = lion;
    arguments.emplace_back(setting);
    const Outcome outcome = train(arguments);
    EXPECT_EQ(outcome.status, 1) << setting;
    expect_in(outcome.err, {message});
  }
  Texts allowed = lion;
  for (const char* more : {"optimizer.learning_rate=1e-5", "--set", "parallel.sharding=none"})
    allowed.emplace_back(more);
  expect_in(expect_done(allowed, 2).out, {"the deck says now", "optimizer.learning_rate"});
}

TEST_F(Agreement, WeightsOfAnotherTokenizerAreRefusedUnlessAllowed) {
  write_tokens("a.h5", "test", 0);
  write_tokens("b.h5", "another", 0);
  expect_done(on_tokens("a.h5"));
  const Texts from = {"--set", "checkpoint.initial_weights=run/weights.h5", "--set",
                      "output.directory=second"};
  const std::string message = "trained on tokens of the tokenizer 'test'; the data's is 'another'";
  expect_refused(on_tokens("b.h5", from), {"checkpoint.initial_weights", message}, 2);
  EXPECT_FALSE(fs::exists(path("second")));
  Texts allowed = from;
  allowed.insert(allowed.end(), {"--allow-changes", "tokenizer"});
  expect_in(expect_done(on_tokens("b.h5", allowed)).out, {message});

  Command import;
  import.arguments = {app("ostrakon-checkpoint"),
                      "import",
                      "run/weights.h5",
                      "new.h5",
                      "--deck",
                      "run/deck.yaml",
                      "--tokenizer",
                      "another"};
  import.folder = path("");
  const Outcome done = run_command(import);
  EXPECT_EQ(done.status, 0) << done.err;
  expect_in(done.out, {"note: run/weights.h5 says the tokenizer test, --tokenizer another one"});
}

TEST_F(Agreement, ValidationDataOfAnotherTokenizerIsRefusedUnlessAllowed) {
  write_tokens("a.h5", "test", 0);
  write_tokens("b.h5", "another", 0);
  const Texts settings = on_tokens(
      "a.h5", {"--set", "data.validation_path=b.h5", "--set", "training.validate_every=2"});
  const std::string what =
      "its tokenizer is 'another', that of the training data in " + path("a.h5") + " is 'test'";
  expect_refused(settings, {"data.validation_path=\"b.h5\"", what, "--allow-changes tokenizer"}, 2);
  EXPECT_FALSE(fs::exists(path("run")));
  Texts allowed = settings;
  allowed.insert(allowed.end(), {"--allow-changes", "tokenizer"});
  expect_in(expect_done(allowed).out, {"note                   " + what, "validation loss"});
}

TEST_F(Agreement, ACheckpointOfMoreStepsThanTheDeckHasIsRefused) {
  expect_done({"--set", "training.steps=3"});
  const auto before = contents("run");
  expect_refused({"--set", "training.steps=2", "--resume", "auto"},
                 {"it has done 3 steps, more than training.steps = 2"}, 2);
  EXPECT_EQ(contents("run"), before);
  expect_in(expect_done({"--set", "training.steps=3", "--resume", "auto"}).out,
            {"all 3 steps of training.steps are done already"});
}

TEST_F(Agreement, ASecondRunInAFolderIsRefusedAndLeavesItAsItIs) {
  // It does not move meanwhile, as its watchdog would not allow for long.
  std::future<Outcome> first = start_long_run({"--set", "runtime.watchdog=off"});
  end_run(SIGSTOP);
  std::this_thread::sleep_for(std::chrono::seconds(1));  // nor does the other rank then
  const auto before = contents("run");
  for (const char* resume : {"none", "auto"})
    expect_refused(
        {"--resume", resume},
        {"output.directory", "is in use by process ", " on host ", " since 20", "--break-lock"}, 2);
  // A process of the same start, in which no MPI has made ranks of them: to end the other one would
  // not help.
  Command apart = program("ostrakon-train", 1, {"deck.yaml"}, path(""));
  apart.environment.insert(apart.environment.end(),
                           {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}});
  const Outcome second = run_command(apart);
  EXPECT_EQ(second.status, 1);
  expect_in(second.err, {"is in use by process ",
                         "; srun started 2 processes (SLURM_STEP_NUM_TASKS = 2), but "
                         "MPI knows of 1 rank here: each process is a run of its own",
                         "srun --mpi=pmix"});
  EXPECT_LACKS(second.err, "end it");
  expect_in(second.out, {"note: srun started 2 processes"});
  Command reshard;
  reshard.arguments = {app("ostrakon-checkpoint"),      "reshard", "run/checkpoints/latest",
                       "run/checkpoints/step-00000001", "--ranks", "1"};
  reshard.folder = path("");
  const Outcome resharded = run_command(reshard);
  EXPECT_EQ(resharded.status, 1);
  expect_in(resharded.err, {"is in use by process "});
  EXPECT_EQ(contents("run"), before);
  // A look at the plan changes nothing, and needs no lock.
  EXPECT_EQ(train({"--dry-run"}).status, 0);
  EXPECT_EQ(contents("run"), before);
  end_run(SIGCONT);
  end_run(SIGUSR2);
  EXPECT_EQ(first.get().status, 75);
  EXPECT_FALSE(fs::exists(path("run/run.lock")));
}

TEST_F(Agreement, AFileForAFolderThatARunHasIsRefused) {
  expect_done({"--set", "training.steps=2"});
  fs::create_directory_symlink(path("run/checkpoints"), path("link"));
  fs::create_directories(path("far/run"));
  fs::create_directories(path("stored"));
  fs::create_directory_symlink(path("stored"), path("far/run/checkpoints"));
  const auto reshard = [&](const std::string& out) {
    Command command;
    command.arguments = {
        app("ostrakon-checkpoint"), "reshard", path("run/checkpoints/latest"), out, "--ranks", "1"};
    command.folder = path("run/checkpoints");
    return run_command(command);
  };
  const std::pair<const char*, std::string> places[] = {
      {"run", "../in-run"},
      {"run", "in-checkpoints"},
      {"run", path("link/by-link")},
      {"far/run", path("far/run/checkpoints/by-name")}};
  for (const auto& [folder, out] : places) {
    {
      const FolderLock lock(path(folder), {});
      const Outcome outcome = reshard(out);
      EXPECT_EQ(outcome.status, 1) << out;
      expect_in(outcome.err, {"is in use by process " + std::to_string(getpid())});
    }
    const Outcome outcome = reshard(out);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_FALSE(fs::exists(path(std::string(folder) + "/run.lock")));
  }
}

TEST_F(Agreement, ARunThatWasKilledIsGoneOnWithAtOnce) {
  std::future<Outcome> first = start_long_run();
  const std::string killed = std::to_string(holder().process);
  end_run(SIGKILL);
  first.get();
  EXPECT_TRUE(fs::exists(path("run/run.lock")));
  const auto began = std::chrono::steady_clock::now();
  // All of its steps are done, or nearly: a start and an end.
  std::string newest;
  for (const auto& entry : fs::directory_iterator(path("run/checkpoints")))
    if (entry.path().filename().string().rfind("step-", 0) == 0)
      newest = std::max(newest, entry.path().filename().string().substr(5, 8));
  const Outcome again = expect_done(
      {"--resume", "auto", "--set", "training.steps=" + std::to_string(std::stoll(newest))}, 2);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(25));
  expect_in(again.out,
            {"was left by process " + killed, "which is gone: taken over", "resumes from"});
  EXPECT_LACKS(again.out, "waits");
  EXPECT_FALSE(fs::exists(path("run/run.lock")));
}

TEST_F(Agreement, ARunWhoseFolderIsTakenEndsAndWritesNoMore) {
  std::future<Outcome> first = start_long_run();
  const std::string from = std::to_string(holder().process);
  const Outcome second = expect_done({"--break-lock"});
  expect_in(second.out, {"taken from process " + from, "as asked"});
  const Outcome ended = first.get();
  EXPECT_EQ(ended.status, 1);
  EXPECT_FALSE(ended.timed_out);
  expect_in(ended.err, {"was taken by process ", ": nothing more is written there"});
  // All output is the second run's.
  const std::string rows = read_bytes(path("run/metrics.jsonl"));
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 4) << rows;
  EXPECT_TRUE(fs::exists(path("run/checkpoints/step-00000004")));
  EXPECT_FALSE(fs::exists(path("run/run.lock")));
}

}  // namespace
}  // namespace ostrakon::testing
