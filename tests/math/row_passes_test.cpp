// SPDX-License-Identifier: Apache-2.0
// Kernels that do at once what others do one after the other: with their bits and, on a device,
// with one read of each array and one write.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/byte_count.hpp>
#include <ostrakon/math/cross_entropy/linear_cross_entropy.hpp>
#include <ostrakon/math/cross_entropy/logits.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/norm.hpp>
#include <string>
#include <utility>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using test::same_bits;

/// Rows with a gap between them, so that not all begin at a vector where `gap` is odd.
template <class T>
struct Rows {
  std::int64_t rows, width, gap;
  DeviceArray<T> array;

  Rows(std::int64_t rows_, std::int64_t width_, std::int64_t gap_, std::uint64_t seed)
      : rows(rows_),
        width(width_),
        gap(gap_),
        array(random_values<T>(rows * (width + gap), seed)) {}
  View<T**> view() const { return {array.data(), rows, width, width + gap}; }
  operator View<T**>() const { return view(); }
  operator View<const T**>() const { return view(); }
  std::vector<T> host() const { return array.host(); }
};

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
        parts_dbias(c.width), room(norm_sums_workspace(rows, c.width, c.leaves));
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
      const DeviceArray<C> sums(width), room(column_sums_workspace(rows, width, leaves));
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
        const DeviceArray<C> dbias(width), parts_dbias(width),
            room(column_sums_workspace(rows, width, leaves));
        activation_backward<T>(Exec(), kind, x, dy, dx, again, has_bias ? dbias.view() : View<C*>(),
                               {leaves, room});
        activation_forward<T>(Exec(), kind, x, parts_again);
        activation_backward<T>(Exec(), kind, x, dy, parts_dx);
        EXPECT_TRUE(same_bits(again.host(), parts_again.host()));
        EXPECT_TRUE(same_bits(dx.host(), parts_dx.host()));
        if (!has_bias) continue;
        sum_columns<T>(Exec(), parts_dx, parts_dbias, {leaves, room});
        EXPECT_TRUE(same_bits(dbias.host(), parts_dbias.host()));
      }
}

#if OSTRAKON_ON_DEVICE

TYPED_TEST(RowPasses, LogitsHaveTheSameBitsWhereverTheyStay) {
  using T = TypeParam;
  using C = compute_t<T>;
  // No, part of, one whole and several runs behind those in registers; rows at and between vectors.
  for (const std::int64_t words : {5000, 40000, 44032, 90001})
    for (const std::int64_t gap : {0, 3})
      for (const double cap : {0.0, 2.0}) {
        SCOPED_TRACE(text(words, " words, gap ", gap, ", cap ", cap));
        constexpr std::int64_t rows = 3;
        const Rows<C> logits(rows, words, gap, 1);
        const DeviceArray<std::int32_t> targets(
            std::vector<std::int32_t>{static_cast<std::int32_t>(words - 1), -1, 0});
        const auto results = [&](std::int64_t memory) {
          const TeamMemoryLimit limit(memory);
          const Rows<T> dlogits(rows, words, gap, 2);
          const DeviceArray<C> losses(rows);
          losses_and_dlogits<T>(Exec(), {1.0, cap}, logits, targets.view(), C(0.5), losses,
                                dlogits);
          return std::make_pair(losses.host(), dlogits.host());
        };
        const auto all = results(std::int64_t{1} << 20);
        for (const std::int64_t memory : {0, 16 << 10, 40 << 10, 162 << 10}) {
          const auto some = results(memory);
          EXPECT_TRUE(same_bits(some.first, all.first)) << memory;
          EXPECT_TRUE(same_bits(some.second, all.second)) << memory;
        }
      }
}

#endif

#if defined(OSTRAKON_COUNT_BYTES)

