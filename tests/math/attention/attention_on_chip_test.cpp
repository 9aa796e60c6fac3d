// SPDX-License-Identifier: Apache-2.0
// 16-bit attention with heads of 64 and 128, which is computed on chip if there are tiles
// (matrix_tile.hpp). In other forms of kernels the same tests use products.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/matrix_tile.hpp>

#include "math/attention/attention_reference.hpp"
#include "math/half_kernels.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using halves::Doubles;
using halves::one_store;
using test::converted;
using test::DeviceArray;
using test::random_values;
using test::same_bits;

// A simulation on the host of a warp on CUDA: lanes as in WarpTileLayout, instructions as the PTX
// ISA describes them. Matrices have 16 x 16 elements.
using Matrix = std::array<std::array<double, 16>, 16>;
using Registers = std::array<std::array<std::array<double, 2>, 4>, 32>;  // lane, register, half
using Sums = std::array<std::array<double, 8>, 32>;                      // lane, element

Matrix random_matrix(std::uint64_t seed) {
  const Doubles values = random_values<double>(256, seed);
  Matrix x;
  for (int i = 0; i < 256; ++i) x[i / 16][i % 16] = std::round(8 * values[i]);
  return x;
}

/// Simulates ldmatrix.x4: for matrix j, lane 8 j + i gives the address of row i. Lane l gets two
/// neighbours of row l / 4, or with .trans of column l / 4.
template <class Row, class Column>
Registers ldmatrix(const Matrix& x, const Row& row, const Column& column, bool transposed) {
  Registers loaded;
  for (int lane = 0; lane < 32; ++lane)
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h) {
        const int i = transposed ? lane % 4 * 2 + h : lane / 4;
        const int k = transposed ? lane / 4 : lane % 4 * 2 + h;
        loaded[lane][j][h] = x[row(8 * j + i)][column(8 * j + i) + k];
      }
  return loaded;
}

/// Simulates mma.m16n8k16 for both halves of a right operand, with the ISA's fragment layout.
Sums mma_twice(const Registers& left, const Registers& right) {
  Matrix a, b;
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane >> 2, thread = lane % 4;
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      a[row][thread * 2 + (i & 1) + (i < 4 ? 0 : 8)] = left[lane][i / 2][i % 2];
    }
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 4; ++i)
        b[thread * 2 + (i & 1) + (i < 2 ? 0 : 8)][8 * half + group] =
            right[lane][2 * half + i / 2][i % 2];
  }
  Sums sums;
  for (int lane = 0; lane < 32; ++lane)
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 4; ++i) {
        const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8;
        double sum = 0;
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][8 * half + lane % 4 * 2 + (i & 1)];
        sums[lane][4 * half + i] = sum;
      }
  return sums;
}

/// Returns the sums by the layout that kernels use.
Matrix gathered(const Sums& sums) {
  using Layout = WarpTileLayout;
  Matrix x;
  for (auto& row : x) row.fill(std::numeric_limits<double>::quiet_NaN());
  for (int lane = 0; lane < Layout::lanes; ++lane)
    for (int r = 0; r < Layout::rows; ++r)
      for (int c = 0; c < Layout::columns; ++c)
        x[Layout::row(lane, r)][Layout::column(lane, c)] = sums[lane][Layout::element(r, c)];
  return x;
}

Registers left_of(const Matrix& x) {
  return ldmatrix(x, WarpTileLayout::load_row, WarpTileLayout::load_column, false);
}
Registers right_of(const Matrix& x) {
  return ldmatrix(x, WarpTileLayout::load_row, WarpTileLayout::load_column, true);
}
Registers right_transposed_of(const Matrix& x) {
  return ldmatrix(x, WarpTileLayout::load_row_transposed, WarpTileLayout::load_column_transposed,
                  false);
}

Matrix product(const Matrix& a, const Matrix& b, bool b_transposed) {
  Matrix c{};
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j)
      for (int k = 0; k < 16; ++k) c[i][j] += a[i][k] * (b_transposed ? b[j][k] : b[k][j]);
  return c;
}

