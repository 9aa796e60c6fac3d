// SPDX-License-Identifier: Apache-2.0
// Norms of heads and rotary positions in one kernel: plain loops give the same numbers, and one
// kernel after the other the same bits.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/attention/rotated_norms.hpp>

#include "math/compare.hpp"
#include "math/rows.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using test::Rows;

struct Case {
  std::int64_t leaves, rows_of_leaf, head_width, queries, keys;  // heads
  NormWeight gain = NormWeight::plain;
  NormKind kind = NormKind::rmsnorm;
  std::int64_t gap = 0;  ///< between rows
};

// More rows than a block has, heads of all lanes of a warp and of some, more heads than threads of
// a team, gaps between rows.
const Case all_cases[] = {
    {1, 5, 16, 1, 1},
    {2, 17, 128, 4, 2},
    {4, 33, 64, 3, 1, NormWeight::one_plus},
    {1, 16, 128, 60, 8, NormWeight::none},
    {2, 20, 96, 5, 5, NormWeight::plain, NormKind::layernorm},
    {1, 3, 256, 16, 2, NormWeight::plain, NormKind::rmsnorm, 16},
    {1, 18, 128, 8, 0},
};

/// Queries and keys of a case in rows, and what kernels make of them.
template <class T>
struct HeadsRun {
  using C = compute_t<T>;

  explicit HeadsRun(const Case& which)
      : c(which),
        rows(c.leaves * c.rows_of_leaf),
        frequencies(make_rotary_frequencies({10000.0}, c.head_width, rows)),
        norm{c.head_width, c.kind, c.gain, 1e-5} {
    frequencies.factor = 1.25;
    for (std::uint64_t i = 0; i < arrays(); ++i) {
      const std::int64_t width = (i == 0 ? c.queries : c.keys) * c.head_width;
      x.emplace_back(rows, width, c.gap, 1 + i);
      kept.emplace_back(rows, width, c.gap, 3 + i);
      gradient.emplace_back(rows, width, c.gap, 5 + i);
      weights.emplace_back(random_values<T>(c.head_width, 7 + i));
      dweight.emplace_back(c.head_width);
      room.emplace_back(head_norm_sums_workspace<T>(rows, c.head_width, c.head_width, c.leaves));
    }
  }
  std::size_t arrays() const { return c.keys > 0 ? 2 : 1; }
  View<const T*> weight(std::size_t i) const {
    return c.gain == NormWeight::none ? View<T*>() : weights[i].view();
  }

  bool together() const {
    std::vector<NormedHeads<T>> heads;
    std::vector<NormedHeadGradients<T>> gradients;
    for (std::size_t i = 0; i < arrays(); ++i) {
      heads.push_back({weight(i), x[i], kept[i]});
      gradients.push_back({weight(i), kept[i], gradient[i], dweight[i], room[i]});
    }
    const RotaryRows positions{frequencies, c.rows_of_leaf, 7};
    return norm_and_rotate<T>(Exec(), norm, positions, heads) &&
           rotate_and_norm_backward<T>(Exec(), norm, positions, gradients, c.leaves);
  }
  void one_after_the_other() const {
    for (std::size_t i = 0; i < arrays(); ++i) {
      head_norm_forward<T>(Exec(), norm, weight(i), x[i], kept[i]);
      rotate<T>(Exec(), Rotation::forward, frequencies, x[i], c.head_width, c.rows_of_leaf, 7);
      rotate<T>(Exec(), Rotation::inverse, frequencies, gradient[i], c.head_width, c.rows_of_leaf,
                7);
      const std::int64_t heads = x[i].width / c.head_width;
      const DeviceArray<C> rstd_(rows * heads), mean_(rows * heads);
      const View<C**> rstd = rstd_.view().matrix(rows, heads);
      const View<C**> mean =
          c.kind == NormKind::layernorm ? mean_.view().matrix(rows, heads) : View<C**>();
      head_norm_statistics<T>(Exec(), norm, kept[i], rstd, mean);
      head_norm_backward_parameters<T>(Exec(), c.head_width, kept[i], rstd, mean, gradient[i],
                                       dweight[i], {c.leaves, room[i]});
      head_norm_backward_input<T>(Exec(), norm, weight(i), kept[i], rstd, mean, gradient[i]);
    }
  }

  Case c;
  std::int64_t rows;
  RotaryFrequencies frequencies;
  HeadNorm norm;
  std::vector<Rows<T>> x, kept, gradient;
  std::vector<DeviceArray<T>> weights;
  std::vector<DeviceArray<C>> dweight, room;
};

template <class T>
void expect_same_bits(const Case& c) {
  const HeadsRun<T> joint(c), apart(c);
  ASSERT_EQ(joint.together(), on_device);
  apart.one_after_the_other();
  if (!on_device) return;
  for (std::size_t i = 0; i < joint.arrays(); ++i) {
    EXPECT_EQ(joint.x[i].host(), apart.x[i].host()) << i;
    EXPECT_EQ(joint.kept[i].host(), apart.kept[i].host()) << i;
    EXPECT_EQ(joint.gradient[i].host(), apart.gradient[i].host()) << i;
    EXPECT_EQ(joint.dweight[i].host(), apart.dweight[i].host()) << i;
  }
}