/// What kernels read and write of arrays that are watched, over what they have to.
class Traffic {
 public:
  template <class T>
  void watch(const DeviceArray<T>& array, int reads, int writes) {
    const auto bytes = static_cast<std::size_t>(array.size()) * sizeof(T);
    counts_.push_back(std::make_unique<ByteCount>(array.data(), bytes));
    floor_ += static_cast<double>(bytes) * (reads + writes);
  }
  /// The workspace of sums, which need not exist.
  template <class T>
  void watch_room(const DeviceArray<T>& array) {
    watch(array, 0, 0);
  }
  double ratio() const {
    double all = 0;
    for (const auto& count : counts_) all += static_cast<double>(count->read() + count->written());
    return all / floor_;
  }

 private:
  std::vector<std::unique_ptr<ByteCount>> counts_;
  double floor_ = 0;
};

/// What is read again or written for sums may be a quarter of what a kernel has to read and write.
void expect_one_pass(const char* kernel, std::int64_t width, const Traffic& traffic,
                     double most = 1.25) {
  EXPECT_GE(traffic.ratio(), 1.0) << kernel << " at " << width << " has accesses without a count";
  EXPECT_LE(traffic.ratio(), most) << kernel << " at " << width;
}

TEST(RowTraffic, ReadsAndWritesEachArrayOnce) {
  using T = bf16;
  constexpr std::int64_t rows = 128, leaves = 2;
  const Exec exec;
  for (const std::int64_t width : {768, 2048, 4096})
    for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm}) {
      const bool has_bias = kind == NormKind::layernorm;
      const Rows<T> x(rows, width, 0, 1), y(rows, width, 0, 2), dx(rows, width, 0, 3),
          again(rows, width, 0, 4), both(rows, 2 * width, 0, 5), dboth(rows, 2 * width, 0, 6);
      const DeviceArray<T> weight(random_values<T>(width, 5)), bias(random_values<T>(width, 6));
      const DeviceArray<float> mean(rows), rstd(rows), dweight(width), dbias(width);
      const DeviceArray<float> room(norm_sums_workspace(rows, width, leaves));
      const View<float*> center = has_bias ? mean.view() : View<float*>();
      const View<const T*> shift = has_bias ? bias.view() : View<T*>();
      const View<float*> none;
      const NormWeight gain = NormWeight::plain;
      {
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch(y.array, 0, 1);
        norm_forward<T>(exec, kind, gain, 1e-5, x, weight, shift, y, center, rstd);
        expect_one_pass("norm_forward", width, traffic);
      }
      {
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch(y.array, 0, 1);
        norm_apply<T>(exec, kind, gain, x, weight, shift, center, rstd, y);
        expect_one_pass("norm_apply", width, traffic);
      }
      {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch(dx.array, 1, 1);
        norm_backward_input<T>(exec, kind, gain, x, weight, center, rstd, y, dx);
        expect_one_pass("norm_backward_input", width, traffic);
      }
      for (const bool has_again : {false, true}) {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch(dx.array, 1, 1);
        if (has_again) traffic.watch(again.array, 0, 1);
        traffic.watch_room(room);
        norm_backward<T>(exec, kind, gain, x, weight, shift, center, rstd, y, dx,
                         GradientUpdate::add, has_again ? again.view() : View<T**>(), dweight,
                         has_bias ? dbias.view() : none, {leaves, room});
        expect_one_pass("norm_backward", width, traffic);
      }
      {
        Traffic traffic;
        for (const auto* in : {&x, &y}) traffic.watch(in->array, 1, 0);
        traffic.watch_room(room);
        sum_norm_gradients<T>(exec, kind, x, center, rstd, y, dweight,
                              has_bias ? dbias.view() : none, {leaves, room});
        expect_one_pass("sum_norm_gradients", width, traffic);
      }
      const Activation activation = has_bias ? Activation::gelu : Activation::swiglu;
      const Rows<T>& in = has_bias ? x : both;
      const Rows<T>& din = has_bias ? dx : dboth;
      {
        Traffic traffic;
        traffic.watch(in.array, 1, 0);
        traffic.watch(again.array, 0, 1);
        activation_forward<T>(exec, activation, in, again);
        expect_one_pass("activation_forward", width, traffic);
      }
      for (const bool sums : {false, true}) {
        const DeviceArray<float> columns(din.width),
            column_room(column_sums_workspace(rows, din.width, leaves));
        Traffic traffic;
        for (const auto* from : {&in, &y}) traffic.watch(from->array, 1, 0);
        for (const auto* to : {&din, &again}) traffic.watch(to->array, 0, 1);
        traffic.watch_room(column_room);
        activation_backward<T>(exec, activation, in, y, din, again, sums ? columns.view() : none,
                               {leaves, column_room});
        expect_one_pass("activation_backward", width, traffic);
      }
      {
        const DeviceArray<float> column_room(column_sums_workspace(rows, width, leaves));
        Traffic traffic;
        traffic.watch(x.array, 1, 0);
        traffic.watch_room(column_room);
        sum_columns<T>(exec, x, dbias, {leaves, column_room});
        expect_one_pass("sum_columns", width, traffic);
      }
    }
}

