// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/run/resume_loader.hpp>
#include <ostrakon/saving/save_weights.hpp>
#include <sstream>

#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using testing::error_of;
using testing::SharedFolder;

/// A run, and weights that it writes and another begins with.
class WeightsTest : public ::testing::Test {
 protected:
  WeightsTest() { settings_.checkpoint.initial_weights = path_; }

  void save(
      const std::string& tokenizer, const std::function<void()>& check = [] {}) {
    train::save_weights(run_.trainer, world(), path_,
                        {config::write_deck(settings_), 3, tokenizer, ""}, check);
  }
  std::unique_ptr<checkpoint::ParameterSource> open(const std::string& tokenizer,
                                                    const train::RunOptions& options = {}) {
    train::Console console(out_, {world().rank() == 0, false, 1, 1});
    return train::open_initial_weights(settings_, options, tokenizer, world(), console);
  }
  comm::Communicator& world() { return run_.mesh.world(); }

  SharedFolder folder_;
  const std::string path_ = folder_.file("weights.h5");
  config::Settings settings_ = small_gpt2(2);
  SmallRun run_{settings_};
  std::ostringstream out_;
};

TEST_F(WeightsTest, WhatIsWrittenIsWhatARunBeginsWith) {
  run_.step(1);
  save("bytes");
  const auto weights = open("bytes");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->tokenizer(), "bytes");
  EXPECT_EQ(out_.str(),
            world().rank() > 0 ? "" : "weights\n  begin as in            " + path_ + "\n\n");
  const double loss = run_.trainer.evaluate(*run_.validation, 1);
  run_.trainer.initialize();
  EXPECT_NE(run_.trainer.evaluate(*run_.validation, 1), loss);
  run_.trainer.initialize(weights.get());
  EXPECT_EQ(run_.trainer.evaluate(*run_.validation, 1), loss);
}

TEST_F(WeightsTest, ThoseOfARunAreInItsFolder) {
  run_.step(1);
  save("bytes");
  settings_.checkpoint.initial_weights = folder_.file("");
  EXPECT_EQ(open("bytes")->tokenizer(), "bytes");
  if (world().rank() == 0) {
    EXPECT_HAS(out_.str(), "weights.h5");
  }
  settings_.checkpoint.initial_weights = folder_.file("link");
  world().run_on_root([&] { std::filesystem::create_symlink("none", folder_.file("link")); });
  EXPECT_HAS(error_of([&] { open("bytes"); }), "is a link whose target does not exist");
}

TEST_F(WeightsTest, WithoutThemWeightsAreRandom) {
  settings_.checkpoint.initial_weights.clear();
  EXPECT_EQ(open("bytes"), nullptr);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(WeightsTest, ThoseOfAnotherModelOrTokenizerAreRefused) {
  save("bytes");
  EXPECT_HAS(error_of([&] { open("words"); }), "--allow-changes tokenizer");
  train::RunOptions options;
  options.allowed.tokenizer = true;
  open("words", options);
  if (world().rank() == 0) {
    EXPECT_HAS(out_.str(), "  note                   ");
  }
  settings_.model.layers = 1;
  EXPECT_THROW(open("bytes"), CollectiveError);
}

TEST_F(WeightsTest, ThereIsNoFileWhereTheFolderWasTaken) {
  const bool is_root = world().rank() == 0;
  int checks = 0;
  const auto refuse = [&] {
    ++checks;
    throw Error("was taken");
  };
  EXPECT_EQ(error_of([&] { save("bytes", refuse); }), "was taken");
  EXPECT_EQ(checks, is_root ? 1 : 0);
  world().barrier();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace ostrakon::tests