TEST(MatrixTile, ProductsOfAWarpAreThoseOfPlainLoops) {
  const Matrix a = random_matrix(1), b = random_matrix(2);
  EXPECT_EQ(gathered(mma_twice(left_of(a), right_of(b))), product(a, b, false));
  EXPECT_EQ(gathered(mma_twice(left_of(a), right_transposed_of(b))), product(a, b, true));
}

TEST(MatrixTile, SumsOfAWarpBecomeALeftOperand) {
  const Matrix a = random_matrix(3), b = random_matrix(4), c = random_matrix(5);
  const Sums sums = mma_twice(left_of(a), right_of(b));
  Registers left;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 8; ++i) left[lane][i / 2][i % 2] = sums[lane][i];  // as SumTile::as_left
  EXPECT_EQ(gathered(mma_twice(left, right_of(c))), product(product(a, b, false), c, false));
}

TEST(MatrixTile, LanesThatShareARowAreNeighbours) {
  using Layout = WarpTileLayout;
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < Layout::rows; ++r) {
      // TileRows::combine_lanes exchanges with these lanes.
      for (const int other : {lane ^ 1, lane ^ 2})
        EXPECT_EQ(Layout::row(lane, r), Layout::row(other, r));
      EXPECT_EQ(Layout::is_first_of_row(lane), lane % 4 == 0);
    }
}

#if OSTRAKON_MATRIX_TILES
/// Runs body(rows) for rows of both widths.
template <class Body>
void for_both_widths(const Body& body) {
  std::vector<bf16> memory(32 * 128);
  body(SharedRows<bf16, 64>(memory.data()));
  body(SharedRows<bf16, 128>(memory.data()));
}

TEST(MatrixTile, RowsInSharedMemoryHaveNoBankConflicts) {
  for_both_widths([](auto rows) {
    constexpr int width = 8 * decltype(rows)::groups;
    for (int column = 0; column < width; column += 8)
      for (int row = 0; row < 16; row += 8) {
        std::array<bool, 8> used{};  // eight times four banks
        for (int i = 0; i < 8; ++i) {
          const auto place = rows.at(row + i, column) - rows.at(0, 0);
          EXPECT_EQ(place / width, row + i);
          EXPECT_FALSE(std::exchange(used[place / 8 % 8], true));
        }
      }
  });
}

// The address of a lane's row in any tile, computed by load_matrices from that in the first tile.
TEST(MatrixTile, TilesInSharedMemoryAreFoundFromTheFirst) {
  for_both_widths([](auto rows) {
    constexpr int width = 8 * decltype(rows)::groups;
    const auto bytes = [&](int row, int column) {
      return 2 * (rows.at(row, column) - rows.at(0, 0));
    };
    for (int row = 0; row < 32; row += 16)
      for (int column = 0; column < width; column += 16)
        for (int lane_row = 0; lane_row < 16; ++lane_row)
          for (const int lane_column : {0, 8})
            EXPECT_EQ(
                bytes(row + lane_row, column + lane_column),
                (bytes(lane_row, lane_column) ^ (2 * column)) + row * decltype(rows)::row_bytes);
  });
}
#endif

using test::attention::AttentionReference;
using test::attention::rows_of;

std::int64_t all_columns(const AttentionShape& s) { return s.query_columns() + s.kv_columns(); }

/// Returns random values that T holds exactly.
template <class T>
std::vector<T> inputs(std::int64_t count, std::uint64_t seed, double scale = 1) {
  std::vector<double> values = random_values<double>(count, seed);
  std::vector<T> rounded;
  for (const double value : values) rounded.push_back(T(scale * value));
  return rounded;
}