// Compute capabilities 7.5, 12.0, 8.0 and 9.0, without what sums need; words of Llama 2,
// GPT-2, Llama 3, Qwen 3, Llama 4 and Gemma 3.
constexpr std::int64_t team_memories[] = {63 << 10, 98 << 10, 162 << 10, 226 << 10};
constexpr std::int64_t vocabularies[] = {32000, 50257, 128256, 151936, 202048, 262144};

TEST(RowTraffic, LogitsThatDoNotStayOnChipAreReadTwice) {
  using T = bf16;
  constexpr std::int64_t rows = 3;
  for (const std::int64_t memory : team_memories)
    for (const std::int64_t words : vocabularies) {
      SCOPED_TRACE(text(words, " words, ", memory, " bytes"));
      const TeamMemoryLimit limit(memory);
      // As the head stores them: rows begin at whole cache lines.
      const std::int64_t stride = items_for(words, 16) * 16;
      const Rows<float> logits(rows, words, stride - words, 1);
      const Rows<T> dlogits(rows, words, stride - words, 2);
      const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{5, -1, 31999});
      const DeviceArray<float> losses(rows);
      const ByteCount read(logits.array.data(), rows * stride * sizeof(float));
      const ByteCount written(dlogits.array.data(), rows * stride * sizeof(T));
      losses_and_dlogits<T>(Exec(), {}, logits, targets.view(), 1.0f, losses, dlogits);
      EXPECT_EQ(read.written() + written.read(), 0);
      // 39,936 stay in registers, and 4,096 in each 16 KiB. Of a row that does not count no logit
      // is read.
      const std::int64_t on_chip = 39936 + memory / (16 << 10) * 4096;
      const std::int64_t twice = std::max<std::int64_t>(0, words - on_chip);
      EXPECT_NEAR(read.read(), 2.0 * 4.0 * (words + twice), 100.0);
      EXPECT_NEAR(written.written(), rows * 2.0 * words, 100.0);
      const bool fits = words < 60000 || (words < 130000 && memory >= 162 << 10) ||
                        (words < 160000 && memory >= 226 << 10);
      // That of a row that counts.
      const double ratio = (4.0 * (words + twice) + 2.0 * words) / (6.0 * words);
      EXPECT_EQ(ratio <= 1.25, fits) << ratio;
    }
}

TEST(RowTraffic, LogitsThatAPlanCountsAgainAreThoseReadAgain) {
  const TeamMemoryLimit limit(planned_team_memory(KernelForm::device_on_chip));
  for (const std::int64_t words : vocabularies) {
    const Rows<float> logits(1, words, 0, 1);
    const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{5});
    const DeviceArray<float> losses(1);
    const DeviceArray<bf16> dlogits(words);
    const ByteCount read(logits.array.data(), words * sizeof(float));
    losses_and_dlogits<bf16>(Exec(), {}, logits, targets.view(), 1.0f, losses,
                             dlogits.view().matrix(1, words));
    EXPECT_NEAR(
        read.read(),
        sizeof(float) * (words + logits_read_again<bf16>(words, KernelForm::device_on_chip)),
        100.0);
  }
  EXPECT_EQ(logits_read_again<bf16>(257, KernelForm::host), 257);
}

#endif

}  // namespace
}  // namespace ostrakon::math
