// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cfenv>
#include <limits>
#include <ostrakon/base/float_mode.hpp>
#include <thread>

namespace ostrakon {
namespace {

/// Returns half of the smallest normal number, a subnormal result, computed at run time.
float subnormal_result() {
  volatile float smallest = std::numeric_limits<float>::min();
  return smallest / 2.0f;
}
float of_subnormal_operand() {
  volatile float subnormal = std::numeric_limits<float>::denorm_min();
  return subnormal * 0x1p100f;
}

TEST(FloatMode, FlushesResultsAndOperandsWithinAScope) {
  if (!can_flush_subnormals) GTEST_SKIP() << "threads of this kind of processor can't flush";
  const FloatMode before = FloatMode::of_this_thread();
  ASSERT_GT(subnormal_result(), 0.0f);
  ASSERT_GT(of_subnormal_operand(), 0.0f);
  {
    const FloatModeScope scope(Subnormals::flush);
    EXPECT_EQ(FloatMode::of_this_thread().subnormals(), Subnormals::flush);
    EXPECT_EQ(subnormal_result(), 0.0f);
    EXPECT_EQ(of_subnormal_operand(), 0.0f);
    {
      const FloatModeScope inner(Subnormals::keep);
      EXPECT_GT(subnormal_result(), 0.0f);
      EXPECT_GT(of_subnormal_operand(), 0.0f);
    }
    EXPECT_EQ(subnormal_result(), 0.0f);
  }
  EXPECT_EQ(FloatMode::of_this_thread(), before);
  EXPECT_GT(subnormal_result(), 0.0f);
}

TEST(FloatMode, KeepsRoundingAndNotedExceptions) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  std::feclearexcept(FE_ALL_EXCEPT);
  {
    const FloatModeScope scope(Subnormals::flush);
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    volatile double zero = 0.0;
    volatile double infinite = 1.0 / zero;
    static_cast<void>(infinite);
  }
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  EXPECT_TRUE(std::fetestexcept(FE_DIVBYZERO));
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(FE_TONEAREST);
}

TEST(FloatMode, IsOfOneThread) {
  const FloatMode before = FloatMode::of_this_thread();
  std::thread([] { FloatMode::of_this_thread().with(Subnormals::flush).use(); }).join();
  EXPECT_EQ(FloatMode::of_this_thread(), before);
}

}  // namespace
}  // namespace ostrakon
