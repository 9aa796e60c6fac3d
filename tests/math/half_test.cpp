// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/half.hpp>
#include <type_traits>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace {

using namespace ostrakon;
using test::DeviceArray;
using test::random_values;
using test::same_bits;

constexpr float infinity = std::numeric_limits<float>::infinity();

static_assert(std::is_convertible<bf16, float>::value && !std::is_convertible<float, bf16>::value,
              "to float by itself, from float only when asked");
static_assert(std::is_convertible<fp16, float>::value && !std::is_convertible<float, fp16>::value,
              "to float by itself, from float only when asked");
static_assert(std::is_same<compute_t<bf16>, float>::value &&
                  std::is_same<compute_t<fp16>, float>::value &&
                  std::is_same<compute_t<float>, float>::value &&
                  std::is_same<compute_t<double>, double>::value,
              "16 bits are computed in float");

template <class T>
struct Layout;
template <>
struct Layout<bf16> {
  static constexpr int mantissa = 7, bias = 127;
};
template <>
struct Layout<fp16> {
  static constexpr int mantissa = 10, bias = 15;
};

/// Returns the value of a pattern of 16 bits, by the definition of the format.
template <class T>
double meaning(int bits) {
  constexpr int mantissa_bits = Layout<T>::mantissa;
  constexpr int largest_exponent = (1 << (15 - mantissa_bits)) - 1;
  const int fraction = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7FFF) >> mantissa_bits;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == largest_exponent)
    return fraction == 0 ? sign * infinity : std::numeric_limits<double>::quiet_NaN();
  const int shift = 1 - Layout<T>::bias - mantissa_bits;
  if (exponent == 0) return sign * std::ldexp(fraction, shift);
  return sign * std::ldexp(fraction + (1 << mantissa_bits), shift + exponent - 1);
}

template <class T>
T pattern(int bits) {
  return T::from_bits(static_cast<std::uint16_t>(bits));
}

template <class T>
class Half : public ::testing::Test {};
using Halves = ::testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(Half, Halves);

TYPED_TEST(Half, EveryPatternIsTheNumberItStandsFor) {
  using T = TypeParam;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = pattern<T>(bits);
    const double expected = meaning<T>(bits);
    const T back(value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << bits;
      ASSERT_EQ(back.bits & 0x8000, bits & 0x8000);
    } else {
      ASSERT_EQ(value, expected) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
      ASSERT_EQ(back.bits, bits);
    }
  }
}

