// SPDX-License-Identifier: Apache-2.0
// Kernels that do at once what others do one after the other, with their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/math/rows/norm.hpp>
#include <ostrakon/math/team_cluster.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "math/compare.hpp"
#include "math/rows.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::Rows;
using test::same_bits;

struct NormCase {
  NormKind kind;
  NormWeight gain;
  bool has_bias, has_again, adds, wants_weight;
  std::int64_t leaves, rows_of_leaf, width, gap;
};

// Each value of a property comes with several of the others.
const NormCase norm_cases[] = {
    {NormKind::layernorm, NormWeight::plain, true, true, true, true, 1, 37, 768, 0},
    {NormKind::layernorm, NormWeight::one_plus, false, true, false, true, 3, 16, 65, 3},
    {NormKind::layernorm, NormWeight::plain, true, false, true, false, 2, 5, 9000, 0},
    {NormKind::layernorm, NormWeight::none, false, true, true, false, 2, 17, 64, 8},
    {NormKind::rmsnorm, NormWeight::plain, false, true, true, true, 4, 33, 128, 0},
    {NormKind::rmsnorm, NormWeight::one_plus, true, false, false, true, 5, 3, 7, 0},
    {NormKind::rmsnorm, NormWeight::none, false, false, false, false, 1, 20, 2048, 0},
    {NormKind::rmsnorm, NormWeight::plain, true, true, false, true, 1, 4, 5000, 1},
    {NormKind::rmsnorm, NormWeight::plain, false, true, true, true, 2, 3, 20000, 0},
};

/// Sums that were added to `before` have the bits of those that are written, added there.
template <class C>
void expect_added(std::vector<C> before, const std::vector<C>& written,
                  const std::vector<C>& added) {
  for (std::size_t i = 0; i < before.size(); ++i) before[i] += written[i];
  EXPECT_TRUE(same_bits(added, before));
}

template <class T>
class RowPasses : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(RowPasses, Types);

