// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/math/exact_sum.hpp>

#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using Limbs = std::vector<std::int64_t>;

template <class T>
Limbs terms(const std::vector<T>& x, Limbs limbs = Limbs(exact_sum_limbs, 0)) {
  const DeviceArray<T> device(x);
  const DeviceArray<std::int64_t> sum(limbs);
  add_terms<T>(Exec(), device, sum);
  return sum.host();
}

template <class T>
Limbs squares(const std::vector<T>& x, Limbs limbs = Limbs(exact_sum_limbs, 0)) {
  const DeviceArray<T> device(x);
  const DeviceArray<std::int64_t> sum(limbs);
  add_squares<T, OnDevice>(Exec(), device, sum);
  return sum.host();
}

template <class T>
Limbs squares_on_host(const std::vector<T>& x, Limbs limbs = Limbs(exact_sum_limbs, 0)) {
  add_squares<T, OnHost>(CallingThread(), host_view(x), host_view(limbs));
  return limbs;
}

double total(const std::vector<double>& x) { return exact_sum_value(host_view(terms(x))); }

/// Computes the sum, rounded once, by another algorithm: an expansion of numbers that do not
/// overlap (Shewchuk 1997). No partial sum may overflow.
double reference_sum(const std::vector<double>& x) {
  std::vector<double> parts;  // by increasing magnitude
  for (double term : x) {
    std::vector<double> rest;
    for (double part : parts) {
      if (std::abs(term) < std::abs(part)) std::swap(term, part);
      const double sum = term + part;
      const double error = part - (sum - term);
      if (error != 0) rest.push_back(error);
      term = sum;
    }
    rest.push_back(term);
    parts = rest;
  }
  double sum = 0;
  double error = 0;
  while (!parts.empty() && error == 0) {
    const double before = sum;
    const double part = parts.back();
    parts.pop_back();
    sum = before + part;
    error = part - (sum - before);
  }
  // The sum is halfway between two doubles: the sign of the remainder decides.
  if (!parts.empty() && error != 0 && (error < 0) == (parts.back() < 0)) {
    const double twice = 2 * error;
    const double moved = sum + twice;
    if (moved - sum == twice) sum = moved;
  }
  return sum;
}

std::vector<double> wild(std::size_t count, std::uint32_t seed, int lowest, int highest) {
  std::mt19937 engine(seed);
  std::vector<double> x = random_values<double>(count, seed);
  for (double& value : x)
    value = std::ldexp(value, lowest + static_cast<int>(engine() % (highest - lowest + 1)));
  return x;
}

TEST(ExactSum, TakesOneTermAtATime) {
  std::vector<double> x = random_values<double>(500, 7);
  x.insert(x.end(), {1e300, -1e-300, 5e-324, 0.0, std::numeric_limits<double>::infinity()});
  Limbs one_by_one(exact_sum_limbs, 0), together = terms(x);
  for (const double term : x) exact_sum_add(host_view(one_by_one), term);
  for (Limbs* limbs : {&one_by_one, &together}) exact_sum_carry(host_view(*limbs));
  EXPECT_EQ(one_by_one, together);
}

TEST(ExactSum, AgreesWithExpansions) {
  for (std::uint32_t seed = 0; seed < 50; ++seed)
    for (const int range : {0, 3, 60, 500, 960}) {
      const std::vector<double> x = wild(1 + seed * 7, seed, -range, range);
      ASSERT_EQ(total(x), reference_sum(x)) << "seed " << seed << " range " << range;
    }
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> tiny = wild(100, seed, -1074, -1010);
    ASSERT_EQ(total(tiny), reference_sum(tiny)) << "seed " << seed;
  }
}

#ifdef __SIZEOF_FLOAT128__
TEST(ExactSum, AgreesWithQuadruplePrecision) {
  // A thousand terms of 53 bits over a range of 2^40 fit into 113 bits.
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const std::vector<double> x = wild(1000, seed, -20, 20);
    __float128 sum = 0;
    for (const double value : x) sum += value;
    ASSERT_EQ(total(x), static_cast<double>(sum)) << "seed " << seed;
  }
}
#endif

TEST(ExactSum, CancelsExactly) {
  std::vector<double> x = wild(501, 1, -1000, 1000);
  for (std::size_t i = 0, count = x.size(); i < count; ++i) x.push_back(-x[i]);
  x.push_back(0x1.23456789ABCDEp-300);
  std::shuffle(x.begin(), x.end(), std::mt19937(3));
  EXPECT_EQ(total(x), 0x1.23456789ABCDEp-300);
  EXPECT_EQ(total({1.0, -1.0}), 0.0);
  EXPECT_EQ(total({}), 0.0);
}

TEST(ExactSum, RoundsToNearestEven) {
  const double half = 0x1p-53;
  const double ulp = 0x1p-52;
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(total({1.0, half}), 1.0);
  EXPECT_EQ(total({1.0, half, least}), 1.0 + ulp);
  EXPECT_EQ(total({1.0, half, -least}), 1.0);
  EXPECT_EQ(total({1.0, ulp, half}), 1.0 + 2 * ulp);
  EXPECT_EQ(total({-1.0, -half}), -1.0);
  EXPECT_EQ(total({-1.0, -half, -least}), -1.0 - ulp);
  // Rounding carries into the next power of two.
  EXPECT_EQ(total({2.0 - ulp, half}), 2.0);
}

