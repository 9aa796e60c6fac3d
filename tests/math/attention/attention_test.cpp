// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

#include "math/attention/attention_reference.hpp"
#include "math/check_gradient.hpp"
#include "math/compare.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using math::AttentionShape;
using namespace test::attention;
using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

std::string name_of(const AttentionShape& s) {
  return text("batch ", s.batch, ", tokens ", s.tokens, ", heads ", s.heads, ", kv_heads ",
              s.kv_heads, ", head width ", s.head_width, ", value width ", width_of_values(s),
              ", scale ", s.scores.scale, ", cap ", s.scores.soft_cap, ", window ", s.scores.window,
              ", slopes ", s.scores.slopes, " from ", s.scores.first_head);
}

/// Odd sizes, sizes of 1, grouped heads, more tokens than a block of queries, and the usual head
/// widths, some between them, and one too wide for tiles; values that are narrower or wider than
/// keys.
std::vector<AttentionShape> shapes() {
  return {{1, 1, 1, 1, 1},
          {1, 1, 2, 1, 5},
          {3, 2, 1, 1, 4},
          {2, 7, 3, 1, 5},
          {1, 64, 1, 1, 8},
          {1, 65, 2, 2, 3},
          {2, 150, 4, 2, 6},
          {1, 300, 6, 3, 16},
          {2, 130, 2, 1, 32},
          {1, 200, 2, 2, 64},
          {1, 129, 2, 1, 128},
          {1, 77, 1, 1, 80},
          {1, 66, 2, 1, 100},
          {1, 65, 1, 1, 256},
          {1, 70, 1, 1, 257},
          {1, 9, 1, 1, 3, {}, 2},
          {2, 150, 4, 2, 6, {}, 11},
          {1, 130, 2, 1, 24, {}, 16},
          {1, 70, 2, 2, 192, {}, 128},
          {1, 66, 2, 1, 20, {}, 300},
          {1, 67, 2, 1, 260, {}, 5}};
}

/// Shapes by what scores are besides scaled products: windows of less than a tile, of one, and of
/// more, caps, slopes and scales, in pairs and all together.
struct ScoresCase {
  AttentionShape shape;
  bool sinks;
};
std::vector<ScoresCase> scores_cases() {
  return {{{1, 70, 2, 1, 8, {0.3}}, false},
          {{2, 5, 2, 1, 3, {0, 0, 1}}, true},
          {{1, 150, 2, 2, 16, {0, 0, 17}}, false},
          {{1, 200, 2, 1, 64, {0, 0, 64}}, true},
          {{2, 300, 2, 1, 16, {0.1, 0, 100}}, false},
          {{1, 129, 4, 2, 6, {0, 1.5, 0}}, false},
          {{1, 140, 2, 1, 32, {0.2, 2.0, 9}}, true},
          {{1, 100, 6, 3, 20, {0, 0, 0, 6}}, false},
          {{1, 170, 3, 1, 5, {0, 0, 50, 12, 7}}, true},
          {{1, 260, 4, 2, 128, {0.05, 1.2, 70, 4}}, true},
          {{1, 100, 2, 2, 100, {0, 0.7, 0, 8, 6}}, true},
          {{1, 66, 1, 1, 8, {0, 3.0, 200, 1}}, true},
          {{1, 600, 2, 1, 8, {0, 0, 2}}, true},
          {{1, 140, 4, 2, 24, {0.2, 1.5, 70, 4}, 10}, true},
          {{1, 140, 2, 1, 20, {0, 1.5, 70, 2}, 270}, true},
          {{1, 140, 2, 1, 257, {0.05, 1.0, 65, 2}}, true}};
}
template <class T>
std::vector<T> sinks_of(const ScoresCase& c) {
  std::vector<T> sinks = c.sinks ? random_values<T>(c.shape.heads, 14) : std::vector<T>();
  for (T& sink : sinks) sink *= 3;
  return sinks;
}

/// The arrays of one attention; outputs begin as NaN.
template <class T>
struct Attention {
  AttentionShape shape;
  DeviceArray<T> qkv, sinks, out, log_sum_exp, dqkv;