TYPED_TEST(RowPasses, NormBackwardHasTheBitsOfItsParts) {
  using T = TypeParam;
  using C = compute_t<T>;
  for (const NormCase& c : norm_cases) {
    SCOPED_TRACE("width " + std::to_string(c.width) + " leaves " + std::to_string(c.leaves));
    const std::int64_t rows = c.leaves * c.rows_of_leaf;
    const Rows<T> x(rows, c.width, c.gap, 1), dy(rows, c.width, c.gap, 2),
        dx(rows, c.width, c.gap, 3), parts_dx(rows, c.width, c.gap, 3),
        again(rows, c.width, c.gap, 4), parts_again(rows, c.width, c.gap, 4);
    const DeviceArray<T> weight(random_values<T>(c.width, 5)), bias(random_values<T>(c.width, 6));
    const DeviceArray<C> mean(rows), rstd(rows);
    const View<const T*> gain = c.gain == NormWeight::none ? View<T*>() : weight.view();
    const View<const T*> shift = c.has_bias ? bias.view() : View<T*>();
    const View<C*> center = c.kind == NormKind::layernorm ? mean.view() : View<C*>();
    norm_forward<T>(Exec(), c.kind, c.gain, 1e-5, x, gain, shift, parts_again, center, rstd);

    const DeviceArray<C> dweight(c.width), dbias(c.width), parts_dweight(c.width),
        parts_dbias(c.width), added_dweight(random_values<C>(c.width, 7)),
        added_dbias(random_values<C>(c.width, 8)),
        room(norm_sums_workspace(rows, c.width, c.leaves, kernel_form, true));
    const View<C*> none;
    const auto update = c.adds ? GradientUpdate::add : GradientUpdate::overwrite;
    norm_backward<T>(Exec(), c.kind, c.gain, x, gain, shift, center, rstd, dy, dx, update,
                     c.has_again ? again.view() : View<T**>(),
                     c.wants_weight ? dweight.view() : none, c.has_bias ? dbias.view() : none,
                     {c.leaves, room});
    norm_backward_input<T>(Exec(), c.kind, c.gain, x, gain, center, rstd, dy, parts_dx, update);
    EXPECT_TRUE(same_bits(dx.host(), parts_dx.host()));
    if (c.has_again) {
      EXPECT_TRUE(same_bits(again.host(), parts_again.host()));
    }

    sum_norm_gradients<T>(Exec(), c.kind, x, center, rstd, dy,
                          c.wants_weight ? parts_dweight.view() : none,
                          c.has_bias ? parts_dbias.view() : none, {c.leaves, room});
    if (c.wants_weight) {
      EXPECT_TRUE(same_bits(dweight.host(), parts_dweight.host()));
    }
    if (c.has_bias) {
      EXPECT_TRUE(same_bits(dbias.host(), parts_dbias.host()));
    }

    const std::vector<C> weight_before = added_dweight.host(), bias_before = added_dbias.host();
    norm_backward<T>(Exec(), c.kind, c.gain, x, gain, shift, center, rstd, dy, dx, update,
                     c.has_again ? again.view() : View<T**>(),
                     c.wants_weight ? added_dweight.view() : none,
                     c.has_bias ? added_dbias.view() : none, {c.leaves, room, true});
    if (c.wants_weight) expect_added(weight_before, parts_dweight.host(), added_dweight.host());
    if (c.has_bias) expect_added(bias_before, parts_dbias.host(), added_dbias.host());

    // Leaves by themselves, and their sum.
    if (!c.wants_weight || c.leaves > 2) continue;
    std::vector<std::vector<C>> leaves;
    for (std::int64_t leaf = 0; leaf < c.leaves; ++leaf) {
      const std::int64_t begin = leaf * c.rows_of_leaf, end = begin + c.rows_of_leaf;
      sum_norm_gradients<T>(Exec(), c.kind, x.view().row_range(begin, end),
                            center.range(begin, end), rstd.view().range(begin, end),
                            dy.view().row_range(begin, end), dweight, {}, {1, room});
      leaves.push_back(dweight.host());
    }
    std::vector<C> sum = leaves.front();
    if (c.leaves == 2)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += leaves[1][i];
    EXPECT_TRUE(same_bits(sum, parts_dweight.host()));
  }
}

TYPED_TEST(RowPasses, SumsOfColumnsAreThoseOfLeavesInTheTree) {
  using T = TypeParam;
  using C = compute_t<T>;
  for (const std::int64_t rows_of_leaf : {1, 64, 150})
    for (const std::int64_t width : {1, 24, 37}) {
      constexpr std::int64_t leaves = 7;
      const std::int64_t rows = leaves * rows_of_leaf;
      const Rows<T> x(rows, width, 3, 1);
      const DeviceArray<C> sums(width), added(random_values<C>(width, 2)),
          room(column_sums_workspace(rows, width, leaves, kernel_form, true));
      const std::vector<T> values = x.host();
      std::vector<std::vector<C>> of(leaves);
      for (std::int64_t leaf = 0; leaf < leaves; ++leaf) {
        sum_columns<T>(Exec(), x.view().row_range(leaf * rows_of_leaf, (leaf + 1) * rows_of_leaf),
                       sums, {1, room});
        of[leaf] = sums.host();
        for (std::int64_t j = 0; j < width; ++j) {
          double expected = 0;
          for (std::int64_t r = leaf * rows_of_leaf; r < (leaf + 1) * rows_of_leaf; ++r)
            expected += static_cast<double>(compute_t<T>(values[r * (width + 3) + j]));
          ASSERT_NEAR(of[leaf][j], expected, (sizeof(C) == 8 ? 1e-14 : 2e-7) * rows_of_leaf);
        }
      }
      sum_columns<T>(Exec(), x, sums, {leaves, room});
      const std::vector<C> all = sums.host();
      for (std::int64_t j = 0; j < width; ++j)
        ASSERT_EQ(all[j], ((of[0][j] + of[1][j]) + (of[2][j] + of[3][j])) +
                              ((of[4][j] + of[5][j]) + of[6][j]));
      const std::vector<C> before = added.host();
      sum_columns<T>(Exec(), x, added, {leaves, room, true});
      expect_added(before, all, added.host());
    }
}