/// Checks that the root mean square of differences is at most `stores` roundings of that of the
/// values, and that no difference exceeds four times that for the largest value.
template <class T, class A>
void expect_close(const char* what, const std::vector<A>& found, const Doubles& expected,
                  double stores) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double square = 0, of_difference = 0, largest = 0, largest_difference = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double difference = static_cast<double>(static_cast<float>(found[i])) - expected[i];
    if (!std::isfinite(difference)) FAIL() << what << " " << i << " is not finite";
    square += expected[i] * expected[i];
    of_difference += difference * difference;
    largest = std::max(largest, std::abs(expected[i]));
    largest_difference = std::max(largest_difference, std::abs(difference));
  }
  const double most = stores * one_store<T>;
  EXPECT_LE(std::sqrt(of_difference), most * std::sqrt(square)) << what;
  EXPECT_LE(largest_difference, 4 * most * largest) << what;
}

/// The arrays of one attention; outputs begin as NaN. `shift`: misalignment of all arrays in
/// elements.
template <class T>
struct Attention {
  AttentionShape shape;
  std::int64_t shift;
  DeviceArray<T> qkv_, out_, dqkv_;
  DeviceArray<float> log_sum_exp;

  static T nan() { return T(std::numeric_limits<float>::quiet_NaN()); }

  DeviceArray<T> sinks = DeviceArray<T>(0);  ///< none, or one for each head

  Attention(const AttentionShape& s, std::vector<T> qkv, std::int64_t shift_ = 0)
      : shape(s),
        shift(shift_),
        qkv_(shifted(std::move(qkv), shift)),
        out_(rows_of(s) * s.out_columns() + shift, nan()),
        dqkv_(rows_of(s) * all_columns(s) + shift, nan()),
        log_sum_exp(rows_of(s) * s.heads) {}

  static std::vector<T> shifted(std::vector<T> values, std::int64_t by) {
    values.insert(values.begin(), by, nan());
    return values;
  }
  View<T**> matrix(const DeviceArray<T>& x, std::int64_t columns) const {
    return x.view().range(shift, x.size()).matrix(rows_of(shape), columns);
  }
  View<T**> qkv() const { return matrix(qkv_, all_columns(shape)); }
  View<T**> out() const { return matrix(out_, shape.out_columns()); }
  View<T**> dqkv() const { return matrix(dqkv_, all_columns(shape)); }
  std::vector<T> host(const DeviceArray<T>& x) const {
    const std::vector<T> all = x.host();
    return {all.begin() + shift, all.end()};
  }

  void forward(std::int64_t begin, std::int64_t end) const {
    const DeviceArray<T> room(attention_forward_workspace<T>(shape), nan());
    attention_forward<T>(Exec(), shape, qkv(), begin, end, out(), log_sum_exp, room,
                         sinks.size() > 0 ? View<const T*>(sinks) : View<const T*>());
    Exec().fence();
  }
  void backward(const std::vector<T>& dout) const {
    const DeviceArray<T> room(attention_backward_workspace<T>(shape) + 1, nan()),
        given(shifted(dout, shift));
    attention_backward<T>(Exec(), shape, qkv(), out(), log_sum_exp,
                          matrix(given, shape.out_columns()), dqkv(),
                          room.view().range(0, room.size() - 1));
    EXPECT_TRUE(std::isnan(static_cast<float>(room.host().back()))) << "beyond the workspace";
  }
};

template <class T>
class AttentionOnChip : public ::testing::Test {};
TYPED_TEST_SUITE(AttentionOnChip, halves::Halves);

/// Shapes of both widths, less and more than a tile of queries, incomplete tiles, grouped heads.
std::vector<AttentionShape> shapes() {
  return {{1, 1, 1, 1, 64},  {2, 15, 2, 1, 128}, {1, 64, 1, 1, 64},
          {1, 65, 3, 1, 64}, {2, 97, 4, 2, 64},  {1, 150, 2, 1, 128}};
}

