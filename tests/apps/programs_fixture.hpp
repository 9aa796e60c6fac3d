// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {

inline const std::string sentence =
    "The old lighthouse keeper counts seven white ships before dawn. ";

inline const char* const small_deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, kv_heads: 2, vocabulary: 257}
  data:
    path: text-train.h5
    validation_path: text-validation.h5
  training:
    steps: 4
    global_batch_size: 8
    micro_batch_size: 1
    sequence_length: 24
    validate_every: 2
    validation_batches: 2
  optimizer: {learning_rate: 3e-3}
  output: {digest_every: 1}
)";

/// Learns `sentence` by heart in a second or two.
inline const char* const memory_deck = R"(ostrakon:
  model: {layers: 2, width: 64, heads: 4, vocabulary: 257}
  data: {path: sentence-train.h5}
  training: {steps: 200, global_batch_size: 8, micro_batch_size: 4, sequence_length: 48}
  optimizer: {learning_rate: 4e-3}
  schedule: {warmup_steps: 10}
  output: {directory: memory}
)";

inline std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

/// A folder with data sets and decks, shared by all tests; each writes to folders of its own.
class Programs : public SharedFolder<Programs> {
 protected:
  static void SetUpTestSuite() {
    std::string text;
    for (int i = 0; i < 100; ++i)
      text += "Ship " + std::to_string(i * 37 % 101) + " carries salt to harbour " +
              std::to_string(i % 7) + ".\n%\n";
    write_bytes(path("text.txt"), text);
    write_bytes(path("sentence.txt"), repeat(repeat(sentence, 5) + "\n%\n", 20));
    write_bytes(path("small.yaml"), small_deck);
    write_bytes(path("memory.yaml"), memory_deck);
    build_ = start("ostrakon-data", 1,
                   {"build", "--output", "text", "--validation-fraction", "0.3", "--separator", "%",
                    "text.txt"});
    start("ostrakon-data", 1,
          {"build", "--output", "sentence", "--validation-fraction", "0", "--separator", "%",
           "sentence.txt"});
  }

  static Outcome start(const std::string& name, int ranks,
                       const std::vector<std::string>& arguments,
                       const std::vector<std::pair<std::string, std::string>>& environment = {}) {
    Command command = program(name, ranks, arguments, path(""));
    command.environment.insert(command.environment.end(), environment.begin(), environment.end());
    return run_command(command);
  }

  /// Runs that must do well.
  static std::string output_of(const std::string& name, int ranks,
                               const std::vector<std::string>& arguments) {
    const Outcome outcome = start(name, ranks, arguments);
    EXPECT_EQ(outcome.status, 0) << name << "\n" << outcome.err;
    return outcome.out;
  }

  /// Trains the small deck into `output` and returns the rows of metrics.jsonl.
  static std::vector<nlohmann::json> train(int ranks, const std::string& output,
                                           std::vector<std::string> settings = {},
                                           const std::string& deck = "small.yaml") {
    std::vector<std::string> arguments = {deck};
    settings.push_back("output.directory=" + output);
    for (const std::string& setting : settings) {
      arguments.push_back("--set");
      arguments.push_back(setting);
    }
    output_of("ostrakon-train", ranks, arguments);
    return read_rows(output);
  }

  static std::vector<nlohmann::json> read_rows(const std::string& output) {
    std::istringstream stream(read_bytes(path(output + "/metrics.jsonl")));
    std::vector<nlohmann::json> rows;
    for (std::string line; std::getline(stream, line);) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  static std::string generate(const std::vector<std::string>& options) {
    static const bool trained = [] {
      output_of("ostrakon-train", 1, {"memory.yaml"});
      return true;
    }();
    EXPECT_TRUE(trained);
    std::vector<std::string> arguments = {"memory/weights.h5"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return output_of("ostrakon-generate", 1, arguments);
  }

  static inline Outcome build_;
};

/// What no layout may change, of every row.
inline std::vector<nlohmann::json> results(const std::vector<nlohmann::json>& rows) {
  std::vector<nlohmann::json> kept;
  for (const nlohmann::json& row : rows) {
    nlohmann::json one;
    for (const char* field : {"step", "loss", "grad_norm", "learning_rate", "tokens",
                              "state_digest", "validation_loss", "bits_per_byte"})
      if (row.contains(field)) one[field] = row[field];
    kept.push_back(one);
  }
  return kept;
}

inline void expect_kept_promises(const std::vector<nlohmann::json>& rows) {
  for (const nlohmann::json& row : rows) {
    if (row.contains("validation_loss")) continue;
    const auto planned = row.at("planned_peak_bytes").get<std::int64_t>();
    EXPECT_GT(planned, 0);
    EXPECT_EQ(row.at("peak_bytes").get<std::int64_t>(), planned) << row;
    if (row.at("step") > 1) {
      EXPECT_EQ(row.at("allocations"), 0) << row;
    }
#ifndef __SANITIZE_ADDRESS__  // which keeps a shadow of all memory
    EXPECT_LT(row.at("resident_bytes").get<std::int64_t>() - planned, 150'000'000) << row;
#endif
  }
}

}  // namespace ostrakon::testing
