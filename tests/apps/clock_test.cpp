// SPDX-License-Identifier: Apache-2.0

// A run on a machine whose date is set while it runs.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

namespace ostrakon::testing {
namespace {

using Json = nlohmann::json;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 16, heads: 2, vocabulary: 61}
  data: {dataset: synthetic}
  training:
    steps: 20
    global_batch_size: 4
    micro_batch_size: 2
    sequence_length: 16
    time_limit_minutes: 30
  output: {directory: run, trace: 4}
  checkpoint: {every: 7, bandwidth: 1000}
  runtime: {peak_gflops: 1, wall_time: "2:00:00"}
)";

std::vector<Json> steps_of(const std::string& metrics) {
  std::istringstream stream(metrics);
  std::vector<Json> rows;
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

/// The largest number in the table of times.
double longest_timer(const std::string& out) {
  std::istringstream lines(out.substr(std::min(out.size(), out.find("\ntimer "))));
  double most = 0.0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;)
      most = std::max(most, std::abs(std::strtod(word.c_str(), nullptr)));
  }
  return most;
}

TEST(Clock, TheDateMayBeSetDuringARun) {
  // Starting MPI alone asks for the date more than a thousand times.
  const char* const every[] = {"1", "7", "100", "1000"};
  const char* const three_years = "100000000";
  in_parallel(4, [&](int i) {
    const ScratchFolder folder;
    write_bytes(folder.file("deck.yaml"), deck);
    Command command = program("ostrakon-train", 1, {"deck.yaml"}, folder.file(""));
    command.environment.insert(command.environment.end(), {{"LD_PRELOAD", OSTRAKON_JUMPING_CLOCK},
                                                           {"OSTRAKON_CLOCK_JUMPS_EVERY", every[i]},
                                                           {"OSTRAKON_CLOCK_JUMP", three_years}});
    const Outcome outcome = run_command(command);
    const std::string which = std::string("every ") + every[i] + "\n";
    EXPECT_EQ(outcome.status, 0) << which << outcome.err;
    EXPECT_LACKS(outcome.out, "stopped after") << which;
    const std::vector<Json> rows = steps_of(read_bytes(folder.file("run/metrics.jsonl")));
    EXPECT_EQ(rows.size(), 20U) << which;
    for (const Json& row : rows) {
      EXPECT_GT(row.at("step_seconds"), 0.0) << which;
      EXPECT_LT(row.at("step_seconds"), 60.0) << which;
    }
    EXPECT_LT(longest_timer(outcome.out), 1e4) << which << outcome.out;
    const Json trace = Json::parse(read_bytes(folder.file("run/trace.json")));
    for (const Json& event : trace.at("traceEvents"))
      if (event.contains("dur")) {
        EXPECT_GE(event.at("dur"), 0.0) << which;
        EXPECT_LT(event.at("dur"), 60e6) << which;
      }
  });
}

}  // namespace
}  // namespace ostrakon::testing