  Attention(const AttentionShape& shape_, const std::vector<T>& qkv_,
            const std::vector<T>& sinks_ = {})
      : shape(shape_),
        qkv(qkv_),
        sinks(sinks_),
        out(rows_of(shape) * out_columns(shape)),
        log_sum_exp(rows_of(shape) * shape.heads),
        dqkv(rows_of(shape) * qkv_columns(shape)) {}

  View<T**> qkv_matrix() const { return {qkv.data(), rows_of(shape), qkv_columns(shape)}; }
  View<T**> out_matrix() const { return {out.data(), rows_of(shape), out_columns(shape)}; }

  void forward(std::int64_t begin, std::int64_t end) const {
    const DeviceArray<T> workspace(math::attention_forward_workspace<T>(shape));
    math::attention_forward<T>(Exec(), shape, qkv_matrix(), begin, end, out_matrix(), log_sum_exp,
                               workspace, sinks_view());
    Exec().fence();
  }
  View<const T*> sinks_view() const {
    return sinks.size() > 0 ? View<const T*>(sinks) : View<const T*>();
  }
  /// The gradient of the sinks, as two sums of rows.
  std::vector<T> backward_sinks(const std::vector<T>& dout) const {
    const DeviceArray<T> device_dout(dout), first(shape.heads), second(shape.heads);
    const View<T**> all(device_dout.data(), rows_of(shape), out_columns(shape));
    const std::int64_t rows = rows_of(shape), cut = rows * 2 / 3;
    math::attention_backward_sinks<T>(Exec(), shape, sinks_view(), out_matrix().row_range(0, cut),
                                      log_sum_exp, all.row_range(0, cut), 0, first);
    math::attention_backward_sinks<T>(Exec(), shape, sinks_view(),
                                      out_matrix().row_range(cut, rows), log_sum_exp,
                                      all.row_range(cut, rows), cut, second);
    Exec().fence();
    std::vector<T> sum = first.host(), more = second.host();
    for (std::size_t h = 0; h < sum.size(); ++h) sum[h] += more[h];
    return sum;
  }
  void backward(const std::vector<T>& dout) const {
    const DeviceArray<T> workspace(math::attention_backward_workspace<T>(shape)), device_dout(dout);
    math::attention_backward<T>(Exec(), shape, qkv_matrix(), out_matrix(), log_sum_exp,
                                View<T**>(device_dout.data(), rows_of(shape), out_columns(shape)),
                                View<T**>(dqkv.data(), rows_of(shape), qkv_columns(shape)),
                                workspace);
    Exec().fence();
  }
};

template <class T>
std::vector<T> random_qkv(const AttentionShape& shape, std::uint64_t seed, T size = 2) {
  std::vector<T> values = random_values<T>(rows_of(shape) * qkv_columns(shape), seed);
  for (T& value : values) value *= size;
  return values;
}

template <class T>
class AttentionTest : public ::testing::Test {};
using Scalars = ::testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionTest, Scalars);

template <class T>
constexpr double tolerance = std::is_same<T, float>::value ? 1e-5 : 1e-12;

TYPED_TEST(AttentionTest, ForwardAgreesWithPlainLoops) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes()) {
    const std::vector<T> qkv = random_qkv<T>(shape, 1);
    const Attention<T> attention(shape, qkv);
    attention.forward(0, shape.tokens);
    const AttentionReference reference(shape, converted<double>(qkv));
    EXPECT_LE(largest_difference(attention.out.host(), reference.out), tolerance<T>)
        << name_of(shape);
    EXPECT_LE(largest_difference(attention.log_sum_exp.host(), reference.log_sum_exp), tolerance<T>)
        << name_of(shape);
    EXPECT_TRUE(same_bits(attention.qkv.host(), qkv));
  }
}

TYPED_TEST(AttentionTest, BackwardAgreesWithPlainLoops) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes()) {
    const std::vector<T> qkv = random_qkv<T>(shape, 2);
    const std::vector<T> dout = random_values<T>(rows_of(shape) * out_columns(shape), 3);
    const Attention<T> attention(shape, qkv);
    attention.forward(0, shape.tokens);
    attention.backward(dout);
    AttentionReference reference(shape, converted<double>(qkv));
    EXPECT_LE(
        largest_difference(attention.dqkv.host(), reference.backward(converted<double>(dout))),
        tolerance<T>)
        << name_of(shape);
  }
}