// Tests values between neighbours, halfway, and one float ulp on either side of both.
TYPED_TEST(Half, RoundsToTheNearestAndTiesToEven) {
  using T = TypeParam;
  constexpr int infinite = ((1 << (15 - Layout<T>::mantissa)) - 1) << Layout<T>::mantissa;
  for (int bits = 0; bits < infinite; ++bits) {
    const double low = meaning<T>(bits);
    // The value after the largest one, if exponents continued.
    const double high = bits + 1 < infinite ? meaning<T>(bits + 1) : 2 * low - meaning<T>(bits - 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    for (const int sign : {0, 0x8000}) {
      const auto rounded = [&](float x) { return T(sign ? -x : x).bits; };
      const float exact = static_cast<float>(low);
      ASSERT_EQ(rounded(exact), bits | sign);
      ASSERT_EQ(rounded(middle), even | sign) << bits;
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits | sign) << bits;
      ASSERT_EQ(rounded(std::nextafter(middle, infinity)), (bits + 1) | sign) << bits;
      ASSERT_EQ(rounded(std::nextafter(exact, infinity)), bits | sign) << bits;
      if (bits > 0) {
        ASSERT_EQ(rounded(std::nextafter(exact, 0.0f)), bits | sign) << bits;
      }
    }
  }
  EXPECT_EQ(T(infinity).bits, infinite);
  EXPECT_EQ(T(-infinity).bits, infinite | 0x8000);
  EXPECT_EQ(T(std::numeric_limits<float>::max()).bits, infinite);
  EXPECT_EQ(T(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(T(-std::numeric_limits<float>::denorm_min()).bits, 0x8000);
}

TYPED_TEST(Half, KeepsEveryNan) {
  using T = TypeParam;
  for (std::uint32_t sign : {0u, 0x80000000u})
    for (std::uint32_t payload = 1; payload < 0x00800000u; payload = payload * 2 + 1)
      for (std::uint32_t bits : {payload, 0x007FFFFFu & ~(payload >> 1), payload & ~(payload >> 1)})
        ASSERT_TRUE(std::isnan(static_cast<float>(
            T(half_bits::to_float(sign | 0x7F800000u | (bits == 0 ? 1u : bits))))))
            << bits;
}

// Arrays may be converted by the processor's instructions, single values are converted by bits.
TYPED_TEST(Half, ArraysAreConvertedAsNumbersAre) {
  using T = TypeParam;
  constexpr std::int64_t count = 0x10000;
  std::vector<T> narrow(count);
  std::vector<float> wide(count);
  for (int bits = 0; bits < count; ++bits) narrow[bits] = pattern<T>(bits);
  math::convert<T, float, OnHost>(math::CallingThread(), host_view(narrow), host_view(wide));
  for (int bits = 0; bits < count; ++bits)
    ASSERT_EQ(half_bits::of_float(wide[bits]), half_bits::of_float(narrow[bits])) << bits;

  for (std::uint32_t offset = 0; offset < 256; ++offset) {
    for (std::uint32_t i = 0; i < count; ++i)
      wide[i] = half_bits::to_float((i << 16) + offset * 257u);
    math::convert<float, T, OnHost>(math::CallingThread(), host_view(wide), host_view(narrow));
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_EQ(narrow[i].bits, T(wide[i]).bits) << half_bits::of_float(wide[i]);
  }
}

TEST(StochasticRounding, GoesUpAsOftenAsItShould) {
  for (const float x : {1.0f, 1.001f, -3.14159f, 1e-30f, 6.1e-39f, -2.9e38f, 0.0f, 1.0078124f}) {
    const std::uint32_t bits = half_bits::of_float(x);
    const auto low = static_cast<std::uint16_t>(bits >> 16);
    std::uint32_t up = 0;
    for (int random = 0; random < 0x10000; ++random) {
      const bf16 rounded = math::round_stochastically(x, static_cast<std::uint16_t>(random));
      ASSERT_TRUE(rounded.bits == low || rounded.bits == low + 1) << x;
      up += rounded.bits != low;
    }
    EXPECT_EQ(up, bits & 0xFFFFu) << x;
  }
  for (const int random : {0, 0x8000, 0xFFFF}) {
    const auto bits = static_cast<std::uint16_t>(random);
    EXPECT_EQ(math::round_stochastically(infinity, bits).bits, 0x7F80);
    EXPECT_EQ(math::round_stochastically(-infinity, bits).bits, 0xFF80);
    for (const std::uint32_t nan : {0x7F800001u, 0x7FFFFFFFu, 0xFFFFFFFFu})
      EXPECT_TRUE(std::isnan(
          static_cast<float>(math::round_stochastically(half_bits::to_float(nan), bits))));
  }
}

TYPED_TEST(Half, ConvertsArrays) {
  using T = TypeParam;
  for (const std::int64_t count : {0, 1, 31, 4096, 10001}) {
    const std::vector<float> x = random_values<float>(count, 5);
    std::vector<T> narrow(x.size());
    std::vector<float> wide(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      narrow[i] = T(x[i]);
      wide[i] = narrow[i];
    }
    const DeviceArray<float> from(x), widened(count, -1.0f), copied(count, -1.0f);
    const DeviceArray<T> to(count, T(-1));
    math::convert<float, T, OnDevice>(Exec(), from, to);
    math::convert<T, float, OnDevice>(Exec(), to, widened);
    math::convert<float, float, OnDevice>(Exec(), from, copied);
    EXPECT_TRUE(same_bits(to.host(), narrow));
    EXPECT_TRUE(same_bits(widened.host(), wide));
    EXPECT_TRUE(same_bits(copied.host(), x));

    std::vector<T> host_narrow(x.size());
    std::vector<float> host_wide(x.size());
    math::convert<float, T, OnHost>(math::CallingThread(), host_view(x), host_view(host_narrow));
    math::convert<T, float, OnHost>(math::CallingThread(), host_view(narrow), host_view(host_wide));
    EXPECT_TRUE(same_bits(host_narrow, narrow));
    EXPECT_TRUE(same_bits(host_wide, wide));
  }
}

TYPED_TEST(Half, TreeSumsAreThoseOfFloat) {
  using T = TypeParam;
  for (int pieces = 1; pieces <= 17; ++pieces)
    for (const std::int64_t count : {0, 1, 7, 256, 1500}) {
      std::vector<T> x = random_values<T>(pieces * count, pieces);
      const std::vector<T> before = x;
      std::vector<float> wide(x.size()), expected(count), sum(count, -1.0f);
      math::convert<T, float, OnHost>(math::CallingThread(), host_view(before), host_view(wide));
      math::host::tree_sum<float>(host_view(wide).matrix(pieces, count), host_view(expected));
      math::host::tree_sum<T>(host_view(x).matrix(pieces, count), host_view(sum));
      EXPECT_TRUE(same_bits(sum, expected)) << pieces << " pieces of " << count;
      EXPECT_TRUE(same_bits(x, before));
    }
  EXPECT_THROW(math::host::tree_sum<T>({nullptr, 0, 5}, {nullptr, 5}), Error);
}

/// Compares the kernel with the host's loop, for the same rows.
template <class T>
void check_chain_sums(const std::vector<std::int64_t>& all_pieces,
                      const std::vector<std::int64_t>& counts) {
  for (const std::int64_t pieces : all_pieces)
    for (const std::int64_t count : counts)
      for (const std::int64_t tree : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3},
                                      std::int64_t{8}, std::int64_t{20}, pieces, pieces + 1})
        for (const bool continues : {false, true}) {
          std::vector<T> x = random_values<T>(pieces * count, pieces);
          std::vector<float> sum = random_values<float>(count, 3);
          const DeviceArray<T> device_x(x);
          const DeviceArray<float> device_sum(sum);
          math::chain_sum<T>(Exec(), View<const T**>(device_x.matrix(pieces, count)), tree,
                             continues, device_sum);
          EXPECT_TRUE(same_bits(device_x.host(), x));
          math::host::chain_sum<T>(host_view(x).matrix(pieces, count), static_cast<int>(tree),
                                   continues, host_view(sum));
          EXPECT_TRUE(same_bits(device_sum.host(), sum))
              << pieces << " pieces of " << count << ", trees over " << tree;
        }
}