TYPED_TEST(AttentionOnChip, AgreesWithPlainLoops) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes())
    for (const double scale : {1.0, 4.0}) {
      SCOPED_TRACE(
          text("tokens ", shape.tokens, ", width ", shape.head_width, ", values to ", scale));
      const std::vector<T> qkv = inputs<T>(rows_of(shape) * all_columns(shape), 1, scale);
      const std::vector<T> dout = inputs<T>(rows_of(shape) * shape.out_columns(), 2);
      const Attention<T> attention(shape, qkv);
      attention.forward(0, shape.tokens);
      attention.backward(dout);
      AttentionReference expected(shape, converted<double>(converted<float>(qkv)));
      const Doubles dqkv = expected.backward(converted<double>(converted<float>(dout)));
      expect_close<T>("out", attention.host(attention.out_), expected.out, 1);
      expect_close<T>("dqkv", attention.host(attention.dqkv_), dqkv, 2);
      const std::vector<float> sums = attention.log_sum_exp.host();
      EXPECT_LE(test::largest_difference(sums, expected.log_sum_exp), 1e-5);
    }
}

/// Windows of less than a tile, of one and of more; caps, slopes and values that are narrower than
/// keys, which are not on chip.
std::vector<AttentionShape> shapes_of_scores() {
  return {{1, 70, 2, 1, 64, {0.3}},         {2, 97, 2, 2, 128, {0, 0, 1}},
          {1, 200, 2, 1, 64, {0, 0, 17}},   {1, 200, 2, 1, 128, {0, 0, 64}},
          {1, 300, 2, 1, 64, {0.1, 0, 65}}, {1, 260, 4, 2, 64, {0, 0, 130}},
          {1, 150, 2, 1, 64, {0, 1.5, 9}},  {1, 150, 3, 1, 128, {0.1, 2.0, 0, 6, 3}},
          {1, 150, 4, 2, 128, {}, 64}};
}

TYPED_TEST(AttentionOnChip, ScoresAgreeWithPlainLoops) {
  using T = TypeParam;
  for (const AttentionShape& shape : shapes_of_scores())
    for (const bool has_sinks : {false, true}) {
      SCOPED_TRACE(text("tokens ", shape.tokens, ", width ", shape.head_width, ", window ",
                        shape.scores.window, has_sinks ? ", sinks" : ""));
      const std::vector<T> qkv = inputs<T>(rows_of(shape) * all_columns(shape), 11, 2);
      const std::vector<T> dout = inputs<T>(rows_of(shape) * shape.out_columns(), 12);
      const std::vector<T> sinks = inputs<T>(has_sinks ? shape.heads : 0, 13, 3);
      Attention<T> attention(shape, qkv);
      attention.sinks = DeviceArray<T>(sinks);
      attention.forward(0, shape.tokens);
      attention.backward(dout);
      AttentionReference expected(shape, converted<double>(converted<float>(qkv)),
                                  converted<double>(converted<float>(sinks)));
      const Doubles dqkv = expected.backward(converted<double>(converted<float>(dout)));
      expect_close<T>("out", attention.host(attention.out_), expected.out, 1);
      expect_close<T>("dqkv", attention.host(attention.dqkv_), dqkv, 2);
      EXPECT_LE(test::largest_difference(attention.log_sum_exp.host(), expected.log_sum_exp), 1e-5);
    }
}

TYPED_TEST(AttentionOnChip, BitsOfAQueryDoNotDependOnItsCompany) {
  using T = TypeParam;
  for (const std::int64_t window : {0, 20, 70}) {
    const AttentionShape shape{2, 150, 2, 1, 64, {0, 0, window}};
    if (!attention_on_chip<T>(shape)) GTEST_SKIP() << "libraries sum as they like";
    const std::vector<T> qkv = inputs<T>(rows_of(shape) * all_columns(shape), 3, 2);
    const Attention<T> whole(shape, qkv), ranges(shape, qkv), shifted(shape, qkv, 1);
    whole.forward(0, shape.tokens);
    std::int64_t begin = 0;
    for (const std::int64_t end : {1, 2, 19, 62, 63, 64, 130, 150}) {
      ranges.forward(begin, end);
      begin = end;
    }
    shifted.forward(0, shape.tokens);
    for (const Attention<T>* other : {&ranges, &shifted}) {
      EXPECT_TRUE(same_bits(other->host(other->out_), whole.host(whole.out_)));
      EXPECT_TRUE(same_bits(other->log_sum_exp.host(), whole.log_sum_exp.host()));
    }
    const std::vector<T> dout = inputs<T>(rows_of(shape) * shape.out_columns(), 4);
    whole.backward(dout);
    shifted.backward(dout);
    EXPECT_TRUE(same_bits(shifted.host(shifted.dqkv_), whole.host(whole.dqkv_)));
  }
}