TYPED_TEST(AttentionTest, ScoresAgreeWithPlainLoops) {
  using T = TypeParam;
  for (const ScoresCase& c : scores_cases()) {
    SCOPED_TRACE(name_of(c.shape));
    const std::vector<T> qkv = random_qkv<T>(c.shape, 15), sinks = sinks_of<T>(c);
    const std::vector<T> dout = random_values<T>(rows_of(c.shape) * out_columns(c.shape), 16);
    const Attention<T> attention(c.shape, qkv, sinks);
    attention.forward(0, c.shape.tokens);
    attention.backward(dout);
    AttentionReference reference(c.shape, converted<double>(qkv), converted<double>(sinks));
    EXPECT_LE(largest_difference(attention.out.host(), reference.out), tolerance<T>);
    EXPECT_LE(largest_difference(attention.log_sum_exp.host(), reference.log_sum_exp),
              tolerance<T>);
    EXPECT_LE(
        largest_difference(attention.dqkv.host(), reference.backward(converted<double>(dout))),
        tolerance<T>);
    if (c.sinks) {
      EXPECT_LE(largest_difference(attention.backward_sinks(dout), reference.dsinks),
                10 * tolerance<T>);
    }
  }
}

// A window of all tokens or more cuts nothing.
TYPED_TEST(AttentionTest, WideWindowsChangeNothing) {
  using T = TypeParam;
  AttentionShape shape{1, 150, 2, 1, 16};
  const std::vector<T> qkv = random_qkv<T>(shape, 17);
  const std::vector<T> dout = random_values<T>(rows_of(shape) * out_columns(shape), 18);
  const Attention<T> without(shape, qkv);
  for (const std::int64_t window : {150, 151, 10000}) {
    shape.scores.window = window;
    const Attention<T> with(shape, qkv);
    for (const Attention<T>* attention : {&without, &with}) {
      attention->forward(0, shape.tokens);
      attention->backward(dout);
    }
    EXPECT_TRUE(same_bits(with.out.host(), without.out.host()));
    EXPECT_LE(largest_difference(with.dqkv.host(), without.dqkv.host()), tolerance<T>);
  }
}

// Keys before the window may have any value: their tiles are not read.
TYPED_TEST(AttentionTest, QueriesSeeNoKeysBeforeTheirWindow) {
  using T = TypeParam;
  const AttentionShape shape{1, 600, 2, 1, 8, {0, 0, 20}};
  std::vector<T> qkv = random_qkv<T>(shape, 19);
  const Attention<T> before(shape, qkv);
  before.forward(560, 600);
  for (std::int64_t i = 0; i < 512 * qkv_columns(shape); ++i)
    qkv[i] = std::numeric_limits<T>::quiet_NaN();
  const Attention<T> after(shape, qkv);
  after.forward(560, 600);
  EXPECT_TRUE(same_bits(before.out.host(), after.out.host()));
}