TYPED_TEST(Half, ChainSumsAreThoseOfTheHost) {
  using T = TypeParam;
  std::vector<std::int64_t> pieces;
  for (std::int64_t p = 1; p <= 33; ++p) pieces.push_back(p);
  check_chain_sums<T>(pieces, {0, 1, 4, 37});
  check_chain_sums<T>({64, 100, 129, 300, 1031}, {5, 8});
  check_chain_sums<T>({2, 8, 13}, {1500});
}

TEST(ChainSum, OfFloatsIsThatOfTheHost) {
  std::vector<std::int64_t> pieces;
  for (std::int64_t p = 1; p <= 33; ++p) pieces.push_back(p);
  check_chain_sums<float>(pieces, {0, 1, 4, 37});
  check_chain_sums<float>({64, 100, 129, 300, 1031}, {5, 8});
  check_chain_sums<float>({2, 8, 13}, {1500});
}

TEST(ChainSum, MayReplaceTheFirstRow) {
  const std::int64_t pieces = 11, count = 21;
  std::vector<float> x = random_values<float>(pieces * count, 4), sum(count);
  const DeviceArray<float> device_x(x);
  math::chain_sum<float>(Exec(), View<const float**>(device_x.matrix(pieces, count)), 4, false,
                         device_x.view().range(0, count));
  math::host::chain_sum<float>(host_view(x).matrix(pieces, count), 4, false, host_view(sum));
  std::vector<float> found = device_x.host();
  found.resize(count);
  EXPECT_TRUE(same_bits(found, sum));
}

TEST(ChainSum, RefusesWhatIsNoChain) {
  const DeviceArray<float> x(12), sum(4);
  const View<const float**> parts = x.matrix(3, 4);
  EXPECT_THROW(math::chain_sum<float>(Exec(), parts, 0, false, sum), Error);
  EXPECT_THROW(math::chain_sum<float>(Exec(), parts, 2, false, x.view().range(0, 3)), Error);
  EXPECT_THROW(math::chain_sum<float>(Exec(), View<const float**>(), 2, false, sum), Error);
}

}  // namespace