/// The second sequence is computed alone, and with half of the heads.
TYPED_TEST(AttentionOnChip, BitsDoNotDependOnOtherSequencesAndHeads) {
  using T = TypeParam;
  const AttentionShape two{2, 90, 4, 2, 64}, one{1, 90, 2, 1, 64};
  if (!attention_on_chip<T>(two)) GTEST_SKIP() << "libraries sum as they like";
  const std::vector<T> qkv = inputs<T>(rows_of(two) * all_columns(two), 5, 2);
  const std::vector<T> dout = inputs<T>(rows_of(two) * two.out_columns(), 6);
  // Heads [first, first + count) of the second sequence.
  const auto heads = [&](const std::vector<T>& x, std::int64_t columns,
                         const std::vector<std::int64_t>& of) {
    std::vector<T> some;
    for (std::int64_t row = two.tokens; row < rows_of(two); ++row)
      for (const std::int64_t head : of)
        for (std::int64_t d = 0; d < 64; ++d) some.push_back(x[row * columns + head * 64 + d]);
    return some;
  };
  const Attention<T> all(two, qkv), alone(one, heads(qkv, all_columns(two), {2, 3, 5, 7}));
  all.forward(0, two.tokens);
  all.backward(dout);
  alone.forward(0, one.tokens);
  alone.backward(heads(dout, two.out_columns(), {2, 3}));
  EXPECT_TRUE(
      same_bits(alone.host(alone.out_), heads(all.host(all.out_), two.out_columns(), {2, 3})));
  EXPECT_TRUE(same_bits(alone.host(alone.dqkv_),
                        heads(all.host(all.dqkv_), all_columns(two), {2, 3, 5, 7})));
}

TYPED_TEST(AttentionOnChip, QueriesSeeNoLaterTokensAndTouchNoOtherRows) {
  using T = TypeParam;
  const AttentionShape shape{2, 100, 2, 1, 64};
  std::vector<T> qkv = inputs<T>(rows_of(shape) * all_columns(shape), 7);
  constexpr std::int64_t begin = 37, end = 71;
  const Attention<T> before(shape, qkv);
  before.forward(begin, end);
  for (std::int64_t row = 0; row < rows_of(shape); ++row)
    if (row % shape.tokens >= end)
      std::fill_n(qkv.begin() + row * all_columns(shape), all_columns(shape), Attention<T>::nan());
  const Attention<T> after(shape, qkv);
  after.forward(begin, end);
  const std::vector<T> out = after.host(after.out_);
  EXPECT_TRUE(same_bits(before.host(before.out_), out));
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
    const std::int64_t token = i / shape.out_columns() % shape.tokens;
    ASSERT_EQ(std::isnan(static_cast<float>(out[i])), token < begin || token >= end) << i;
  }
  const std::vector<float> sums = after.log_sum_exp.host();
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(sums.size()); ++i)
    ASSERT_EQ(std::isnan(sums[i]), i % shape.tokens < begin || i % shape.tokens >= end) << i;
}

TYPED_TEST(AttentionOnChip, LargeScoresDoNotOverflow) {
  using T = TypeParam;
  const AttentionShape shape{1, 70, 1, 1, 128};
  const Attention<T> attention(shape, inputs<T>(rows_of(shape) * all_columns(shape), 8, 100));
  attention.forward(0, shape.tokens);
  attention.backward(std::vector<T>(rows_of(shape) * shape.out_columns(), T(1.0f / 64)));
  for (const T value : attention.host(attention.out_))
    EXPECT_LE(std::abs(static_cast<float>(value)), 101);
  for (const T value : attention.host(attention.dqkv_))
    EXPECT_TRUE(std::isfinite(static_cast<float>(value)));
}

