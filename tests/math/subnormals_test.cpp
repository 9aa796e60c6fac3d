// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/math/transfer.hpp>
#include <vector>

namespace ostrakon::math {
namespace {

constexpr float subnormal = std::numeric_limits<float>::min() / 4;

/// Returns 2 x, computed by a kernel in which every thread has a part.
std::vector<float> after_a_kernel(std::vector<float> x) {
  const HostView<float*> view = host_view(x);
  Kokkos::parallel_for(Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(
                           0, static_cast<std::int64_t>(x.size())),
                       [=](std::int64_t i) { view[i] = view[i] * 2.0f; });
  Kokkos::DefaultHostExecutionSpace().fence();
  return x;
}

TEST(SubnormalsScope, HoldsOnEveryThreadOfKernelsAndEndsThere) {
  if (!kernels_can_flush) GTEST_SKIP() << "kernels of this build keep subnormal numbers";
  const std::size_t count = 1000;
  const FloatMode before = FloatMode::of_this_thread();
  {
    const SubnormalsScope scope(Subnormals::flush);
    EXPECT_EQ(after_a_kernel(std::vector<float>(count, subnormal)), std::vector<float>(count, 0));
  }
  EXPECT_EQ(FloatMode::of_this_thread(), before);
  EXPECT_EQ(after_a_kernel(std::vector<float>(count, subnormal)),
            std::vector<float>(count, 2 * subnormal));
}

TEST(SubnormalsScope, HoldsInMatrixProducts) {
  if (!kernels_can_flush) GTEST_SKIP() << "kernels of this build keep subnormal numbers";
  const std::int64_t n = 64;
  const auto elements = static_cast<std::size_t>(n * n);
  const Kokkos::View<float*, Memory> a("a", elements), b("b", elements), c("c", elements);
  Kokkos::deep_copy(a, subnormal);
  Kokkos::deep_copy(b, 1.0f);
  const auto multiply = [&] {
    gemm<float>(Exec(), Transpose::no, Transpose::no, 1.0f, device_view(a).matrix(n, n),
                device_view(b).matrix(n, n), 0.0f, device_view(c).matrix(n, n));
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), c);
    return std::vector<float>(host.data(), host.data() + elements);
  };
  EXPECT_EQ(multiply(), std::vector<float>(elements, static_cast<float>(n) * subnormal));
  const SubnormalsScope scope(Subnormals::flush);
  EXPECT_EQ(multiply(), std::vector<float>(elements, 0.0f));
}

/// Subnormal numbers of fp16 are normal numbers of float, and must not be flushed.
TEST(SubnormalsScope, LeavesThoseOfFp16) {
  std::vector<float> values(65536);
  std::vector<fp16> halves(values.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    halves[i] = fp16::from_bits(static_cast<std::uint16_t>(i));
  const SubnormalsScope scope(default_subnormals);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float value = halves[i];
    if (std::isnan(value)) continue;
    EXPECT_EQ(fp16(value).bits, halves[i].bits);
  }
  volatile float smallest = 0x1p-24f;
  EXPECT_EQ(fp16(static_cast<float>(smallest)).bits, 1);
}

TEST(SubnormalsScope, UnderflowsToZeroInTheExponential) {
  const FloatModeScope scope(Subnormals::flush);
  if (FloatMode::of_this_thread().subnormals() == Subnormals::keep)
    GTEST_SKIP() << "threads of this kind of processor can't flush";
  volatile float x = -100.0f;
  EXPECT_EQ(fast_exp(static_cast<float>(x)), 0.0f);
  x = -87.0f;
  EXPECT_GT(fast_exp(static_cast<float>(x)), 0.0f);
}

}  // namespace
}  // namespace ostrakon::math
