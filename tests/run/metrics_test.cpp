// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <ostrakon/run/metrics.hpp>
#include <sstream>
#include <vector>

#include "support/messages.hpp"
#include "support/no_files.hpp"
#include "support/scratch_folder.hpp"

namespace {

/// What had been synced, by its name at that time: one line for each.
std::string synced;

/// Whether pread() fails.
bool reads_fail = false;

}  // namespace

/// These stand before the C library's.
ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  errno = EIO;
  if (reads_fail) return -1;
  return static_cast<ssize_t>(::syscall(SYS_pread64, descriptor, data, bytes, offset));
}
int fsync(int descriptor) {
  std::error_code ignored;
  const auto link = "/proc/self/fd/" + std::to_string(descriptor);
  synced += std::filesystem::read_symlink(link, ignored).string() + "\n";
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace ostrakon::train {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::read_bytes;
using testing::ScratchFolder;
using testing::write_bytes;
using Json = nlohmann::json;

StepMetrics of_step(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.result.loss = 1.0 / static_cast<double>(step);
  return metrics;
}

ValidationMetrics of_validation(std::int64_t step) {
  ValidationMetrics metrics;
  metrics.step = step;
  metrics.validation_loss = 0.5;
  return metrics;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream stream(read_bytes(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// "1 2 2v 3": each row's step, those of validations marked.
std::string steps_in(const std::string& path) {
  std::string steps;
  for (const std::string& line : lines_of(path)) {
    const Json row = Json::parse(line);
    steps += (steps.empty() ? "" : " ") + std::to_string(row["step"].get<std::int64_t>()) +
             (row.contains("validation_loss") ? "v" : "");
  }
  return steps;
}

class Metrics : public ::testing::Test {
 protected:
  /// A run of six steps that validates after every second one.
  void write_six() const {
    MetricsFile file(path_);
    for (std::int64_t step = 1; step <= 6; ++step) {
      file.write(of_step(step));
      if (step % 2 == 0) file.write(of_validation(step));
    }
  }

  void tear_off(std::size_t bytes) const { fs::resize_file(path_, fs::file_size(path_) - bytes); }

  ScratchFolder folder_;
  const std::string path_ = folder_.file("metrics.jsonl");
};

ino_t number_of(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

TEST_F(Metrics, TimesOfRanksHaveFourDigitsAndTheLateOnesAreThereIfThereAreAny) {
  StepMetrics metrics = of_step(1);
  metrics.rank_times.resize(2);
  metrics.rank_times_steps = 50;
  const double seconds[] = {0.0, 1.23456e-3, 0.123456, 12.3456, 123456.7};
  for (std::size_t p = 0; p < 5; ++p) metrics.rank_times[1].of_part[p] = seconds[p];
  MetricsFile file(path_);
  file.write(metrics);
  metrics.late.push_back({1, Part::data, 0.25, 0.125, 0.5});
  file.write(metrics);
  file.close();
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_HAS(lines[0], R"("rank_seconds":{"steps":50,"step":[0.0,0.0],"compute":[0.0,0.0],)"
                       R"("data":[0.0,0.001235],"copies":[0.0,0.1235],"between_steps":[0.0,12.35],)"
                       R"("communication":[0.0,123457.0]}})");
  EXPECT_HAS(lines[1], R"("late":[{"rank":1,"part":"data","seconds":0.25,"median":0.125,)");
}

TEST_F(Metrics, ARowHasWhatIsKnownOfAStep) {
  StepMetrics metrics = of_step(3);
  metrics.tokens = std::int64_t{1} << 50;
  {
    MetricsFile file(path_);
    file.write(metrics);
    // Flushed at once.
    EXPECT_EQ(steps_in(path_), "3");
    metrics.mfu_uncertain = true;
    metrics.result.multi_token_loss = 1.25;
    metrics.result.loss_scale = 8.0;
    metrics.counted_tokens = 5;
    metrics.result.skipped = "loss is not finite";
    metrics.result.expert_load = {{0.5, 1.5}, {2.0 / 3.0, 4.0}};
    metrics.state_digest = 0xABCDEF;
    file.write(metrics);
    ValidationMetrics validation = of_validation(3);
    file.write(validation);
    validation.bits_per_byte = 2.5;
    validation.counted_tokens = 77;
    validation.ema_validation_loss = 0.25;
    file.write(validation);
    file.write(EvaluationMetrics{4, {{"a.jsonl", {{"acc", 0.5}, {"perplexity", 3.0}}}, {"b", {}}}});
  }
  const std::vector<std::string> lines = lines_of(path_);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[4], R"({"step":4,"evaluation":{"a.jsonl":{"acc":0.5,"perplexity":3.0}}})");
  EXPECT_EQ(Json::parse(lines[3])["ema_validation_loss"], 0.25);
  EXPECT_FALSE(Json::parse(lines[2]).contains("ema_validation_loss"));
  const Json plain = Json::parse(lines[0]), all = Json::parse(lines[1]);
  EXPECT_EQ(plain["tokens"], std::int64_t{1} << 50);
  for (const char* key : {"multi_token_loss", "mfu_uncertain", "loss_scale", "skipped",
                          "counted_tokens", "expert_load", "state_digest"}) {
    EXPECT_FALSE(plain.contains(key)) << key;
    EXPECT_TRUE(all.contains(key)) << key;
  }
  EXPECT_EQ(all["expert_load"].dump(), R"({"layers":[[0.5,1.5],[0.6667,4.0]],"max":4.0})");
  EXPECT_EQ(all["state_digest"], "0000000000abcdef");
  EXPECT_FALSE(Json::parse(lines[2]).contains("bits_per_byte"));
  EXPECT_EQ(Json::parse(lines[3])["bits_per_byte"], 2.5);
  EXPECT_FALSE(Json::parse(lines[2]).contains("counted_tokens"));
  EXPECT_EQ(Json::parse(lines[3])["counted_tokens"], 77);
}

TEST_F(Metrics, ThoseOfAnEarlierRunGetAFreeName) {
  EXPECT_EQ(rename_previous_metrics(path_), "");
  write_bytes(path_, "");
  EXPECT_EQ(rename_previous_metrics(path_), "");
  for (const char* const name : {"metrics.previous.jsonl", "metrics.previous-2.jsonl"}) {
    write_six();
    const std::string before = read_bytes(path_);
    EXPECT_EQ(rename_previous_metrics(path_), folder_.file(name));
    EXPECT_EQ(read_bytes(folder_.file(name)), before);
    EXPECT_FALSE(fs::exists(path_));
  }
}

TEST_F(Metrics, RowsUpToTheStepThatIsResumedFromStay) {
  const char* const kept[] = {
      "", "1", "1 2 2v", "1 2 2v 3", "1 2 2v 3 4 4v", "1 2 2v 3 4 4v 5", "1 2 2v 3 4 4v 5 6 6v"};
  for (std::int64_t step = 0; step <= 6; ++step) {
    write_six();
    const std::vector<std::string> before = lines_of(path_);
    MetricsFile file(path_, step);
    EXPECT_EQ(steps_in(path_), kept[step]);
    const std::vector<std::string> after = lines_of(path_);
    for (std::size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i], before[i]);
    EXPECT_EQ(fs::exists(path_ + ".partial"), false);
    file.write(of_step(step + 1));
    EXPECT_EQ(steps_in(path_),
              kept[step] + std::string(step > 0 ? " " : "") + std::to_string(step + 1));
    EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path_).parent_path()), {}), 1);
  }
}