/// Computes each part of the sequences separately, with keys and values of all. Returns the
/// gradients of keys and values from each part's queries.
template <class T>
std::vector<std::vector<float>> expect_parts_of(const AttentionShape& shape, std::int64_t parts,
                                                std::int64_t pieces) {
  SCOPED_TRACE(text(shape.tokens, " tokens in ", parts, " parts of ", pieces, " pieces"));
  const SequenceParts sequence{shape.tokens, parts, pieces};
  const std::int64_t of_part = sequence.part_tokens(), rows = shape.batch * of_part;
  const std::int64_t q = shape.out_columns(), kv = shape.kv_columns(), all = all_columns(shape);
  const std::vector<T> qkv = inputs<T>(rows_of(shape) * all, 21, 2);
  const std::vector<T> dout = inputs<T>(rows_of(shape) * q, 22);
  const Attention<T> whole(shape, qkv);
  whole.forward(0, shape.tokens);
  whole.backward(dout);
  const std::vector<T> whole_out = whole.host(whole.out_), whole_dqkv = whole.host(whole.dqkv_);
  const std::vector<float> whole_sums = whole.log_sum_exp.host();
  const DeviceArray<T> kv_of_all(rows_of(shape) * kv, T(0.0f));
  copy_rows<T, T>(Exec(), whole.qkv().column_range(q, all), kv_of_all.matrix(rows_of(shape), kv));

  std::vector<std::vector<float>> all_dkv;
  Doubles dkv_sum(rows_of(shape) * kv, 0.0);
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto row_of = [&](std::int64_t row) {
      return row / of_part * shape.tokens + sequence.position(part, row % of_part);
    };
    // Returns the part's rows, of the first columns of x.
    const auto rows_of_part = [&](const std::vector<T>& x, std::int64_t columns) {
      std::vector<T> some;
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < q; ++j) some.push_back(x[row_of(r) * columns + j]);
      return some;
    };
    const T nan = Attention<T>::nan();
    const DeviceArray<T> device_q(rows_of_part(qkv, all)), device_dout(rows_of_part(dout, q)),
        out(rows * q, nan), dq(rows * q, nan),
        forward_room(attention_forward_workspace<T>(shape), nan),
        backward_room(attention_backward_workspace<T>(shape, pieces), nan);
    const DeviceArray<float> sums(rows * shape.heads), dkv(rows_of(shape) * kv);
    const AttentionQueries queries{sequence, part};
    attention_forward<T>(Exec(), shape, queries, device_q.matrix(rows, q),
                         kv_of_all.matrix(rows_of(shape), kv), out.matrix(rows, q), sums,
                         forward_room);
    attention_backward<T>(Exec(), shape, queries, device_q.matrix(rows, q),
                          kv_of_all.matrix(rows_of(shape), kv), out.matrix(rows, q), sums,
                          device_dout.matrix(rows, q), dq.matrix(rows, q),
                          dkv.matrix(rows_of(shape), kv), backward_room);
    const bool on_chip = attention_on_chip<T>(shape);
    if (on_chip) {
      EXPECT_TRUE(same_bits(out.host(), rows_of_part(whole_out, q)));
      EXPECT_TRUE(same_bits(dq.host(), rows_of_part(whole_dqkv, all)));
    } else {
      expect_close<T>("out", out.host(), converted<double>(rows_of_part(whole_out, q)), 2);
      expect_close<T>("dq", dq.host(), converted<double>(rows_of_part(whole_dqkv, all)), 2);
    }
    const std::vector<float> host_sums = sums.host();
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const float expected =
            whole_sums[(r / of_part * shape.heads + h) * shape.tokens + row_of(r) % shape.tokens];
        const float found = host_sums[(r / of_part * shape.heads + h) * of_part + r % of_part];
        if (on_chip)
          EXPECT_EQ(found, expected);
        else
          EXPECT_NEAR(found, expected, 1e-5);
      }
    all_dkv.push_back(dkv.host());
    for (std::size_t i = 0; i < dkv_sum.size(); ++i) dkv_sum[i] += all_dkv.back()[i];
  }
  std::vector<T> whole_dkv;
  for (std::int64_t r = 0; r < rows_of(shape); ++r)
    whole_dkv.insert(whole_dkv.end(), whole_dqkv.begin() + r * all + q,
                     whole_dqkv.begin() + (r + 1) * all);
  expect_close<T>("dkv", whole_dkv, dkv_sum, 2);
  return all_dkv;
}

