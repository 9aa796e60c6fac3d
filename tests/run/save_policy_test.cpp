// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/run/save_policy.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::SharedFolder;
using train::Requests;
using train::StepEnd;

/// A run whose checkpoints go to a folder of the test, with steps that are only counted.
class SavePolicyTest : public ::testing::Test {
 protected:
  /// `has_copy`: the plan has a staging copy of the state.
  void make(std::int64_t every, bool has_copy = false) {
    settings_ = small_gpt2(2);
    settings_.output.directory = folder_.file("run");
    settings_.checkpoint.every = every;
    settings_.checkpoint.keep = 100;
    settings_.checkpoint.asynchronous = has_copy;
    run_.emplace(settings_);
    saver_.emplace(settings_, run_->mesh, run_->trainer);
    saver_->guard([this] { require(!fails_, "there is no room"); });
    console_.emplace(out_, train::Console::Options{is_root(), false, 20, 1});
    policy_.emplace(*saver_, *console_, timers_, every, run_->mesh.world().size());
  }
  bool is_root() { return run_->mesh.world().rank() == 0; }

  void end_step(const StepEnd& end, const Requests& requests = {}) {
    policy_->after_step(end, requests, [&](bool overlapped) {
      begun_.push_back(end.step);
      overlapped_.push_back(overlapped);
      checkpoint::Progress progress = run_->trainer.progress();
      progress.step = end.step;
      saver_->begin(progress, "synthetic", overlapped);
    });
  }
  bool is_saved(const std::string& step) {
    run_->mesh.world().barrier();
    return fs::exists(folder_.file("run/checkpoints/step-0000000" + step));
  }

  SharedFolder folder_;
  config::Settings settings_;
  std::optional<SmallRun> run_;
  std::optional<train::Saver> saver_;
  std::ostringstream out_;
  std::optional<train::Console> console_;
  config::Timers timers_;
  std::optional<train::SavePolicy> policy_;
  bool fails_ = false;
  std::vector<std::int64_t> begun_;
  std::vector<bool> overlapped_;
};

TEST_F(SavePolicyTest, SavesEveryNthStepAndTheLast) {
  make(3);
  for (std::int64_t step = 1; step <= 7; ++step) end_step({step, step == 7, false});
  policy_->finish();
  policy_->require_saved();
  EXPECT_EQ(begun_, (std::vector<std::int64_t>{3, 6, 7}));
  EXPECT_TRUE(is_saved("3") && is_saved("6") && is_saved("7"));
  if (is_root()) {
    EXPECT_HAS(out_.str(), "  checkpoint of step 7: ");
  }
}

TEST_F(SavePolicyTest, SavesWhereItIsAskedTo) {
  make(0);
  Requests save, stop;
  save.save = true;
  stop.stop = true;
  end_step({1, false, false});
  end_step({2, false, false}, save);
  end_step({3, true, true}, stop);
  EXPECT_EQ(begun_, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(is_saved("2") && is_saved("3"));
}

TEST_F(SavePolicyTest, SavesNoStepTwice) {
  make(2);
  policy_->note_saved(2);
  end_step({2, false, false});
  EXPECT_TRUE(begun_.empty());
  end_step({4, false, false});
  end_step({4, true, false});
  EXPECT_EQ(begun_, std::vector<std::int64_t>{4});
}

TEST_F(SavePolicyTest, SavesDuringTheNextStepsWhereThereIsAStagingCopy) {
  make(2, true);
  end_step({2, false, false});
  EXPECT_TRUE(saver_->is_saving());
  EXPECT_EQ(out_.str(), "");
  // Until it is done, without being waited for.
  const Stopwatch clock;
  bool goes_on = true;
  while (goes_on) {
    double is_busy = saver_->is_busy() ? 1.0 : 0.0;
    run_->mesh.world().all_reduce_max(&is_busy, 1);
    Requests requests;
    requests.is_writing = is_busy > 0.0;
    end_step({3, false, false}, requests);
    double waits = saver_->is_saving() && clock.seconds() < 60.0 ? 1.0 : 0.0;
    run_->mesh.world().all_reduce_max(&waits, 1);
    goes_on = waits > 0.0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(saver_->is_saving());
  EXPECT_TRUE(is_saved("2"));
  end_step({4, true, false});
  EXPECT_FALSE(saver_->is_saving());
  EXPECT_EQ(overlapped_, (std::vector<bool>{true, false}));
  EXPECT_TRUE(is_saved("4"));
}

TEST_F(SavePolicyTest, ARunOutlivesASaveThatFails) {
  make(2);
  fails_ = true;
  end_step({2, false, false});
  if (is_root()) {
    EXPECT_HAS(out_.str(), "  checkpoint failed: ");
  }
  const std::string error = error_of([&] { policy_->require_saved(); });
  EXPECT_EQ(error.find("the last checkpoint could not be saved: "), 0u) << error;
  EXPECT_HAS(error, "there is no room");
  fails_ = false;
  end_step({4, false, false});
  policy_->require_saved();
  EXPECT_FALSE(is_saved("2"));
  EXPECT_TRUE(is_saved("4"));
}

TEST_F(SavePolicyTest, ARunThatStopsNeedsItsCheckpoint) {
  make(0);
  Requests stop;
  stop.stop = true;
  fails_ = true;
  const std::string error = error_of([&] { end_step({5, true, true}, stop); });
  EXPECT_EQ(error.find("stopped as asked, but without a checkpoint of step 5: "), 0u) << error;
  EXPECT_NO_THROW(end_step({6, true, false}, stop));  // the last one of training
}

TEST_F(SavePolicyTest, KnowsHowLongItTakes) {
  make(2, true);
  saver_->prepare();
  const double guess = policy_->seconds_to_save();
  EXPECT_DOUBLE_EQ(guess, static_cast<double>(saver_->bytes()) / run_->mesh.world().size() / 1e8);
  end_step({2, false, false});
  ASSERT_TRUE(saver_->is_saving());
  EXPECT_DOUBLE_EQ(policy_->seconds_to_save(), 2.0 * guess);  // and the one in progress
  policy_->finish();
  EXPECT_GT(policy_->seconds_to_save(), 0.0);
  EXPECT_NE(policy_->seconds_to_save(), guess);
}

}  // namespace
}  // namespace ostrakon::tests
