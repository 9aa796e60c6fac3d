// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/optim/loss_scale.hpp>

#include "support/scratch_folder.hpp"

namespace ostrakon::optim {
namespace {

using testing::error_of;

LossScaleSettings small() {
  LossScaleSettings settings;
  settings.initial = 8.0;
  settings.smallest = 2.0;
  settings.largest = 32.0;
  settings.growth_interval = 3;
  return settings;
}

TEST(LossScale, BeginsAt65536AndDoublesAfter2000GoodSteps) {
  LossScale scale({});
  for (int step = 1; step < 2000; ++step) {
    EXPECT_TRUE(scale.update(true));
    ASSERT_EQ(scale.value(), 65536.0) << step;
  }
  scale.update(true);
  EXPECT_EQ(scale.value(), 131072.0);
  EXPECT_TRUE(scale.update(false));
  EXPECT_EQ(scale.value(), 65536.0);
}

TEST(LossScale, FollowsItsTable) {
  // A step's input, then the scale, the good steps since it changed, and update()'s result.
  struct Line {
    bool finite;
    double scale;
    std::int64_t good_steps;
    bool kept;
  };
  const Line lines[] = {
      {true, 8, 1, true},   {true, 8, 2, true},  {true, 16, 0, true},  // doubles
      {true, 16, 1, true},  {true, 16, 2, true}, {false, 8, 0, true},  // halves, restarts the count
      {true, 8, 1, true},   {true, 8, 2, true},  {true, 16, 0, true},  {true, 16, 1, true},
      {true, 16, 2, true},  {true, 32, 0, true}, {true, 32, 1, true},  {true, 32, 2, true},
      {true, 32, 0, true},  // the largest
      {false, 16, 0, true}, {false, 8, 0, true}, {false, 4, 0, true},  {false, 2, 0, true},
      {false, 2, 0, false}, {true, 2, 1, true},  {false, 2, 0, false},  // the smallest
      {true, 2, 1, true},   {true, 2, 2, true},  {true, 4, 0, true}};
  LossScale scale(small());
  int number = 0;
  for (const Line& line : lines) {
    ++number;
    EXPECT_EQ(scale.update(line.finite), line.kept) << number;
    EXPECT_EQ(scale.value(), line.scale) << number;
    EXPECT_EQ(scale.state().good_steps, line.good_steps) << number;
  }
}

TEST(LossScale, ContinuesFromItsState) {
  LossScale whole(small());
  LossScale stopped(small());
  for (int step = 0; step < 40; ++step) {
    const bool finite = step % 7 != 5;
    whole.update(finite);
    LossScale next(small());
    next.restore(stopped.state());
    next.update(finite);
    stopped = next;
    ASSERT_EQ(stopped.value(), whole.value()) << step;
    ASSERT_EQ(stopped.state().good_steps, whole.state().good_steps) << step;
  }
}

TEST(LossScale, RefusesWhatCannotBe) {
  const auto error = [](double initial, double smallest, double largest, std::int64_t interval) {
    return error_of([&] { LossScale({initial, smallest, largest, interval}); });
  };
  EXPECT_EQ(error(8, 2, 32, 1), "no error");
  EXPECT_EQ(error(7, 2, 32, 1), "loss_scale.initial is 7; expected a power of two");
  EXPECT_EQ(error(0, 2, 32, 1), "loss_scale.initial is 0; expected a power of two");
  EXPECT_EQ(error(8, 3, 32, 1), "loss_scale.smallest is 3; expected a power of two");
  EXPECT_EQ(error(8, 2, -4, 1), "loss_scale.largest is -4; expected a power of two");
  EXPECT_EQ(
      error(64, 2, 32, 1),
      "loss_scale.initial is 64; expected from loss_scale.smallest, 2, to loss_scale.largest, 32");
  EXPECT_EQ(error(8, 2, 32, 0), "loss_scale.growth_interval is 0; expected at least 1");
  LossScale scale(small());
  EXPECT_NE(error_of([&] { scale.restore({5.0, 0}); }), "no error");
  EXPECT_NE(error_of([&] { scale.restore({64.0, 0}); }), "no error");
  EXPECT_NE(error_of([&] { scale.restore({8.0, -1}); }), "no error");
  EXPECT_EQ(scale.value(), 8.0);
}

}  // namespace
}  // namespace ostrakon::optim
