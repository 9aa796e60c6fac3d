// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/piece_tree.hpp>

#include "math/check_gradient.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;

struct Case {
  std::int64_t batch, tokens, vocabulary, width, first_position;
  bool positions;
  std::int64_t rows() const { return batch * tokens; }
  std::int64_t table_rows() const { return first_position + tokens; }
};

const Case all_cases[] = {
    {1, 1, 1, 1, 0, true},  {2, 3, 5, 7, 0, true},   {2, 3, 5, 7, 0, false},
    {1, 9, 4, 65, 2, true}, {3, 5, 2, 130, 0, true},
};

std::vector<std::int32_t> ids(const Case& c) {
  std::vector<std::int32_t> values(c.rows());
  for (std::int64_t r = 0; r < c.rows(); ++r)
    values[r] = static_cast<std::int32_t>((r * r + 3 * r + 1) % c.vocabulary);
  return values;
}

template <class T>
std::vector<T> forward(const Case& c, const std::vector<T>& token_table,
                       const std::vector<T>& position_table) {
  const DeviceArray<std::int32_t> id(ids(c));
  const DeviceArray<T> token(token_table);
  const DeviceArray<T> position(position_table);
  const DeviceArray<T> out(c.rows() * c.width);
  embedding_forward<T>(Exec(), id, c.tokens, c.first_position,
                       {token.data(), c.vocabulary, c.width},
                       {c.positions ? position.data() : nullptr, c.table_rows(), c.width},
                       {out.data(), c.rows(), c.width});
  return out.host();
}

template <class T>
void check_forward() {
  for (const Case& c : all_cases) {
    const std::vector<T> token = random_values<T>(c.vocabulary * c.width, 1);
    const std::vector<T> position = random_values<T>(c.table_rows() * c.width, 2);
    const std::vector<T> out = forward(c, token, position);
    const std::vector<std::int32_t> id = ids(c);
    for (std::int64_t r = 0; r < c.rows(); ++r)
      for (std::int64_t i = 0; i < c.width; ++i) {
        T expected = token[id[r] * c.width + i];
        if (c.positions) expected += position[(c.first_position + r % c.tokens) * c.width + i];
        ASSERT_EQ(out[r * c.width + i], expected);
      }
  }
}

TEST(Embedding, ForwardAgreesWithPlainLoops) {
  check_forward<double>();
  check_forward<float>();
}

template <class T>
void check_backward() {
  for (const Case& c : all_cases) {
    if (c.first_position != 0) continue;
    const std::vector<T> dout = random_values<T>(c.rows() * c.width, 3);
    std::vector<T> token = random_values<T>(c.vocabulary * c.width, 1);
    std::vector<T> position = random_values<T>(c.tokens * c.width, 2);
    const DeviceArray<std::int32_t> id(ids(c));
    const DeviceArray<T> dy(dout);
    const DeviceArray<T> dtoken(token);
    const DeviceArray<T> dposition(position);
    embedding_backward<T>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                          {dtoken.data(), c.vocabulary, c.width},
                          {c.positions ? dposition.data() : nullptr, c.tokens, c.width});
    const std::vector<std::int32_t> host_ids = ids(c);
    for (std::int64_t r = 0; r < c.rows(); ++r)
      for (std::int64_t i = 0; i < c.width; ++i) {
        token[host_ids[r] * c.width + i] += dout[r * c.width + i];
        if (c.positions) position[r % c.tokens * c.width + i] += dout[r * c.width + i];
      }
    // To the bit: rows are added in order.
    ASSERT_EQ(dtoken.host(), token);
    ASSERT_EQ(dposition.host(), position);
  }
}

TEST(Embedding, BackwardAddsRowsInOrder) {
  check_backward<double>();
  check_backward<float>();
}

/// The gradient of either table is the same where the other's is not wanted.
TEST(Embedding, LeavesOutGradientsThatAreNotWanted) {
  for (const Case& c : all_cases) {
    if (c.first_position != 0) continue;
    const std::vector<float> token = random_values<float>(c.vocabulary * c.width, 1);
    const std::vector<float> position = random_values<float>(c.tokens * c.width, 2);
    const DeviceArray<std::int32_t> id(ids(c));
    const DeviceArray<float> dy(random_values<float>(c.rows() * c.width, 3));
    const DeviceArray<float> dtoken(token), dposition(position), token_alone(token),
        position_alone(position);
    const auto backward = [&](float* token_gradient, float* position_gradient) {
      embedding_backward<float>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                                {token_gradient, c.vocabulary, c.width},
                                {position_gradient, c.tokens, c.width});
    };
    backward(dtoken.data(), dposition.data());
    backward(token_alone.data(), nullptr);
    backward(nullptr, position_alone.data());
    backward(nullptr, nullptr);
    ASSERT_NE(dtoken.host(), token);
    ASSERT_EQ(token_alone.host(), dtoken.host());
    ASSERT_EQ(position_alone.host(), dposition.host());
  }
}