TEST_F(Metrics, RowsAtTheEndAreCutOffInPlace) {
  write_six();
  const ino_t before = number_of(path_);
  synced.clear();
  MetricsFile file(path_, 3);
  EXPECT_EQ(number_of(path_), before);
  EXPECT_EQ(synced, path_ + "\n");
}

TEST_F(Metrics, RowsThatStayBehindOthersAreOnDiskBeforeTheyReplaceThoseBefore) {
  write_six();
  write_bytes(path_, read_bytes(path_) + "{\"step\":2}\nnote\n");
  synced.clear();
  MetricsFile file(path_, 3);
  EXPECT_EQ(synced.rfind(path_ + ".partial\n", 0), 0u) << synced;
  EXPECT_EQ(lines_of(path_).size(), 6u);
  EXPECT_EQ(lines_of(path_).back(), "note");
  EXPECT_FALSE(fs::exists(path_ + ".partial"));
}

TEST_F(Metrics, LargeFilesAreReadInParts) {
  std::string kept, cut;
  for (int i = 0; i < 3000; ++i)
    kept += "{\"step\":1,\"a\":\"" + std::string(i % 977, 'x') + "\"}\n";
  for (int i = 0; i < 3000; ++i)
    cut += "{\"step\":2,\"a\":\"" + std::string(i % 977, 'x') + "\"}\n";
  ASSERT_GT(kept.size(), std::size_t{1} << 20);
  write_bytes(path_, kept + cut);
  { MetricsFile file(path_, 1); }
  EXPECT_EQ(read_bytes(path_), kept);
  write_bytes(path_, kept + cut + kept);
  { MetricsFile file(path_, 1); }
  EXPECT_EQ(read_bytes(path_), kept + kept);
}

