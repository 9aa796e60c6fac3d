// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/trainer/peak_rate.hpp>
#include <set>

#include "support/messages.hpp"

namespace ostrakon::train {
namespace {

constexpr double giga = 1e9;

double cube_flops(std::int64_t side) {
  const auto n = static_cast<double>(side);
  return 2.0 * n * n * n;
}

/// A machine with a clock of its own. The scheduler lets us run for `turn` seconds, then others for
/// as long as `others` says; small products reach less of the rate than large ones.
class FakeMachine {
 public:
  FakeMachine(double rate, double turn, double others)
      : rate_(rate), turn_(turn), others_(others) {}

  double product(std::int64_t side) {
    sides.insert(side);
    const double begin = now_;
    run(cube_flops(side) / (rate_ * static_cast<double>(side) / static_cast<double>(side + 8)));
    measured += now_ - begin;
    return now_ - begin;
  }

  std::set<std::int64_t> sides;
  double measured = 0.0;

 private:
  void run(double seconds) {
    while (others_ > 0.0 && seconds > left_) {
      seconds -= left_;
      now_ += left_ + others_;
      left_ = turn_;
    }
    left_ -= seconds;
    now_ += seconds;
  }

  double rate_, turn_, others_;
  double now_ = 0.0, left_ = 0.0007;
};

double rate_of(FakeMachine& machine, std::int64_t largest_side = 1 << 20) {
  return best_product_rate(largest_side, 0.25,
                           [&](std::int64_t side) { return machine.product(side); });
}

TEST(BestProductRate, IsThatOfAQuietMachine) {
  FakeMachine machine(100 * giga, 0.0, 0.0);
  const double rate = rate_of(machine);
  EXPECT_GT(rate, 98 * giga);
  EXPECT_LE(rate, 100 * giga);
  EXPECT_LT(machine.measured, 0.35);
}

TEST(BestProductRate, IsNotHalvedByAsMuchOtherWork) {
  // What a product of 1024 x 1024 shows, 21 ms of work in turns of 3 ms, is half of the rate.
  FakeMachine busy(100 * giga, 0.003, 0.003);
  EXPECT_LT(cube_flops(1024) / busy.product(1024), 60 * giga);
  EXPECT_GT(rate_of(busy), 95 * giga);
  FakeMachine very_busy(100 * giga, 0.003, 0.012);
  EXPECT_GT(rate_of(very_busy), 95 * giga);
  EXPECT_LT(very_busy.measured, 1.0);
}

TEST(BestProductRate, MeasuresOnWhileTheMachineGetsFaster) {
  // Others leave bit by bit; within the budget half of the rate is to be had.
  FakeMachine machine(100 * giga, 0.0, 0.0);
  double now = 0.0;
  const double rate = best_product_rate(1 << 20, 0.25, [&](std::int64_t side) {
    const double share = std::min(1.0, 0.4 + 1.2 * now);
    const double seconds = machine.product(side) / share;
    now += seconds;
    return seconds;
  });
  EXPECT_GT(rate, 95 * giga);
  EXPECT_LT(now, 1.0);
}

TEST(BestProductRate, TakesProductsThatFillTheMachine) {
  // Until one takes milliseconds.
  FakeMachine slow(1 * giga, 0.0, 0.0), core(100 * giga, 0.0, 0.0), device(50000 * giga, 0.0, 0.0);
  rate_of(slow);
  rate_of(core);
  rate_of(device);
  EXPECT_EQ(slow.sides, (std::set<std::int64_t>{256}));
  EXPECT_EQ(core.sides, (std::set<std::int64_t>{256, 512, 1024}));
  EXPECT_EQ(*device.sides.rbegin(), 8192);
}

TEST(BestProductRate, StaysWithinTheMemory) {
  for (const std::int64_t largest : {1, 7, 255, 256, 700}) {
    FakeMachine machine(100 * giga, 0.0, 0.0);
    EXPECT_GT(rate_of(machine, largest), 0.0);
    EXPECT_LE(*machine.sides.rbegin(), largest);
  }
  // A clock that does not advance.
  EXPECT_TRUE(std::isfinite(best_product_rate(1, 0.25, [](std::int64_t) { return 0.0; })));
}

TEST(PeakRate, IsWhatWasMeasuredWhileStepsAreSlower) {
  PeakRate peak(100 * giga, PeakRate::Origin::measured);
  EXPECT_DOUBLE_EQ(peak.utilization(40 * giga), 0.4);
  EXPECT_DOUBLE_EQ(peak.utilization(100 * giga), 1.0);
  EXPECT_FALSE(peak.is_uncertain());
  EXPECT_EQ(peak.describe(), "peak 100 GFLOP/s a rank, measured");
}

TEST(PeakRate, IsRaisedByAStepThatItDoesNotAllow) {
  // Measured while the machine was busy: steps would have an MFU of 158 %.
  PeakRate peak(50 * giga, PeakRate::Origin::measured);
  EXPECT_DOUBLE_EQ(peak.utilization(20 * giga), 0.4);
  EXPECT_FALSE(peak.is_uncertain());
  EXPECT_DOUBLE_EQ(peak.utilization(79 * giga), 1.0);
  EXPECT_TRUE(peak.is_uncertain());
  EXPECT_DOUBLE_EQ(peak.rate(), 79 * giga);
  // What follows is told of the best that was seen, and stays uncertain.
  EXPECT_DOUBLE_EQ(peak.utilization(39.5 * giga), 0.5);
  EXPECT_TRUE(peak.is_uncertain());
  EXPECT_EQ(peak.describe(),
            "peak at least 79 GFLOP/s a rank, which steps reached: measured too low, as on a busy "
            "machine; MFU is an upper bound");
}

TEST(PeakRate, IsKnownOnceItIsMeasuredAboveWhatStepsReach) {
  PeakRate peak(50 * giga, PeakRate::Origin::measured);
  peak.utilization(79 * giga);
  peak.measure_again(60 * giga);  // still busy
  EXPECT_TRUE(peak.is_uncertain());
  peak.measure_again(100 * giga);
  EXPECT_FALSE(peak.is_uncertain());
  EXPECT_DOUBLE_EQ(peak.utilization(79 * giga), 0.79);
  EXPECT_EQ(peak.describe(),
            "peak 100 GFLOP/s a rank, measured after the last step; 50 at start, as on a busy "
            "machine: MFU of single steps is up to 2 times too large");
  EXPECT_DOUBLE_EQ(peak.utilization(110 * giga), 1.0);
  EXPECT_TRUE(peak.is_uncertain());
}

TEST(PeakRate, MeasuredMuchBetterLaterIsToldThoughNoStepShowedIt) {
  PeakRate peak(50 * giga, PeakRate::Origin::measured);
  peak.utilization(20 * giga);
  peak.measure_again(52 * giga);
  EXPECT_EQ(peak.describe(), "peak 52 GFLOP/s a rank, measured");
  peak.measure_again(100 * giga);
  EXPECT_FALSE(peak.is_uncertain());
  EXPECT_HAS(peak.describe(), "50 at start");
}

TEST(PeakRate, ThatIsGivenTooLowIsNamed) {
  PeakRate peak(10 * giga, PeakRate::Origin::given);
  EXPECT_EQ(peak.describe(), "peak 10 GFLOP/s a rank, as runtime.peak_gflops says");
  EXPECT_DOUBLE_EQ(peak.utilization(35 * giga), 1.0);
  EXPECT_TRUE(peak.is_uncertain());
  EXPECT_EQ(peak.describe(),
            "runtime.peak_gflops = 10 is too low, steps reached 35 GFLOP/s a rank: MFU is an upper "
            "bound");
}

}  // namespace
}  // namespace ostrakon::train
