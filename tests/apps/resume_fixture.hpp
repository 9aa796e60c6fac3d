// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <support/scratch_folder.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "fixtures.hpp"

namespace ostrakon::testing {

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

}  // namespace ostrakon::testing