// Latents are keys and values. They are read where they lie, and have no backward.
TYPED_TEST(AttentionTest, ValuesMayBeColumnsOfKeys) {
  using T = TypeParam;
  for (AttentionShape shape : {AttentionShape{1, 150, 6, 2, 24, {0.3, 2.0, 70, 6}, 16},
                               AttentionShape{1, 70, 3, 1, 257, {}, 257},
                               AttentionShape{1, 70, 150, 1, 300, {0.1, 2.0, 0, 150}, 260}}) {
    const std::int64_t keys = shape.kv_heads * shape.head_width, rows = 9;
    const std::vector<T> in_keys = random_values<T>(shape.tokens * keys, 21);
    std::vector<T> copied;  // behind the keys
    for (std::int64_t t = 0; t < shape.tokens; ++t) {
      const auto row = in_keys.begin() + t * keys;
      copied.insert(copied.end(), row, row + keys);
      for (std::int64_t h = 1; h <= shape.kv_heads; ++h)
        copied.insert(copied.end(), row + h * shape.head_width - shape.value_width,
                      row + h * shape.head_width);
    }
    const DeviceArray<T> q(random_values<T>(rows * q_columns(shape), 22));
    // Computes so many of the last queries.
    const auto attend = [&](const std::vector<T>& kv_values, std::int64_t count) {
      const DeviceArray<T> kv(kv_values), out(count * out_columns(shape));
      const DeviceArray<T> workspace(math::attention_forward_workspace<T>(shape));
      const DeviceArray<compute_t<T>> log_sum_exp(count * shape.heads);
      const View<T**> queries(q.data(), rows, q_columns(shape));
      math::attention_forward<T>(
          Exec(), shape, shape.tokens - count, queries.row_range(rows - count, rows),
          View<T**>(kv.data(), shape.tokens, shape.kv_columns()),
          View<T**>(out.data(), count, out_columns(shape)), log_sum_exp, workspace);
      Exec().fence();
      return out.host();
    };
    const std::vector<T> expected = attend(copied, rows);
    shape.values_in_keys = true;
    EXPECT_TRUE(same_bits(attend(in_keys, rows), expected)) << name_of(shape);
    // The heads of a query that is alone are rows of one product.
    const std::vector<T> last(expected.end() - out_columns(shape), expected.end());
    EXPECT_LE(largest_difference(attend(in_keys, 1), last), tolerance<T>) << name_of(shape);
    const DeviceArray<T> none(0);
    const View<T**> qkv(none.data(), 0, shape.query_columns() + shape.kv_columns());
    shape.batch = 0;
    const View<T**> outputs(none.data(), 0, out_columns(shape));
    const auto backward = [&] {
      math::attention_backward<T>(Exec(), shape, qkv, outputs, none, outputs, qkv, none);
    };
    EXPECT_EQ(ostrakon::testing::error_of(backward),
              "attention: values are columns of keys, which have no backward");
  }
}

TEST(AttentionGradient, AgreesWithFiniteDifferences) {
  for (const AttentionShape& shape : std::vector<AttentionShape>{{1, 1, 1, 1, 3},
                                                                 {1, 5, 1, 1, 4},
                                                                 {2, 6, 4, 2, 3},
                                                                 {1, 3, 3, 1, 2},
                                                                 {1, 67, 2, 1, 1},
                                                                 {1, 6, 2, 1, 3, {}, 2}}) {
    std::vector<double> qkv = random_qkv<double>(shape, 4, 1.5);
    const std::vector<double> dout = random_values<double>(rows_of(shape) * out_columns(shape), 5);
    const Attention<double> attention(shape, qkv);
    attention.forward(0, shape.tokens);
    attention.backward(dout);
    EXPECT_TRUE(test::gradient_agrees(name_of(shape), qkv, attention.dqkv.host(), [&] {
      attention.qkv.assign(qkv);
      attention.forward(0, shape.tokens);
      return test::weighted_sum(attention.out.host(), dout);
    }));
  }
}

TYPED_TEST(AttentionTest, QueriesInPartsGiveWhatAllAtOnceGive) {
  using T = TypeParam;
  std::vector<ScoresCase> cases = scores_cases();
  for (const AttentionShape& shape : shapes()) cases.push_back({shape, false});
  for (const ScoresCase& c : cases) {
    const AttentionShape& shape = c.shape;
    const std::vector<T> qkv = random_qkv<T>(shape, 6), sinks = sinks_of<T>(c);
    const Attention<T> whole(shape, qkv, sinks), parts(shape, qkv, sinks),
        one_by_one(shape, qkv, sinks);
    whole.forward(0, shape.tokens);
    const std::int64_t first = shape.tokens * 2 / 3, second = std::min(first + 1, shape.tokens);
    parts.forward(0, first);
    parts.forward(first, second);
    parts.forward(second, shape.tokens);
    for (std::int64_t query = 0; query < shape.tokens; ++query)
      one_by_one.forward(query, query + 1);
    for (const Attention<T>* other : {&parts, &one_by_one}) {
      EXPECT_LE(largest_difference(other->out.host(), whole.out.host()), tolerance<T>)
          << name_of(shape);
      EXPECT_LE(largest_difference(other->log_sum_exp.host(), whole.log_sum_exp.host()),
                tolerance<T>)
          << name_of(shape);
    }
  }
}

