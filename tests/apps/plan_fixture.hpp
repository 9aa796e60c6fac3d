// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <support/scratch_folder.hpp>
#include <utility>
#include <vector>

#include "command.hpp"
#include "stand_in_python.hpp"

namespace ostrakon::testing {

/// Runs ostrakon-plan in a folder with a small deck.
class Plan : public ::testing::Test {
 protected:
  static constexpr const char* deck = R"(ostrakon:
  model: {layers: 2, width: 32, heads: 4, kv_heads: 2, vocabulary: 257}
  data: {path: nowhere/text-train.h5}
  training: {steps: 1, global_batch_size: 64, micro_batch_size: 1, sequence_length: 24}
)";

  Plan() { write_bytes(path("deck.yaml"), deck); }

  std::string path(const std::string& name) const { return folder_.file(name); }

  /// Without mpiexec.
  Outcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), OSTRAKON_APPS_DIR "/ostrakon-plan");
    Command command;
    command.arguments = std::move(arguments);
    command.folder = path(".");
    command.environment.push_back(stand_in_python(path("."), python_status_));
    return run_command(command);
  }

  void expect_refused(std::vector<std::string> arguments, const std::string& words) const {
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_EQ(outcome.err.rfind("ostrakon-plan: error: ", 0), 0u) << outcome.err;
    EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
    EXPECT_NE(outcome.err.find(words), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }

  ScratchFolder folder_;
  int python_status_ = 0;  ///< of the Python that draws
};

}  // namespace ostrakon::testing