TYPED_TEST(AttentionOnChip, PartsOfSequencesAreThoseOfTheWhole) {
  using T = TypeParam;
  expect_parts_of<T>({2, 96, 2, 1, 64}, 1, 1);
  expect_parts_of<T>({2, 96, 2, 1, 64}, 2, 1);
  expect_parts_of<T>({1, 168, 2, 2, 64}, 3, 1);
  expect_parts_of<T>({1, 300, 1, 1, 64}, 2, 1);
  expect_parts_of<T>({1, 96, 2, 1, 128}, 1, 3);
  expect_parts_of<T>({1, 300, 2, 1, 64, {0, 0, 40}}, 2, 1);
  expect_parts_of<T>({1, 480, 2, 1, 64, {0.1, 0, 100}}, 2, 3);
  expect_parts_of<T>({1, 300, 2, 1, 64, {0, 2.0, 40, 2}}, 2, 1);
}

TYPED_TEST(AttentionOnChip, PiecesOfSequencesAreSummedByOneTree) {
  using T = TypeParam;
  for (const std::int64_t window : {0, 30}) {
    const AttentionShape shape{2, 176, 4, 2, 64, {0, 0, window}};
    const std::vector<float> one_part = expect_parts_of<T>(shape, 1, 8).front();
    for (const std::int64_t parts : {2, 8}) {
      std::vector<std::vector<float>> all = expect_parts_of<T>(shape, parts, 8 / parts);
      sum_pieces(
          parts, [&](std::int64_t slot, std::int64_t part) { all[slot] = all[part]; },
          [&](std::int64_t from, std::int64_t to) {
            for (std::size_t i = 0; i < all[to].size(); ++i) all[to][i] += all[from][i];
          });
      EXPECT_EQ(all.front(), one_part) << parts << " parts";
    }
  }
}

TYPED_TEST(AttentionOnChip, NeedsNoRoomForScoresAndThreeKernels) {
  using T = TypeParam;
  const AttentionShape shape{2, 100, 8, 2, 128};
  if (!attention_on_chip<T>(shape)) GTEST_SKIP() << "through products";
  EXPECT_FALSE(attention_on_chip<T>({2, 100, 8, 2, 96}));
  EXPECT_TRUE(attention_on_chip<T>({2, 100, 8, 2, 128, {0.1, 0, 7}}));
  EXPECT_FALSE(attention_on_chip<T>({2, 100, 8, 2, 128, {0, 1.0}}));
  EXPECT_FALSE(attention_on_chip<T>({2, 100, 8, 2, 128, {0, 0, 0, 8}}));
  EXPECT_FALSE(attention_on_chip<float>(shape));
  EXPECT_EQ(attention_forward_workspace<T>(shape), 0);
  EXPECT_EQ(attention_backward_workspace<T>(shape), 2 * rows_of(shape) * shape.heads + 1);
  const Attention<T> attention(shape, inputs<T>(rows_of(shape) * all_columns(shape), 9));
  const LaunchCount count;
  attention.forward(0, shape.tokens);
  EXPECT_EQ(count.launches(), 1);
  attention.backward(inputs<T>(rows_of(shape) * shape.out_columns(), 10));
  EXPECT_EQ(count.launches(), 3);
}

}  // namespace
}  // namespace ostrakon::math