TEST(ExactSum, BothEndsOfTheRange) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  const double normal = std::numeric_limits<double>::min();
  EXPECT_EQ(total({most, most, -most}), most);
  EXPECT_EQ(total({-most, -most, most}), -most);
  EXPECT_EQ(total({most, 0x1p+969}), most);
  EXPECT_EQ(total({most, 0x1p+970}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(total({-most, -most}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(total({least, least, least}), 3 * least);
  EXPECT_EQ(total({-least}), -least);
  EXPECT_EQ(total({normal, -least}), normal - least);
  EXPECT_EQ(total({normal - least, least}), normal);
}

TEST(ExactSum, NeitherOrderNorSplitShows) {
  std::vector<double> x = wild(5000, 1, -300, 300);
  const Limbs limbs = terms(x);
  std::shuffle(x.begin(), x.end(), std::mt19937(2));
  ASSERT_EQ(terms(x), limbs);
  for (const std::size_t cut : {0, 1, 777, 4999, 5000}) {
    const Limbs left = terms(std::vector<double>(x.begin(), x.begin() + cut));
    const std::vector<double> right(x.begin() + cut, x.end());
    ASSERT_EQ(terms(right, left), limbs);
    // The terms are added as by two ranks with their own limbs.
    Limbs sum = terms(right);
    for (int i = 0; i < exact_sum_limbs; ++i) sum[i] += left[i];
    ASSERT_EQ(sum, limbs);
  }
}

TEST(ExactSum, LimbsHaveRoomForManyTerms) {
  // Doubling the limbs stands for many equal terms; 2^32 of them must not overflow.
  for (const double x : {0x1.FFFFFFFFFFFFFp+0, -0x1.FFFFFFFFFFFFFp+31, 0x1.80000000p+20}) {
    Limbs limbs = terms(std::vector<double>{x});
    for (int doubling = 0; doubling < 31; ++doubling)
      for (std::int64_t& limb : limbs) limb *= 2;
    ASSERT_EQ(exact_sum_value(host_view(limbs)), std::ldexp(x, 31));
    for (const std::int64_t limb : limbs) ASSERT_LE(std::abs(limb), std::int64_t{1} << 62);
  }
}

void expect_carried(const Limbs& limbs) {
  for (int i = 0; i + 2 < exact_sum_limbs; ++i) {  // the last limb of the value keeps the sign
    ASSERT_GE(limbs[i], 0) << "limb " << i;
    ASSERT_LT(limbs[i], std::int64_t{1} << 32) << "limb " << i;
  }
}

TEST(ExactSum, CarriesLeaveTheSumAlone) {
  for (std::uint32_t seed = 0; seed < 30; ++seed)
    for (const int range : {3, 60, 500, 960}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << " range " << range);
      std::vector<double> x = wild(200, seed, -range, range);
      Limbs limbs = terms(x);
      exact_sum_carry(host_view(limbs));
      expect_carried(limbs);
      ASSERT_EQ(exact_sum_value(host_view(limbs)), reference_sum(x));
      const Limbs once = limbs;
      exact_sum_carry(host_view(limbs));
      ASSERT_EQ(limbs, once);

      const std::vector<double> more = wild(100, seed + 1000, -range, range);
      x.insert(x.end(), more.begin(), more.end());
      ASSERT_EQ(exact_sum_value(host_view(terms(more, limbs))), reference_sum(x));
    }
}

TEST(ExactSum, CarriesKeepTheSign) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  for (const std::vector<double>& x : {std::vector<double>{-1.0},
                                       {-least},
                                       {least},
                                       {most, -least},
                                       {-most, -least},
                                       {1.0, -1.0},
                                       {-1.0, 0x1p-600},
                                       {0x1p+600, -0x1p+601}}) {
    const double expected = total(x);
    Limbs limbs = terms(x);
    exact_sum_carry(host_view(limbs));
    expect_carried(limbs);
    EXPECT_EQ(exact_sum_value(host_view(limbs)), expected);
    std::vector<double> opposite = x;
    for (double& value : opposite) value = -value;
    EXPECT_EQ(exact_sum_value(host_view(terms(opposite, limbs))), 0.0);
  }
}

TEST(ExactSum, CarriesMakeRoom) {
  // 2^80 times the term is added: without carries a limb would overflow after 2^32.
  for (const double x : {0x1.FFFFFFFFFFFFFp+0, -0x1.FFFFFFFFFFFFFp+31, 0x1.8p-1000}) {
    Limbs limbs = terms(std::vector<double>{x});
    for (int doubling = 0; doubling < 80; ++doubling) {
      for (std::int64_t& limb : limbs) limb *= 2;
      if (doubling % 16 == 15) exact_sum_carry(host_view(limbs));
    }
    expect_carried(limbs);
    EXPECT_EQ(exact_sum_value(host_view(limbs)), std::ldexp(x, 80));
  }
  // Limbs have the largest magnitude, of both signs.
  for (const std::int64_t full :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    Limbs limbs(exact_sum_limbs, 0);
    for (int i = 0; i < 40; ++i) limbs[i] = full;
    const double before = exact_sum_value(host_view(limbs));
    exact_sum_carry(host_view(limbs));
    expect_carried(limbs);
    EXPECT_EQ(exact_sum_value(host_view(limbs)), before);
  }
}

TEST(ExactSum, CarriesLeaveTheCountOfNonFiniteTermsAlone) {
  const double infinity = std::numeric_limits<double>::infinity();
  Limbs limbs = terms<double>({-1.0, infinity, -infinity});
  exact_sum_carry(host_view(limbs));
  EXPECT_EQ(exact_sum_non_finite(host_view(limbs)), 2);
  EXPECT_EQ(exact_sum_value(host_view(limbs)), -1.0);
}

TEST(ExactSum, FloatsAreConvertedFirst) {
  const std::vector<float> x = {0.1f, -3e38f, 1e-45f, 3e38f};
  EXPECT_EQ(exact_sum_value(host_view(terms(x))), reference_sum({double(0.1f), double(1e-45f)}));
}

template <class T>
double reference_squares(const std::vector<T>& x) {
  long double sum = 0;
  for (const T value : x) sum += static_cast<long double>(value) * value;
  return static_cast<double>(sum);
}

template <class T>
void check_squares() {
  for (const std::size_t count : {0, 1, 7, 63, 64, 65, 130, 5000}) {
    const std::vector<T> x = random_values<T>(count, 7);
    const double expected = reference_squares(x);
    ASSERT_NEAR(exact_sum_value(host_view(squares(x))), expected, 3e-15 * expected);
  }
}

TEST(ExactSum, SquaresAgreeWithPlainLoops) {
  check_squares<double>();
  check_squares<float>();
}

template <class T>
void check_square_splits() {
  const std::vector<T> x = random_values<T>(64 * 150 + 13, 7);
  const Limbs limbs = squares(x);
  for (std::size_t blocks : {1, 2, 63, 64, 65, 150}) {
    const std::size_t cut = 64 * blocks;
    const Limbs left = squares(std::vector<T>(x.begin(), x.begin() + cut));
    ASSERT_EQ(squares(std::vector<T>(x.begin() + cut, x.end()), left), limbs);
  }
  std::vector<T> padded = x;
  padded.resize(64 * 200, T(0));
  ASSERT_EQ(squares(padded), limbs);
  ASSERT_NE(squares(std::vector<T>(x.begin() + 1, x.end())), limbs);
}

TEST(ExactSum, SquaresOfShardsAreThoseOfTheWhole) {
  check_square_splits<double>();
  check_square_splits<float>();
}

template <class T>
void check_host_squares() {
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  // Counts with whole blocks, short last blocks, and more than one item of the kernel's work.
  for (const std::size_t count : {0, 1, 7, 8, 63, 64, 65, 130, 64 * 64, 64 * 64 * 3 + 29}) {
    SCOPED_TRACE(count);
    std::vector<T> x = random_values<T>(count, 11);
    std::mt19937 engine(5);
    for (T& value : x) value = std::ldexp(value, static_cast<int>(engine() % 41) - 20);
    const Limbs some = terms(wild(100, 3, -40, 40));
    ASSERT_EQ(squares_on_host(x), squares(x));
    ASSERT_EQ(squares_on_host(x, some), squares(x, some));
    if (count == 0) continue;
    // Extreme values are in the last block and, if there are more, in the first.
    x[count / 2] = std::numeric_limits<T>::max();
    x[count / 9] = infinity;
    x.back() = nan;
    ASSERT_EQ(squares_on_host(x), squares(x));
    ASSERT_GT(exact_sum_non_finite(host_view(squares_on_host(x))), 0);
  }
}

TEST(ExactSum, HasTheSameBitsOnTheHost) {
  check_host_squares<double>();
  check_host_squares<float>();
}

TEST(ExactSum, CountsNonFiniteTerms) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Limbs limbs = terms<double>({1.0, nan, 2.0, infinity, -infinity, -0.5});
  EXPECT_EQ(exact_sum_non_finite(host_view(limbs)), 3);
  EXPECT_EQ(exact_sum_value(host_view(limbs)), 2.5);

  std::vector<double> x(64 * 4, 1.0);
  x[3] = nan;
  x[7] = infinity;  // in the same block
  x[64] = 1e200;    // overflows when squared
  x[64 * 3 + 5] = nan;
  const Limbs blocks = squares(x);
  EXPECT_EQ(exact_sum_non_finite(host_view(blocks)), 3);
  EXPECT_EQ(exact_sum_value(host_view(blocks)), 64.0);
  EXPECT_EQ(exact_sum_non_finite(host_view(squares(std::vector<float>(100, 3e38f)))), 0);
}

}  // namespace
}  // namespace ostrakon::math