TYPED_TEST(AttentionTest, QueriesSeeNoLaterTokensAndTouchNoOtherRows) {
  using T = TypeParam;
  const AttentionShape shape{2, 20, 2, 1, 4};
  std::vector<T> qkv = random_qkv<T>(shape, 7);
  constexpr std::int64_t begin = 5, end = 12;
  const Attention<T> before(shape, qkv);
  before.forward(begin, end);
  for (std::int64_t row = 0; row < rows_of(shape); ++row)
    if (row % shape.tokens >= end)
      for (std::int64_t j = 0; j < qkv_columns(shape); ++j)
        qkv[row * qkv_columns(shape) + j] = std::numeric_limits<T>::quiet_NaN();
  const Attention<T> after(shape, qkv);
  after.forward(begin, end);
  EXPECT_TRUE(same_bits(before.out.host(), after.out.host()));
  const std::vector<T> out = after.out.host();
  for (std::int64_t row = 0; row < rows_of(shape); ++row) {
    const std::int64_t token = row % shape.tokens;
    EXPECT_EQ(std::isnan(out[row * out_columns(shape)]), token < begin || token >= end) << row;
  }
}

TYPED_TEST(AttentionTest, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const AttentionShape shape{1, 40, 1, 1, 8};
  for (const T size : {T(100), T(1e10)}) {
    const std::vector<T> qkv = random_qkv<T>(shape, 8, size);
    const Attention<T> attention(shape, qkv);
    attention.forward(0, shape.tokens);
    attention.backward(std::vector<T>(rows_of(shape) * out_columns(shape), T(1)));
    for (T value : attention.out.host()) EXPECT_LE(std::abs(value), T(1.00001) * size);
    for (T value : attention.dqkv.host()) EXPECT_TRUE(std::isfinite(value));
  }
}

TYPED_TEST(AttentionTest, RepeatsItsBits) {
  using T = TypeParam;
  const AttentionShape shape{2, 150, 4, 2, 16};
  const std::vector<T> qkv = random_qkv<T>(shape, 9);
  const std::vector<T> dout = random_values<T>(rows_of(shape) * out_columns(shape), 10);
  const Attention<T> first(shape, qkv), second(shape, qkv);
  for (const Attention<T>* attention : {&first, &second}) {
    attention->forward(0, shape.tokens);
    attention->backward(dout);
  }
  EXPECT_TRUE(same_bits(first.out.host(), second.out.host()));
  EXPECT_TRUE(same_bits(first.log_sum_exp.host(), second.log_sum_exp.host()));
  EXPECT_TRUE(same_bits(first.dqkv.host(), second.dqkv.host()));
}