TYPED_TEST(RowPasses, ActivationBackwardHasTheBitsOfItsParts) {
  using T = TypeParam;
  using C = compute_t<T>;
  for (const auto& named : activation_names)
    for (const std::int64_t inner : {1, 40, 67})
      for (const bool has_bias : {false, true}) {
        const Activation kind = named.value;
        SCOPED_TRACE(name(kind) + std::string(" ") + std::to_string(inner));
        const std::int64_t leaves = 3, rows = 210, width = is_gated(kind) ? 2 * inner : inner;
        const Rows<T> x(rows, width, 1, 1), dy(rows, inner, 0, 2), dx(rows, width, 0, 3),
            parts_dx(rows, width, 0, 3), again(rows, inner, 2, 4), parts_again(rows, inner, 2, 4);
        const DeviceArray<C> dbias(width), parts_dbias(width), added(random_values<C>(width, 5)),
            room(column_sums_workspace(rows, width, leaves, kernel_form, true));
        activation_backward<T>(Exec(), kind, x, dy, dx, again, has_bias ? dbias.view() : View<C*>(),
                               {leaves, room});
        activation_forward<T>(Exec(), kind, x, parts_again);
        activation_backward<T>(Exec(), kind, x, dy, parts_dx);
        EXPECT_TRUE(same_bits(again.host(), parts_again.host()));
        EXPECT_TRUE(same_bits(dx.host(), parts_dx.host()));
        if (!has_bias) continue;
        sum_columns<T>(Exec(), parts_dx, parts_dbias, {leaves, room});
        EXPECT_TRUE(same_bits(dbias.host(), parts_dbias.host()));
        const std::vector<C> before = added.host();
        activation_backward<T>(Exec(), kind, x, dy, dx, again, added, {leaves, room, true});
        expect_added(before, parts_dbias.host(), added.host());
      }
}

#if OSTRAKON_ON_DEVICE

TYPED_TEST(RowPasses, NormsThatAClusterHoldsAreThoseReadAgain) {
  using T = TypeParam;
  using C = compute_t<T>;
  constexpr std::int64_t rows = 3, width = 32 / static_cast<std::int64_t>(sizeof(T)) * 1024 - 5;
  const Rows<T> x(rows, width, 5, 1), dy(rows, width, 5, 2), y(rows, width, 5, 3);
  const DeviceArray<T> weight(random_values<T>(width, 5));
  const DeviceArray<C> mean(rows), rstd(rows);
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm}) {
    const View<C*> center = kind == NormKind::layernorm ? mean.view() : View<C*>();
    norm_forward<T>(Exec(), kind, NormWeight::plain, 1e-5, x, weight.view(), {}, y, center, rstd);
    const auto gradient = [&](int teams) {
      const ClusterLimit cluster(teams);
      const Rows<T> dx(rows, width, 5, 4);
      norm_backward_input<T>(Exec(), kind, NormWeight::plain, x, weight.view(), center, rstd, dy,
                             dx, GradientUpdate::add);
      return dx.host();
    };
    // Sums have another order, after which an element may be rounded to its neighbour.
    EXPECT_LT(largest_difference(gradient(most_teams_of_cluster), gradient(1)),
              sizeof(T) == 2 ? 0x1p-7 : 1e-5);
  }
}

