// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/run/run_folder.hpp>
#include <sstream>

#include "support/no_files.hpp"
#include "support/shared_folder.hpp"

namespace ostrakon::train {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::read_bytes;
using testing::SharedFolder;
using testing::write_bytes;

/// A run's folder "run" in a folder of the test.
class RunFolderTest : public ::testing::Test {
 protected:
  bool is_root() const { return world_.rank() == 0; }
  RunFolder make(bool break_lock = false) {
    FolderLockOptions times;
    times.interval = std::chrono::milliseconds(100);
    times.patience = std::chrono::milliseconds(50);
    return RunFolder(scratch_.file("run"), world_, console_, break_lock, times);
  }
  std::string place(const std::string& name) const { return scratch_.file("run/" + name); }
  bool is_there(const std::string& name) const { return fs::exists(place(name)); }
  /// On rank 0, before what follows on all of them.
  template <class Work>
  void on_root(const Work& work) {
    world_.run_on_root(work);
  }

  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD);
  SharedFolder scratch_;
  std::ostringstream out_;
  Console console_{out_, {world_.rank() == 0, false, 1, 1}};
};

TEST_F(RunFolderTest, IsLockedAsSoonAsItIsThere) {
  {
    RunFolder folder = make();
    folder.lock_if_there();
    EXPECT_FALSE(fs::exists(scratch_.file("run")));
    world_.barrier();
    EXPECT_EQ(folder.make(), is_root());
    EXPECT_TRUE(is_there("run.lock"));
    folder.require_held();
  }
  world_.barrier();
  EXPECT_FALSE(is_there("run.lock"));
  world_.barrier();
  RunFolder folder = make();
  folder.lock_if_there();
  EXPECT_TRUE(is_there("run.lock"));
  EXPECT_FALSE(folder.make());  // was locked by then
}

TEST_F(RunFolderTest, ASecondRunIsRefusedOrTakesIt) {
  RunFolder first = make();
  first.make();
  on_root([&] { first.open_metrics(0, false); });
  RunFolder second = make();
  const std::string error = error_of([&] { second.lock_if_there(); });
  EXPECT_HAS(error, "run' is in use by ");
  EXPECT_HAS(error, "choose another output.directory, or take it with --break-lock");
  EXPECT_TRUE(first.is_held());

  RunFolder third = make(true);
  third.lock_if_there();
  if (is_root()) {
    EXPECT_HAS(out_.str(), "  (");
  }
  EXPECT_TRUE(third.is_held());
  EXPECT_FALSE(first.is_held());
  EXPECT_THROW(first.require_held(), CollectiveError);
  if (is_root()) {
    EXPECT_NE(error_of([&] { first.check(); }), "no error");
  }
}

TEST_F(RunFolderTest, OutputMustHaveAPlaceThere) {
  on_root([&] { fs::create_directories(place("weights.h5")); });
  const std::string error = error_of([&] { make().make(); });
  EXPECT_HAS(error, "weights.h5 is a folder; weights go to a file of that name");
  on_root([&] {
    fs::remove_all(scratch_.file("run"));
    write_bytes(scratch_.file("run"), "a file");
  });
  EXPECT_HAS(error_of([&] { make().make(); }), " can't be made: ");
}

TEST_F(RunFolderTest, MetricsOfTheSameRunAreContinued) {
  RunFolder folder = make();
  folder.make();
  StepMetrics metrics;
  on_root([&] { folder.open_metrics(0, false); });
  for (metrics.step = 1; metrics.step <= 3; ++metrics.step) folder.write(metrics);
  on_root([&] {
    folder.close_metrics();
    const std::string rows = read_bytes(place("metrics.jsonl"));
    folder.open_metrics(2, true);
    const std::string kept = read_bytes(place("metrics.jsonl"));
    require(kept.size() < rows.size() && rows.find(kept) == 0, "rows after step 2 stay: ", kept);
  });
  ValidationMetrics validation;
  validation.step = 2;
  folder.write(validation);
  if (is_root()) {
    const std::string rows = read_bytes(place("metrics.jsonl"));
    EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 3);
    EXPECT_HAS(rows, "validation_loss");
    EXPECT_EQ(out_.str(), "");
  }
}

TEST_F(RunFolderTest, RowsWaitForRoomUntilItIsClosed) {
  RunFolder folder = make();
  folder.make();
  on_root([&] { folder.open_metrics(0, false); });
  StepMetrics metrics;
  metrics.step = 1;
  std::string error;
  {
    const tests::NoFiles full;
    folder.write(metrics);
    on_root([&] { error = error_of([&] { folder.close_metrics(); }); });
  }
  on_root([&] { folder.close_metrics(); });
  const std::string late = error_of([&] { folder.write(metrics); });
  EXPECT_HAS(late, "metrics.jsonl' is not open");
  if (!is_root()) return;
  const std::string why = "can't write '" + place("metrics.jsonl") + "': File too large";
  EXPECT_EQ(error, why + "; its last row is missing");
  EXPECT_EQ(read_bytes(place("metrics.jsonl")).find("{\"step\":1,"), 0u);
  EXPECT_EQ(out_.str(), "  " + why + "; rows wait in memory until it can be written\n  '" +
                            place("metrics.jsonl") + "' has all rows again\n");
}

TEST_F(RunFolderTest, WhatIsOfAnotherRunIsRenamed) {
  RunFolder folder = make();
  folder.make();
  on_root([&] {
    folder.keep_earlier_weights();  // there are none
    write_bytes(place("metrics.jsonl"), "{\"step\":1}\n");
    write_bytes(place("weights.h5"), "weights");
    folder.open_metrics(0, false);
    folder.keep_earlier_weights();
    folder.write_file("deck.yaml", "a deck\n");
  });
  if (!is_root()) return;
  EXPECT_EQ(read_bytes(place("metrics.previous.jsonl")), "{\"step\":1}\n");
  EXPECT_EQ(read_bytes(place("metrics.jsonl")), "");
  EXPECT_EQ(read_bytes(place("weights.previous.h5")), "weights");
  EXPECT_FALSE(is_there("weights.h5"));
  EXPECT_EQ(read_bytes(place("deck.yaml")), "a deck\n");
  EXPECT_EQ(out_.str(), "metrics of an earlier run are in " + place("metrics.previous.jsonl") +
                            " now\n\nweights of an earlier run are in " +
                            place("weights.previous.h5") + " now\n\n");
}

}  // namespace
}  // namespace ostrakon::train
