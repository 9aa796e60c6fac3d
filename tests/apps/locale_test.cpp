// SPDX-License-Identifier: Apache-2.0

// Programs whose numbers would have a comma for the decimal point: what they read and write is as
// it is elsewhere.

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "stand_in_python.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Texts = std::vector<std::string>;

const char* const numbers_deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, vocabulary: 1261}
  data: {dataset: synthetic, synthetic_noise: 0.125}
  training: {steps: 3, global_batch_size: 128, micro_batch_size: 8, sequence_length: 16}
  optimizer: {learning_rate: 0.00125}
  checkpoint: {every: 2}
  output: {directory: run, trace: 1}
)";

class Locale : public ::testing::Test {
 protected:
  Locale() {
    for (const char* const of : {"plain", "comma"}) {
      fs::create_directory(path(of));
      write_bytes(path(std::string(of) + "/deck.yaml"), numbers_deck);
    }
    // The system may have no such locale, nor the means to make it: then streams alone have it.
    Command localedef;
    localedef.arguments = {"localedef", "-i", "de_DE", "-f", "UTF-8", path("de_DE.UTF-8")};
    try {
      run_command(localedef);
    } catch (const std::exception&) {
    }
  }

  std::string path(const std::string& name) const { return folder_.file(name); }
  std::string bytes(const std::string& name) const { return read_bytes(path(name)); }

  /// In folders of their own, without the locale and with it.
  std::pair<Outcome, Outcome> both(const std::string& name, int ranks, const Texts& arguments) {
    Command plain = program(name, ranks, arguments, path("plain"));
    Command comma = program(name, ranks, arguments, path("comma"));
    for (Command* one : {&plain, &comma}) one->environment.push_back(stand_in_python(path("")));
    comma.environment.insert(
        comma.environment.end(),
        {{"LOCPATH", path("")}, {"LC_ALL", "de_DE.UTF-8"}, {"LD_PRELOAD", OSTRAKON_COMMA_LOCALE}});
    std::pair<Outcome, Outcome> outcomes = {run_command(plain), run_command(comma)};
    for (const Outcome* one : {&outcomes.first, &outcomes.second})
      EXPECT_EQ(one->status, 0) << name << "\n" << one->err;
    return outcomes;
  }

  void expect_same_file(const std::string& name) const {
    EXPECT_FALSE(bytes("plain/" + name).empty()) << name;
    EXPECT_EQ(bytes("plain/" + name), bytes("comma/" + name)) << name;
  }

  ScratchFolder folder_;
};

std::vector<Json> rows_of(const std::string& metrics) {
  std::istringstream stream(metrics);
  std::vector<Json> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

/// Lines without those that say how long something took, how fast it was, or where it is.
std::string untimed(const std::string& out) {
  std::istringstream lines(out);
  std::string kept;
  for (std::string line; std::getline(lines, line) && line.rfind("training", 0) != 0;)
    if (line.find("available memory") == std::string::npos &&
        line.find("directory") == std::string::npos)
      kept += line + "\n";
  return kept;
}

TEST_F(Locale, TrainingIsTheSame) {
  const auto [plain, comma] = both("ostrakon-train", 2, {"deck.yaml"});
  EXPECT_EQ(untimed(plain.out), untimed(comma.out));
  EXPECT_HAS(comma.out, "lr 9.69e-04");
  const std::vector<Json> expected = rows_of(bytes("plain/run/metrics.jsonl"));
  const std::vector<Json> rows = rows_of(bytes("comma/run/metrics.jsonl"));
  ASSERT_EQ(rows.size(), expected.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (const char* field : {"step", "loss", "grad_norm", "learning_rate", "tokens"})
      EXPECT_EQ(rows[i][field], expected[i][field]) << field;
  expect_same_file("run/plan.json");
  EXPECT_TRUE(Json::parse(bytes("comma/run/trace.json")).is_object());
  // It goes on in the other folder: data and settings are called the same.
  for (const char* const of : {"plain", "comma"})
    fs::rename(path(std::string(of) + "/run"), path(std::string(of) + "/run-of-" + of));
  fs::copy(path("plain/run-of-plain"), path("comma/run"), fs::copy_options::recursive);
  fs::copy(path("comma/run-of-comma"), path("plain/run"), fs::copy_options::recursive);
  const auto on =
      both("ostrakon-train", 2, {"deck.yaml", "--resume", "auto", "--set", "training.steps=4"});
  EXPECT_EQ(rows_of(bytes("comma/run/metrics.jsonl")).back()["loss"],
            rows_of(bytes("plain/run/metrics.jsonl")).back()["loss"]);
}

TEST_F(Locale, PlansAreTheSame) {
  const std::string machine = OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml";
  for (const Texts& more :
       {Texts{}, Texts{"--json"}, Texts{"--time", machine}, Texts{"--time", machine, "--json"},
        Texts{"--choose", "--memory", "1GiB"}, Texts{"--svg", "plan.svg"},
        Texts{"--time", machine, "--svg", "time.svg"}}) {
    Texts arguments = {"deck.yaml", "--ranks", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto [plain, comma] = both("ostrakon-plan", 1, arguments);
    EXPECT_EQ(plain.out, comma.out) << (more.empty() ? "" : more[0]);
  }
  expect_same_file("plan.svg.json");
  expect_same_file("time.svg.json");
}

TEST_F(Locale, ReportsAreTheSame) {
  both("ostrakon-scale", 1,
       {"plan", "deck.yaml", "--ranks", "1", "--output", "study", "--steps", "6", "--machine",
        OSTRAKON_SOURCE_DIR "/machines/h100-infiniband.yaml"});
  expect_same_file("study/study.json");
  Command jobs = mpi_job("ostrakon-train", 1, {}, path("plain"));
  jobs.arguments = {"/bin/bash", "study/run-all.sh"};
  ASSERT_EQ(run_command(jobs).status, 0);
  fs::copy(path("plain/study"), path("comma/study"),
           fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  both("ostrakon-scale", 1, {"collect", "study"});
  const auto [plain, comma] = both("ostrakon-scale", 1, {"report", "study"});
  EXPECT_EQ(plain.out, comma.out);
  for (const char* const file : {"collected.json", "collected.csv", "report.csv"})
    expect_same_file(std::string("study/") + file);
}

}  // namespace
}  // namespace ostrakon::testing