/// Compares with sums in double, for a scale of 0.5.
template <class T, class C = compute_t<T>>
void expect_losses_and_gradients(const std::vector<C>& logits, std::int64_t words,
                                 std::int64_t stride, const std::vector<std::int32_t>& targets,
                                 double cap, const std::vector<C>& losses,
                                 const std::vector<T>& dlogits) {
  // Half a unit in the last place; gradients below fp16's smallest normal number have fewer digits.
  constexpr bool is_fp16 = std::is_same<T, fp16>::value;
  const double rounding = is_fp16 ? 0x1p-11 : is_16bit<T> ? 0x1p-8 : 0.0;
  const double spacing = is_fp16 ? 0x1p-24 : 0.0;
  const double exact = sizeof(C) == 8 ? 1e-12 : 1e-5;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const auto at = [&](std::int64_t i) {
      return static_cast<double>(
          logits[r * static_cast<std::size_t>(stride) + static_cast<std::size_t>(i)]);
    };
    const std::int64_t target = targets[r];
    double total = 0, largest_error = 0;
    for (std::int64_t i = 0; i < words; ++i) total += std::exp(at(i));
    ASSERT_NEAR(losses[r], target < 0 ? 0.0 : std::log(total) - at(target), 20 * exact);
    for (std::int64_t i = 0; i < words; ++i) {
      const double slope = cap > 0 ? 1 - at(i) * at(i) / (cap * cap) : 1.0;
      const double expected =
          target < 0 ? 0.0 : 0.5 * (std::exp(at(i)) / total - (i == target ? 1 : 0)) * slope;
      const auto found = static_cast<double>(static_cast<C>(
          dlogits[r * static_cast<std::size_t>(stride) + static_cast<std::size_t>(i)]));
      const double error = std::fabs(found - expected) - spacing;
      largest_error = std::max(largest_error, error / std::max(std::fabs(expected), 1e-12));
    }
    EXPECT_LE(largest_error, rounding + exact);
  }
}

TYPED_TEST(RowPasses, LogitsOfATeamHaveTheSameBitsWhereverTheyStay) {
  using T = TypeParam;
  using C = compute_t<T>;
  // No, part of, one whole and several runs behind those in registers; rows at and between vectors.
  for (const std::int64_t words : {5000, 40000, 44032, 90001})
    for (const std::int64_t gap : {0, 3})
      for (const double cap : {0.0, 2.0}) {
        SCOPED_TRACE(text(words, " words, gap ", gap, ", cap ", cap));
        constexpr std::int64_t rows = 3;
        const Rows<C> logits(rows, words, gap, 1);
        std::vector<C> values = logits.host();
        // The largest is in the last or in the first part.
        values[static_cast<std::size_t>(words - 1)] = C(9);
        values[static_cast<std::size_t>(2 * (words + gap) + 7)] = C(9);
        logits.array.assign(values);
        const DeviceArray<std::int32_t> targets(
            std::vector<std::int32_t>{static_cast<std::int32_t>(words - 1), -1, 0});
        const auto results = [&](std::int64_t memory, int teams = 1) {
          const TeamMemoryLimit limit(memory);
          const ClusterLimit cluster(teams);
          const Rows<T> dlogits(rows, words, gap, 2);
          const DeviceArray<C> losses(rows);
          losses_and_dlogits<T>(Exec(), {1.0, cap}, logits, targets.view(), C(0.5), losses,
                                dlogits);
          return std::make_pair(losses.host(), dlogits.host());
        };
        const auto all = results(std::int64_t{1} << 20);
        expect_losses_and_gradients<T>(logits.host(), words, words + gap, targets.host(), cap,
                                       all.first, all.second);
        for (const std::int64_t memory : {0, 16 << 10, 40 << 10, 162 << 10}) {
          const auto some = results(memory);
          EXPECT_TRUE(same_bits(some.first, all.first)) << memory;
          EXPECT_TRUE(same_bits(some.second, all.second)) << memory;
        }
        // Parts of rows, whose logits stay or not.
        for (const int teams : {2, 4}) {
          const auto parts = results(0, teams);
          expect_losses_and_gradients<T>(logits.host(), words, words + gap, targets.host(), cap,
                                         parts.first, parts.second);
        }
      }
}

#endif

}  // namespace
}  // namespace ostrakon::math