// The gradient of a sequence does not depend on its neighbours in the batch.
TYPED_TEST(AttentionTest, SequencesAreIndependent) {
  using T = TypeParam;
  const AttentionShape two{2, 70, 2, 1, 8}, one{1, 70, 2, 1, 8};
  const std::vector<T> qkv = random_qkv<T>(two, 11);
  const std::vector<T> dout = random_values<T>(rows_of(two) * out_columns(two), 12);
  const auto second_half = [](const std::vector<T>& x) {
    return std::vector<T>(x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  };
  const Attention<T> together(two, qkv), alone(one, second_half(qkv));
  together.forward(0, two.tokens);
  together.backward(dout);
  alone.forward(0, one.tokens);
  alone.backward(second_half(dout));
  EXPECT_TRUE(same_bits(second_half(together.out.host()), alone.out.host()));
  EXPECT_TRUE(same_bits(second_half(together.dqkv.host()), alone.dqkv.host()));
}

TEST(AttentionWorkspace, GrowsWithTokensNotWithTheirSquareOrTheBatch) {
  AttentionShape shape{1, 1024, 8, 8, 64};
  const std::int64_t forward = math::attention_forward_workspace<double>(shape);
  EXPECT_EQ(math::attention_backward_workspace<double>(shape), 2 * forward);
  shape.tokens *= 2;
  EXPECT_EQ(math::attention_forward_workspace<double>(shape), 2 * forward);
  shape.batch = 7;
  EXPECT_EQ(math::attention_forward_workspace<double>(shape), 2 * forward);
}

TEST(AttentionWorkspace, InTilesHasNoScoresAndNoSumsOfWholeSequences) {
  if (on_device) GTEST_SKIP() << "through products";
  const AttentionShape shape{3, 4096, 8, 2, 64};
  EXPECT_EQ(math::attention_forward_workspace<float>(shape), 0);
  const std::int64_t of_rows = shape.batch * shape.heads * shape.tokens;
  EXPECT_EQ(math::attention_backward_workspace<float>(shape), of_rows);
  EXPECT_EQ(math::attention_backward_workspace<float>(shape, 4),
            of_rows + math::tree_slots(4) * shape.kv_heads * 2 * 64 * shape.head_width);
  const AttentionShape unlike{3, 4096, 8, 2, 192, {}, 128};
  EXPECT_EQ(math::attention_backward_workspace<float>(unlike, 4),
            of_rows + math::tree_slots(4) * shape.kv_heads * 64 * (192 + 128));
  const AttentionShape wide{1, 1024, 2, 2, 512};
  EXPECT_EQ(math::attention_forward_workspace<float>(wide),
            math::attention_forward_workspace<double>(wide));
}

// With a window it is as wide as the keys of a block, on however many tokens.
TEST(AttentionWorkspace, IsAsWideAsAWindowNeeds) {
  for (const math::KernelForm form : {math::KernelForm::host, math::KernelForm::device}) {
    const std::int64_t queries = form == math::KernelForm::host ? 64 : 512;
    AttentionShape shape{1, 4096, 2, 2, 16, {0, 0, 128}};
    const std::int64_t heads = form == math::KernelForm::host ? 1 : 2;
    const std::int64_t cut = math::attention_forward_workspace<double>(shape, form);
    EXPECT_EQ(cut, heads * queries * (queries + 127 + 255));
    EXPECT_EQ(math::attention_backward_workspace<double>(shape, 1, form), 2 * cut);
    shape.tokens = 8192;
    EXPECT_EQ(math::attention_forward_workspace<double>(shape, form), cut);
    shape.scores.window = 8192;
    EXPECT_EQ(math::attention_forward_workspace<double>(shape, form), heads * queries * 8192);
  }
}

// The workspace fits tiles and products, whichever this processor uses.
TEST(AttentionWorkspace, In16BitsHasRoomForEitherWay) {
  if (on_device) GTEST_SKIP() << "through products, or on chip";
  const AttentionShape shape{2, 1024, 4, 4, 64};
  const std::int64_t products = 2 * 64 * shape.tokens * 3 + 2 * 2 * shape.tokens * 64 * 2;
  const std::int64_t tiles = 2 * (2 * 4 * shape.tokens + 2 * 4 * shape.tokens * 64);
  EXPECT_GE(math::attention_backward_workspace<bf16>(shape), std::max(products, tiles));
  EXPECT_LE(math::attention_backward_workspace<bf16>(shape), std::max(products, tiles) + 1);
  EXPECT_EQ(math::attention_backward_workspace<fp16>(shape),
            math::attention_backward_workspace<bf16>(shape));
  const AttentionShape one{1, 64, 1, 1, 256};
  EXPECT_GE(math::attention_backward_workspace<bf16>(one), 2 * 2 * 64 * 256);
}

TEST(AttentionShapes, AreChecked) {
  const AttentionShape shape{1, 4, 2, 1, 3};
  const Attention<double> attention(shape, random_qkv<double>(shape, 13));
  EXPECT_THROW(attention.forward(0, 5), Error);
  EXPECT_THROW(attention.forward(-1, 2), Error);
  EXPECT_THROW(attention.forward(3, 2), Error);
  const auto forward_as = [&](const AttentionShape& other) {
    math::attention_forward<double>(Exec(), other, attention.qkv_matrix(), 0, 4,
                                    attention.out_matrix(), {}, {});
  };
  EXPECT_THROW(forward_as({1, 4, 2, 2, 3}), Error);  // qkv would need more columns
  EXPECT_THROW(forward_as({2, 4, 2, 1, 3}), Error);
  EXPECT_THROW(forward_as({1, 4, 3, 2, 2}), Error);  // 2 does not divide 3
  EXPECT_THROW(forward_as({1, 4, 0, 1, 3}), Error);
  EXPECT_THROW(forward_as({1, 4, 2, 1, 3, {}, 2}), Error);  // qkv would need fewer columns
  EXPECT_THROW(forward_as({1, 4, 2, 1, 3, {}, -1}), Error);
}

/// Computes each part of the sequences separately, with keys and values of all. Returns the
/// gradients of keys and values from each part's queries.
template <class T>
std::vector<std::vector<T>> expect_parts_of(const AttentionShape& shape, std::int64_t parts,
                                            std::int64_t pieces = 1) {
  SCOPED_TRACE(text(name_of(shape), " in ", parts, " parts of ", pieces, " pieces"));
  const math::SequenceParts sequence{shape.tokens, parts, pieces};
  std::vector<std::vector<T>> all_dkv;
  const std::int64_t of_part = sequence.part_tokens(), rows = shape.batch * of_part;
  const std::int64_t query = q_columns(shape), kv = kv_columns(shape), all = query + kv;
  const std::int64_t out = out_columns(shape);
  const std::vector<T> qkv = random_qkv<T>(shape, 21);
  const std::vector<T> dout = random_values<T>(rows_of(shape) * out, 22);
  const Attention<T> whole(shape, qkv);
  whole.forward(0, shape.tokens);
  whole.backward(dout);
  const std::vector<T> whole_out = whole.out.host(), whole_lse = whole.log_sum_exp.host(),
                       whole_dqkv = whole.dqkv.host();
  const DeviceArray<T> kv_of_all(rows_of(shape) * kv);
  math::copy_rows<T, T>(Exec(), whole.qkv_matrix().column_range(query, all),
                        kv_of_all.matrix(rows_of(shape), kv));
  std::vector<double> dkv_sum(rows_of(shape) * kv, 0.0);
  for (std::int64_t part = 0; part < parts; ++part) {
    // Returns the row in the whole sequence of a row of the part.
    const auto row_of = [&](std::int64_t row) {
      return row / of_part * shape.tokens + sequence.position(part, row % of_part);
    };
    std::vector<T> q(rows * query), part_dout(rows * out);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < query; ++j) q[r * query + j] = qkv[row_of(r) * all + j];
      for (std::int64_t j = 0; j < out; ++j) part_dout[r * out + j] = dout[row_of(r) * out + j];
    }
    const DeviceArray<T> device_q(q), device_dout(part_dout), part_out(rows * out),
        lse(rows * shape.heads), dq(rows * query), dkv(rows_of(shape) * kv),
        forward_room(math::attention_forward_workspace<T>(shape)),
        backward_room(math::attention_backward_workspace<T>(shape, pieces));
    const math::AttentionQueries queries{sequence, part};
    math::attention_forward<T>(Exec(), shape, queries, device_q.matrix(rows, query),
                               kv_of_all.matrix(rows_of(shape), kv), part_out.matrix(rows, out),
                               lse, forward_room);
    math::attention_backward<T>(Exec(), shape, queries, device_q.matrix(rows, query),
                                kv_of_all.matrix(rows_of(shape), kv), part_out.matrix(rows, out),
                                lse, device_dout.matrix(rows, out), dq.matrix(rows, query),
                                dkv.matrix(rows_of(shape), kv), backward_room);
    const std::vector<T> host_out = part_out.host(), host_dq = dq.host(), host_dkv = dkv.host(),
                         host_lse = lse.host();
    for (std::int64_t r = 0; r < rows; ++r) {
      // A library may sum in another order.
      const bool is_exact = std::is_same<T, float>::value && math::is_partition_invariant<T>();
      const double most = is_exact ? 0.0 : tolerance<T>;
      for (std::int64_t j = 0; j < out; ++j)
        EXPECT_NEAR(host_out[r * out + j], whole_out[row_of(r) * out + j], most) << r;
      for (std::int64_t j = 0; j < query; ++j)
        EXPECT_NEAR(host_dq[r * query + j], whole_dqkv[row_of(r) * all + j], most) << r;
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const std::int64_t s = r / of_part, place = row_of(r) % shape.tokens;
        EXPECT_NEAR(host_lse[(s * shape.heads + h) * of_part + r % of_part],
                    whole_lse[(s * shape.heads + h) * shape.tokens + place], tolerance<T>);
      }
    }
    for (std::size_t i = 0; i < dkv_sum.size(); ++i) dkv_sum[i] += host_dkv[i];
    all_dkv.push_back(host_dkv);
  }
  for (std::int64_t r = 0; r < rows_of(shape); ++r)
    for (std::int64_t j = 0; j < kv; ++j)
      EXPECT_NEAR(dkv_sum[r * kv + j], whole_dqkv[r * all + query + j], 10 * tolerance<T>);
  return all_dkv;
}