TEST(RotatedNorms, HaveTheBitsOfOneKernelAfterTheOther) {
  for (const Case& c : all_cases) {
    SCOPED_TRACE(::testing::Message() << c.head_width << " x " << c.queries << " + " << c.keys);
    expect_same_bits<float>(c);
    expect_same_bits<bf16>(c);
    expect_same_bits<fp16>(c);
  }
}

/// What plain loops in double make of queries or keys, without a gap.
struct Plain {
  std::vector<double> y, dx, dweight;

  template <class T>
  Plain(const HeadsRun<T>& run, std::size_t which) {
    const Case& c = run.c;
    const std::vector<T> x = run.x[which].host(), weight = run.weights[which].host();
    const std::vector<T> dy = run.gradient[which].host();
    const std::int64_t width = c.head_width, half = width / 2, columns = run.x[which].width;
    y.resize(x.size());
    dx.resize(x.size());
    dweight.resize(width);
    for (std::int64_t r = 0; r < run.rows; ++r)
      for (std::int64_t head = 0; head < columns / width; ++head) {
        const std::int64_t first = r * columns + head * width;
        double mean = 0, square = 0, average = 0, projection = 0;
        std::vector<double> normed(width), gain(width), d(width);
        for (std::int64_t i = 0; i < width && c.kind == NormKind::layernorm; ++i)
          mean += static_cast<double>(x[first + i]) / width;
        for (std::int64_t i = 0; i < width; ++i)
          square += std::pow(static_cast<double>(x[first + i]) - mean, 2) / width;
        const double rstd = 1 / std::sqrt(square + 1e-5);
        for (std::int64_t i = 0; i < width; ++i) {
          const auto w = static_cast<double>(weight[i]);
          gain[i] = c.gain == NormWeight::none ? 1 : c.gain == NormWeight::one_plus ? 1 + w : w;
          normed[i] = (static_cast<double>(x[first + i]) - mean) * rstd;
        }
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle =
              static_cast<double>(7 + r % c.rows_of_leaf) * run.frequencies.radians[i];
          const double s = 1.25 * std::sin(angle), k = 1.25 * std::cos(angle);
          const double a = normed[i] * gain[i], b = normed[i + half] * gain[i + half];
          y[first + i] = a * k - b * s;
          y[first + i + half] = b * k + a * s;
          const auto da = static_cast<double>(dy[first + i]);
          const auto db = static_cast<double>(dy[first + i + half]);
          d[i] = da * k + db * s;
          d[i + half] = db * k - da * s;
        }
        for (std::int64_t i = 0; i < width; ++i) {
          if (c.kind == NormKind::layernorm) average += d[i] * gain[i] / width;
          projection += d[i] * gain[i] * normed[i] / width;
          dweight[i] += d[i] * normed[i];
        }
        for (std::int64_t i = 0; i < width; ++i)
          dx[first + i] = rstd * (d[i] * gain[i] - average - normed[i] * projection);
      }
  }
};

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<double>& expected,
                 double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

template <class T>
void expect_numbers_of_plain_loops(Case c, double tolerance) {
  c.gap = 0;
  const HeadsRun<T> run(c);
  std::vector<Plain> plain;
  for (std::size_t i = 0; i < run.arrays(); ++i) plain.emplace_back(run, i);
  if (!run.together()) return;
  for (std::size_t i = 0; i < run.arrays(); ++i) {
    expect_near(run.x[i].host(), plain[i].y, tolerance);
    expect_near(run.gradient[i].host(), plain[i].dx, tolerance);
    expect_near(run.dweight[i].host(), plain[i].dweight, tolerance * 8);
  }
}

TEST(RotatedNorms, AgreeWithPlainLoops) {
  for (const Case& c : all_cases) {
    SCOPED_TRACE(::testing::Message() << c.head_width << " x " << c.queries << " + " << c.keys);
    expect_numbers_of_plain_loops<float>(c, 1e-5);
    expect_numbers_of_plain_loops<bf16>(c, 0x1p-5);
    expect_numbers_of_plain_loops<fp16>(c, 0x1p-8);
  }
}

/// There is no such kernel for double, for a rotation of some elements, or for other widths.
TEST(RotatedNorms, SayWhatTheyDoNotCompute) {
  HeadsRun<float> partial(all_cases[1]);
  partial.frequencies.radians.resize(32);
  EXPECT_FALSE(partial.together());
  EXPECT_FALSE(HeadsRun<double>(all_cases[1]).together());
  EXPECT_FALSE(HeadsRun<float>({1, 2, 260, 1, 1}).together());
  EXPECT_FALSE(HeadsRun<bf16>({1, 2, 24, 1, 1}).together());
  // Rows that begin inside of vectors.
  Case odd = all_cases[1];
  odd.gap = 3;
  EXPECT_FALSE(HeadsRun<bf16>(odd).together());
}

}  // namespace
}  // namespace ostrakon::math