TEST_F(Metrics, RowsThatAreNotThereAreNotMissed) {
  write_six();
  // A checkpoint of another folder.
  { MetricsFile file(path_, 1000); }
  EXPECT_EQ(steps_in(path_), "1 2 2v 3 4 4v 5 6 6v");
  fs::remove(path_);
  MetricsFile file(path_, 1000);
  file.write(of_step(1001));
  EXPECT_EQ(steps_in(path_), "1001");
}

TEST_F(Metrics, ALastLineThatWasCutOffGoesWithItsStep) {
  // From the end of the line, which is whole without it, to its first byte.
  write_six();
  const std::size_t last = lines_of(path_).back().size();
  for (std::size_t torn = 1; torn <= last + 1; ++torn) {
    write_six();
    tear_off(torn);
    MetricsFile file(path_, torn == 1 ? 6 : 5);
    file.write(of_step(torn == 1 ? 7 : 6));
    ASSERT_EQ(steps_in(path_), torn == 1 ? "1 2 2v 3 4 4v 5 6 6v 7" : "1 2 2v 3 4 4v 5 6") << torn;
  }
}

TEST_F(Metrics, ALastLineThatWasCutOffStaysWhereItsStepIsDone) {
  for (const char* line : {"{\"step\":2,\"lo", "{\"steps", "{\"step\":4 ", "note", "\x80\xFF"}) {
    write_bytes(path_, std::string("{\"step\":1}\n") + line);
    MetricsFile file(path_, 3);
    EXPECT_EQ(read_bytes(path_), std::string("{\"step\":1}\n") + line + "\n");
  }
}

TEST_F(Metrics, WhatIsNoRowStaysAndSoDoRowsBehindIt) {
  for (const char* line :
       {"", "step 2", "[1]", "{}", "5", "null", "{\"step\":\"2\"}", "{\"step\":1.5}",
        "{\"step\":null}", "{\"step\":2}{\"step\":2}", "\x80\xFF", "{\"step\":9,\"lo"}) {
    const std::string kept = std::string("{\"step\":1}\n") + line + "\n{\"step\":2}\n";
    for (const char* const after : {"", "{\"step\":3}\n"}) {
      write_bytes(path_, kept + after);
      { MetricsFile file(path_, 2); }
      EXPECT_EQ(read_bytes(path_), kept) << line;
    }
    write_bytes(path_, "{\"step\":3}\n" + kept);
    { MetricsFile file(path_, 2); }
    EXPECT_EQ(read_bytes(path_), kept) << line;
  }
}

TEST_F(Metrics, AFileThatCanNotBeReadLosesNothing) {
  write_six();
  const std::string before = read_bytes(path_);
  reads_fail = true;
  const std::string error = error_of([&] { MetricsFile(path_, 3); });
  reads_fail = false;
  EXPECT_EQ(error, "can't read '" + path_ + "': Input/output error");
  EXPECT_EQ(read_bytes(path_), before);
}

TEST_F(Metrics, AFileThatCannotBeWrittenIsNamed) {
  const std::string nowhere = folder_.file("nowhere/metrics.jsonl");
  for (const std::int64_t keep : {0, 5}) {
    EXPECT_EQ(error_of([&] { MetricsFile(nowhere, keep); }),
              "can't write '" + nowhere + "': No such file or directory");
  }
  write_six();
  write_bytes(path_, read_bytes(path_) + "note\n");
  const std::string before = read_bytes(path_);
  fs::create_directories(path_ + ".partial/in");
  EXPECT_EQ(error_of([&] { MetricsFile(path_, 3); }),
            "can't write '" + path_ + ".partial': Is a directory");
  EXPECT_EQ(read_bytes(path_), before);
  MetricsFile full("/dev/full");
  full.write(of_step(1));
  full.write(of_validation(1));
  EXPECT_EQ(error_of([&] { full.close(); }),
            "can't write '/dev/full': No space left on device; its last 2 rows are missing");
}

TEST_F(Metrics, RowsWaitUntilThereIsRoom) {
  MetricsFile file(path_);
  file.write(of_step(1));
  const std::string whole = read_bytes(path_);
  {
    // There is room for a part of the second row.
    const tests::NoFiles beyond(whole.size() + 20);
    for (std::int64_t step = 2; step <= 4; ++step) file.write(of_step(step));
    EXPECT_EQ(read_bytes(path_), whole);
    const MetricsFile::Waiting waiting = file.flush();
    EXPECT_EQ(waiting.rows, 3u);
    EXPECT_EQ(waiting.why, "can't write '" + path_ + "': File too large");
  }
  file.write(of_validation(4));
  EXPECT_EQ(steps_in(path_), "1 2 3 4 4v");
  EXPECT_EQ(file.flush().rows, 0u);
  file.close();
}

}  // namespace
}  // namespace ostrakon::train
