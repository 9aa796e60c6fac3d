// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"

// What several tests of programs need.

namespace ostrakon::testing {

inline void expect_in(const std::string& output, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(output.find(part), std::string::npos) << part << " is not in\n" << output;
}

/// All tests of a suite share a folder, in which programs run; the suite derives from
/// SharedFolder<itself>.
template <class Suite>
class SharedFolder : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { folder().reset(); }

  static std::string path(const std::string& name) {
    if (!folder()) folder() = std::make_unique<ScratchFolder>();
    return folder()->file(name);
  }

  static Outcome start(const std::string& name, const std::vector<std::string>& arguments,
                       int ranks = 1) {
    return run_command(program(name, ranks, arguments, path("")));
  }

  /// Standard output of what must do well.
  static std::string must(const std::string& name, const std::vector<std::string>& arguments,
                          int ranks = 1) {
    const Outcome outcome = start(name, arguments, ranks);
    EXPECT_EQ(outcome.status, 0) << name << " " << arguments[0] << "\n" << outcome.err;
    return outcome.out;
  }

 private:
  static std::unique_ptr<ScratchFolder>& folder() {
    static std::unique_ptr<ScratchFolder> shared;
    return shared;
  }
};

/// A run into run/ of steps of a few milliseconds, each with a digest of all state.
inline std::string digest_deck(std::int64_t steps) {
  return R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, vocabulary: 61}
  data: {dataset: synthetic}
  training: {global_batch_size: 8, micro_batch_size: 1, sequence_length: 24, steps: )" +
         std::to_string(steps) + R"(}
  schedule: {warmup_steps: 3}
  output: {digest_every: 1, directory: run}
  runtime: {peak_gflops: 1}
)";
}

/// Rows of steps of a metrics.jsonl, by step, also while it is written; a step that stands there
/// twice fails.
inline std::map<std::int64_t, nlohmann::json> rows_of_steps(const std::string& file) {
  std::istringstream stream(read_bytes(file));
  std::map<std::int64_t, nlohmann::json> rows;
  for (std::string line; std::getline(stream, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("loss")) continue;
    EXPECT_TRUE(rows.emplace(row["step"].get<std::int64_t>(), row).second) << line;
  }
  return rows;
}

}  // namespace ostrakon::testing
