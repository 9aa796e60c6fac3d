// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <ostrakon/math/fp8/formats.hpp>

namespace ostrakon::math {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// The constants of a format, by OFP8's tables.
template <class F>
struct Layout;
template <>
struct Layout<e4m3> {
  static constexpr int mantissa = 3, bias = 7, largest = 0x7E, infinite = 0x7F;
  static constexpr float maximum = 448.0f;
};
template <>
struct Layout<e5m2> {
  static constexpr int mantissa = 2, bias = 15, largest = 0x7B, infinite = 0x7C;
  static constexpr float maximum = 57344.0f;
};

/// Returns the value of a positive code up to the largest, by the definition of the format.
template <class F>
double meaning(int code) {
  constexpr int mantissa = Layout<F>::mantissa, one = 1 << mantissa;
  const int exponent = code / one, fraction = code % one;
  const int shift = 1 - Layout<F>::bias - mantissa;
  return exponent == 0 ? std::ldexp(fraction, shift)
                       : std::ldexp(one + fraction, shift + exponent - 1);
}

template <class F>
float value_of(int code) {
  F x;
  x.bits = static_cast<std::uint8_t>(code);
  return x;
}

template <class F>
class Fp8 : public ::testing::Test {};
using Formats = ::testing::Types<e4m3, e5m2>;
TYPED_TEST_SUITE(Fp8, Formats);

TYPED_TEST(Fp8, EveryCodeIsTheNumberItStandsFor) {
  using F = TypeParam;
  EXPECT_EQ(meaning<F>(Layout<F>::largest), Layout<F>::maximum);
  for (int code = 0; code < 0x80; ++code)
    for (const int sign : {0, 0x80}) {
      const float value = value_of<F>(code | sign);
      EXPECT_EQ(std::signbit(value), sign != 0) << code;
      if (code <= Layout<F>::largest) {
        EXPECT_EQ(std::abs(value), meaning<F>(code)) << code;
        EXPECT_EQ(F(value).bits, code | sign);
      } else if (code == 0x7C && F::format == Fp8Format::e5m2) {
        EXPECT_EQ(std::abs(value), infinity);
        EXPECT_EQ(F(value).bits, code | sign);
      } else {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_TRUE(std::isnan(static_cast<float>(F(value)))) << code;
      }
    }
}

// Tests values between neighbours, halfway, and one float ulp on either side of both.
TYPED_TEST(Fp8, RoundsToTheNearestAndTiesToEven) {
  using F = TypeParam;
  for (int code = 0; code < Layout<F>::largest; ++code) {
    const double low = meaning<F>(code), high = meaning<F>(code + 1);
    const auto exact = static_cast<float>(low), middle = static_cast<float>((low + high) / 2);
    const int even = code % 2 == 0 ? code : code + 1;
    for (const int sign : {0, 0x80}) {
      const auto rounded = [&](float x) { return F(sign ? -x : x).bits; };
      EXPECT_EQ(rounded(exact), code | sign);
      EXPECT_EQ(rounded(middle), even | sign) << code;
      EXPECT_EQ(rounded(std::nextafter(middle, 0.0f)), code | sign) << code;
      EXPECT_EQ(rounded(std::nextafter(middle, infinity)), (code + 1) | sign) << code;
      EXPECT_EQ(rounded(std::nextafter(exact, infinity)), code | sign) << code;
      EXPECT_EQ(fp8_of(F::format, sign ? -middle : middle), even | sign) << code;
      EXPECT_EQ(rounded_to(F::format, middle), meaning<F>(even)) << code;
    }
  }
}

TYPED_TEST(Fp8, SaturatesFiniteNumbersAndKeepsOthers) {
  using F = TypeParam;
  for (const float x : {std::nextafter(Layout<F>::maximum, infinity), 1.06f * Layout<F>::maximum,
                        2.0f * Layout<F>::maximum, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(F(x).bits, Layout<F>::largest) << x;
    EXPECT_EQ(F(-x).bits, Layout<F>::largest | 0x80) << x;
  }
  EXPECT_EQ(F(infinity).bits, Layout<F>::infinite);
  EXPECT_EQ(F(-infinity).bits, Layout<F>::infinite | 0x80);
  EXPECT_TRUE(std::isnan(static_cast<float>(F(std::numeric_limits<float>::quiet_NaN()))));
}

TYPED_TEST(Fp8, ScaleIsTheSmallestPowerOfTwoThatFits) {
  using F = TypeParam;
  for (int exponent = -110; exponent < 128; ++exponent)
    for (const float mantissa : {1.0f, 1.5f, std::nextafter(1.75f, 0.0f), 1.75f,
                                 std::nextafter(1.75f, 2.0f), std::nextafter(2.0f, 0.0f)}) {
      const float largest = std::ldexp(mantissa, exponent);
      const Fp8Scale of_row(F::format, half_bits::of_float(largest));
      int power = 0;
      EXPECT_EQ(std::frexp(of_row.scale, &power), 0.5f) << largest;
      EXPECT_EQ(of_row.scale * of_row.inverse, 1.0f) << largest;
      EXPECT_LE(largest * of_row.inverse, Layout<F>::maximum) << largest;
      EXPECT_GT(largest * of_row.inverse, Layout<F>::maximum / 2) << largest;
    }
  EXPECT_EQ(Fp8Scale(F::format, half_bits::of_float(1e-38f)).scale, 0x1p-126f);
  EXPECT_EQ(Fp8Scale(F::format, 0).scale, 1.0f);
  for (const float x : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(Fp8Scale(F::format, half_bits::of_float(x)).scale));
    EXPECT_TRUE(std::isnan(Fp8Scale(F::format, half_bits::of_float(x)).inverse));
  }
}

}  // namespace
}  // namespace ostrakon::math