TYPED_TEST(AttentionTest, PartsOfSequencesAreThoseOfTheWhole) {
  expect_parts_of<TypeParam>({2, 24, 3, 1, 5}, 2);
  expect_parts_of<TypeParam>({1, 24, 2, 2, 8}, 3);
  expect_parts_of<TypeParam>({2, 16, 4, 2, 6}, 4);
  expect_parts_of<TypeParam>({1, 512, 2, 1, 16}, 2);
  expect_parts_of<TypeParam>({1, 600, 2, 1, 16}, 4);
  expect_parts_of<TypeParam>({1, 64, 2, 1, 16}, 1);
  expect_parts_of<TypeParam>({2, 48, 2, 1, 4}, 1, 3);
  expect_parts_of<TypeParam>({2, 48, 4, 2, 4}, 2, 4);
  expect_parts_of<TypeParam>({2, 48, 4, 2, 4, {0, 0, 5}}, 2, 4);
  expect_parts_of<TypeParam>({1, 600, 2, 1, 16, {0.2, 0, 64}}, 2);
  expect_parts_of<TypeParam>({1, 600, 2, 1, 16, {0, 2.0, 40, 2}}, 4);
  expect_parts_of<TypeParam>({1, 640, 2, 1, 16, {0, 0, 100, 4, 1}}, 1, 4);
  expect_parts_of<TypeParam>({2, 48, 4, 2, 6, {}, 4}, 2, 4);
  expect_parts_of<TypeParam>({1, 600, 2, 1, 24, {}, 40}, 2);
}