/// The tree over all pieces of each token's sums, in plain loops.
std::vector<float> tree_of_pieces(const std::vector<std::int32_t>& id,
                                  const std::vector<float>& dout, std::int64_t vocabulary,
                                  std::int64_t width, std::int64_t pieces) {
  const auto rows = static_cast<std::int64_t>(id.size());
  std::vector<std::vector<float>> slots(tree_slots(pieces));
  sum_pieces(
      pieces,
      [&](std::int64_t slot, std::int64_t piece) {
        slots[slot].assign(vocabulary * width, 0.0F);
        for (std::int64_t r = piece * rows / pieces; r < (piece + 1) * rows / pieces; ++r)
          for (std::int64_t i = 0; i < width; ++i)
            slots[slot][id[r] * width + i] += dout[r * width + i];
      },
      [&](std::int64_t from, std::int64_t to) {
        for (std::size_t i = 0; i < slots[to].size(); ++i) slots[to][i] += slots[from][i];
      });
  return slots[0];
}

TEST(Embedding, BackwardByPieceIsTheTreeOverAllPieces) {
  for (const std::int64_t pieces : {1, 2, 3, 7, 8, 24}) {
    constexpr std::int64_t rows = 7 * 24, vocabulary = 40, width = 70;
    std::vector<std::int32_t> id(rows);  // some in all pieces, some in few, some in none
    for (std::int64_t r = 0; r < rows; ++r)
      id[r] = static_cast<std::int32_t>(r % 3 == 0 ? 0 : (r * r * 7 + r / 5) % (vocabulary - 2));
    const std::vector<float> dout = random_values<float>(rows * width, 5);
    const DeviceArray<std::int32_t> ids(id),
        workspace(embedding_by_piece_workspace(rows, vocabulary));
    const DeviceArray<float> dy(dout), dtoken(vocabulary * width, 0.0F);
    embedding_backward_by_piece<float>(Exec(), ids, {dy.data(), rows, width},
                                       {dtoken.data(), vocabulary, width}, pieces, workspace);
    EXPECT_EQ(dtoken.host(), tree_of_pieces(id, dout, vocabulary, width, pieces)) << pieces;

    // Rows 2 and 3 of each piece, as positions.
    const std::int64_t of_piece = rows / pieces;
    if (of_piece < 4) continue;
    const DeviceArray<float> dpositions(2 * width, 0.0F);
    embedding_positions_backward<float>(Exec(), {dy.data(), rows, width}, pieces, 2,
                                        {dpositions.data(), 2, width});
    std::vector<std::int32_t> position(2 * pieces);
    std::vector<float> some;
    for (std::int64_t p = 0; p < pieces; ++p)
      for (int i = 0; i < 2; ++i) {
        position[2 * p + i] = i;
        const auto row = dout.begin() + (p * of_piece + 2 + i) * width;
        some.insert(some.end(), row, row + width);
      }
    EXPECT_EQ(dpositions.host(), tree_of_pieces(position, some, 2, width, pieces)) << pieces;
  }
}

TEST(Embedding, BackwardAgreesWithFiniteDifferences) {
  const Case c = {2, 3, 5, 7, 0, true};
  std::vector<double> token = random_values<double>(c.vocabulary * c.width, 1);
  std::vector<double> position = random_values<double>(c.tokens * c.width, 2);
  const std::vector<double> dout = random_values<double>(c.rows() * c.width, 3);
  const DeviceArray<std::int32_t> id(ids(c));
  const DeviceArray<double> dy(dout);
  const DeviceArray<double> dtoken(token.size(), 0.0);
  const DeviceArray<double> dposition(position.size(), 0.0);
  embedding_backward<double>(Exec(), id, c.tokens, {dy.data(), c.rows(), c.width},
                             {dtoken.data(), c.vocabulary, c.width},
                             {dposition.data(), c.tokens, c.width});
  const auto loss = [&] { return test::weighted_sum(forward(c, token, position), dout); };
  EXPECT_TRUE(test::gradient_agrees("token", token, dtoken.host(), loss));
  EXPECT_TRUE(test::gradient_agrees("position", position, dposition.host(), loss));
}

}  // namespace
}  // namespace ostrakon::math