TEST(Attention, PiecesOfSequencesAreSummedByOneTree) {
  for (const AttentionShape& shape : {AttentionShape{2, 64, 4, 2, 6},
                                      {1, 1040, 2, 2, 16},
                                      {1, 1040, 2, 2, 16, {0, 1.5, 200, 2}},
                                      {1, 528, 2, 2, 24, {}, 16},
                                      {2, 64, 4, 2, 6, {0, 0, 7}}}) {
    const std::vector<float> one_part = expect_parts_of<float>(shape, 1, 8).front();
    for (const std::int64_t parts : {2, 4, 8}) {
      std::vector<std::vector<float>> all = expect_parts_of<float>(shape, parts, 8 / parts);
      math::sum_pieces(
          parts, [&](std::int64_t slot, std::int64_t part) { all[slot] = all[part]; },
          [&](std::int64_t from, std::int64_t to) {
            for (std::size_t i = 0; i < all[to].size(); ++i) all[to][i] += all[from][i];
          });
      EXPECT_EQ(all.front(), one_part) << parts << " parts";
    }
  }
}

TEST(SequenceParts, OrderIsTurnedAndTurnedBack) {
  for (const math::SequenceParts sequence :
       {math::SequenceParts{12, 1}, math::SequenceParts{12, 2}, math::SequenceParts{12, 3},
        math::SequenceParts{12, 1, 3}, math::SequenceParts{24, 2, 3}}) {
    const std::int64_t rows = 2 * sequence.tokens, columns = 3;
    std::vector<float> values(rows * columns);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const DeviceArray<float> in_order(values), by_part(rows * columns), back(rows * columns);
    math::put_by_part<float, float>(Exec(), sequence, in_order.matrix(rows, columns),
                                    by_part.matrix(rows, columns));
    math::put_in_order<float>(Exec(), sequence, by_part.matrix(rows, columns),
                              back.matrix(rows, columns));
    EXPECT_EQ(back.host(), values);
    // The first row of the second part of the second sequence.
    if (sequence.parts == 2 && sequence.pieces == 1) {
      EXPECT_EQ(by_part.host()[(12 + 6) * columns], values[(12 + 3) * columns]);
      EXPECT_EQ(by_part.host()[(12 + 6 + 3) * columns], values[(12 + 6) * columns]);
    }
  }
  EXPECT_THROW(math::put_in_order<float>(Exec(), {10, 2}, View<float**>(nullptr, 10, 1),
                                         View<float**>(nullptr, 10, 1)),
               Error);
}

}  // namespace
