// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/piece_tree.hpp>

#include "math/check_gradient.hpp"
#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::DeviceArray;
using test::random_values;
using test::same_bits;

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

// Positions restart at the begin of each document: in both ways to add them, and where they are
// looked up for their gradient.
TEST(Embedding, PositionsRestartInDocuments) {
  for (const Case& c : all_cases) {
    if (!c.positions) continue;
    std::vector<std::int32_t> begins, positions;
    for (std::int64_t r = 0; r < c.rows(); ++r) {
      const std::int64_t token = r % c.tokens, of_document = token % (r / c.tokens + 2);
      begins.push_back(static_cast<std::int32_t>(c.first_position + token - of_document));
      positions.push_back(static_cast<std::int32_t>(of_document));
    }
    const std::vector<float> token = random_values<float>(c.vocabulary * c.width, 1);
    const std::vector<float> table = random_values<float>(c.table_rows() * c.width, 2);
    const DeviceArray<std::int32_t> id(ids(c)), documents(begins), found(c.rows());
    const DeviceArray<float> tokens(token), rows(table), out(c.rows() * c.width),
        sum(std::vector<float>(c.rows() * c.width, 0.5f));
    embedding_forward<float>(
        Exec(), id, c.tokens, c.first_position, tokens.matrix(c.vocabulary, c.width),
        rows.matrix(c.table_rows(), c.width), out.matrix(c.rows(), c.width), documents);
    add_positions<float>(Exec(), c.tokens, c.first_position, rows.matrix(c.table_rows(), c.width),
                         sum.matrix(c.rows(), c.width), documents);
    find_positions(Exec(), c.tokens, c.first_position, documents, found);
    EXPECT_EQ(found.host(), positions);
    const std::vector<float> host_out = out.host(), host_sum = sum.host();
    for (std::int64_t r = 0; r < c.rows(); ++r)
      for (std::int64_t i = 0; i < c.width; ++i) {
        const float position = table[positions[r] * c.width + i];
        ASSERT_EQ(host_out[r * c.width + i], token[ids(c)[r] * c.width + i] + position);
        ASSERT_EQ(host_sum[r * c.width + i], 0.5f + position);
      }
  }
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
    // Exact equality is required, as rows are added in order.
    ASSERT_EQ(dtoken.host(), token);
    ASSERT_EQ(dposition.host(), position);
  }
}

TEST(Embedding, BackwardAddsRowsInOrder) {
  check_backward<double>();
  check_backward<float>();
}

// There are more rows than a team of a device searches at a time; one token is frequent, some have
// no rows.
TEST(Embedding, BackwardFindsAllRowsOfATokenInOrder) {
  constexpr std::int64_t rows = 5003, width = 21, words = 300, tokens = 1000;
  std::vector<std::int32_t> ids(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    ids[r] = r % 17 == 0 ? -1 : r % 3 == 0 ? 7 : static_cast<std::int32_t>(r * r % words);
  const std::vector<float> dout = random_values<float>(rows * width, 1);
  std::vector<float> dtokens(words * width, 0.25f), dpositions(tokens * width, 0.5f);
  const DeviceArray<std::int32_t> device_ids(ids);
  const DeviceArray<float> device_dout(dout), device_dtokens(dtokens),
      device_dpositions(dpositions);
  embedding_backward<float>(Exec(), device_ids, tokens, device_dout.matrix(rows, width),
                            device_dtokens.matrix(words, width),
                            device_dpositions.matrix(tokens, width));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = 0; j < width; ++j) {
      if (ids[r] >= 0) dtokens[ids[r] * width + j] += dout[r * width + j];
      dpositions[r % tokens * width + j] += dout[r * width + j];
    }
  EXPECT_EQ(device_dtokens.host(), dtokens);
  EXPECT_EQ(device_dpositions.host(), dpositions);
}

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

/// Returns the tree over all pieces of each token's sums, in plain loops.
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
    std::vector<std::int32_t> id(rows);  // some tokens are in all pieces, some in few, some in none
    for (std::int64_t r = 0; r < rows; ++r)
      id[r] = static_cast<std::int32_t>(r % 3 == 0 ? 0 : (r * r * 7 + r / 5) % (vocabulary - 2));
    const std::vector<float> dout = random_values<float>(rows * width, 5);
    const DeviceArray<std::int32_t> ids(id),
        workspace(embedding_by_piece_workspace(rows, vocabulary));
    const DeviceArray<float> dy(dout), dtoken(vocabulary * width, 0.0F);
    embedding_backward_by_piece<float>(Exec(), ids, {dy.data(), rows, width},
                                       {dtoken.data(), vocabulary, width}, pieces, workspace);
    EXPECT_EQ(dtoken.host(), tree_of_pieces(id, dout, vocabulary, width, pieces)) << pieces;

    // Rows 2 and 3 of each piece are used as positions.
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

/// A table of words is divided into pieces of `count` words, the last one perhaps fewer.
struct WordPiece {
  std::int64_t first, count;
};

std::vector<WordPiece> word_pieces(std::int64_t vocabulary, std::int64_t words) {
  std::vector<WordPiece> pieces;
  for (std::int64_t first = 0; first < vocabulary; first += words)
    pieces.push_back({first, std::min(words, vocabulary - first)});
  return pieces;
}

/// Returns random values; a part of the first row has zeros of both signs.
template <class T>
std::vector<T> table_with_zeros(std::int64_t rows, std::int64_t width, std::uint64_t seed) {
  std::vector<T> values = random_values<T>(rows * width, seed);
  for (std::int64_t i = 0; i < width; ++i)
    if (i % 4 < 3) values[i] = T(i % 2 == 0 ? -0.0F : 0.0F);
  return values;
}

template <class T>
class EmbeddingPieces : public ::testing::Test {};
using Elements = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(EmbeddingPieces, Elements);

TYPED_TEST(EmbeddingPieces, ForwardSomeWritesRowsOfItsWordsAlone) {
  using T = TypeParam;
  using C = compute_t<T>;
  for (const Case& c : all_cases) {
    const std::vector<std::int32_t> id = ids(c);
    const std::vector<T> table = random_values<T>(c.vocabulary * c.width, 1);
    const std::vector<C> before = random_values<C>(c.rows() * c.width, 2);
    const DeviceArray<std::int32_t> device_ids(id);
    const DeviceArray<T> words(table);
    for (const WordPiece& piece : word_pieces(c.vocabulary, 2)) {
      const DeviceArray<C> out(before);
      embedding_forward_some<T>(Exec(), device_ids, piece.first,
                                {words.data() + piece.first * c.width, piece.count, c.width},
                                out.matrix(c.rows(), c.width));
      std::vector<C> expected = before;
      for (std::int64_t r = 0; r < c.rows(); ++r)
        if (id[r] >= piece.first && id[r] < piece.first + piece.count)
          for (std::int64_t i = 0; i < c.width; ++i)
            expected[r * c.width + i] = table[id[r] * c.width + i];
      EXPECT_TRUE(same_bits(out.host(), expected)) << "words from " << piece.first << " on";
    }
  }
}

/// Each contribution begins with -0, which changes no number that it is added to: whichever rank
/// has a row's word, and whichever has a column of positions, the sum has the bits of the lookup.
TYPED_TEST(EmbeddingPieces, ContributionsSumUpToTheLookup) {
  using T = TypeParam;
  using C = compute_t<T>;
  const auto is_minus_zero = [](T value) { return value == T(0) && std::signbit(C(value)); };
  std::ptrdiff_t minus_zeros = 0;
  for (const Case& c : all_cases)
    for (const std::int64_t words : {1, 2, 100}) {
      const std::vector<T> token = table_with_zeros<T>(c.vocabulary, c.width, 1);
      const std::vector<T> position = table_with_zeros<T>(c.table_rows(), c.width, 2);
      const DeviceArray<std::int32_t> device_ids(ids(c));
      const DeviceArray<T> tokens(token), positions(position);
      const std::vector<WordPiece> pieces = word_pieces(c.vocabulary, words);
      const auto ranks = static_cast<std::int64_t>(pieces.size());
      std::vector<C> sum;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const DeviceArray<C> own(c.rows() * c.width, -C(0));
        const View<C**> all = own.matrix(c.rows(), c.width);
        const WordPiece& piece = pieces[rank];
        embedding_forward_some<T>(Exec(), device_ids, piece.first,
                                  {tokens.data() + piece.first * c.width, piece.count, c.width},
                                  all);
        const std::int64_t begin = rank * c.width / ranks, end = (rank + 1) * c.width / ranks;
        if (c.positions)
          add_positions<T>(Exec(), c.tokens, c.first_position,
                           positions.matrix(c.table_rows(), c.width).column_range(begin, end),
                           all.column_range(begin, end));
        const std::vector<C> values = own.host();
        if (rank == 0) sum = values;
        for (std::size_t i = 0; rank > 0 && i < sum.size(); ++i) sum[i] += values[i];
      }
      const std::vector<T> expected = forward(c, token, position);
      EXPECT_TRUE(same_bits(test::converted<T>(sum), expected)) << ranks << " ranks";
      minus_zeros += std::count_if(expected.begin(), expected.end(), is_minus_zero);
    }
  EXPECT_GT(minus_zeros, 0);
}

TYPED_TEST(EmbeddingPieces, PositionsAreAddedToSomeColumns) {
  using T = TypeParam;
  using C = compute_t<T>;
  constexpr std::int64_t rows = 7, tokens = 3, width = 11, table_rows = 5, first_position = 2;
  constexpr std::int64_t begin = 4, end = 9;
  const std::vector<T> position = random_values<T>(table_rows * width, 1);
  std::vector<C> expected = random_values<C>(rows * width, 2);
  const DeviceArray<T> table(position);
  const DeviceArray<C> out(expected);
  add_positions<T>(Exec(), tokens, first_position,
                   table.matrix(table_rows, width).column_range(begin, end),
                   out.matrix(rows, width).column_range(begin, end));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = begin; i < end; ++i)
      expected[r * width + i] += C(position[(first_position + r % tokens) * width + i]);
  EXPECT_TRUE(same_bits(out.host(), expected));
}

TEST(EmbeddingOfPieces, RefusesTablesThatDoNotFit) {
  const DeviceArray<std::int32_t> id(4, 0);
  const DeviceArray<float> table(20, 0.0F), out(20, 0.0F);
  const auto some = [&](std::int64_t rows, std::int64_t width) {
    embedding_forward_some<float>(Exec(), id, 0, table.matrix(5, width), out.matrix(rows, 3));
  };
  EXPECT_NO_THROW(some(4, 3));
  EXPECT_THROW(some(5, 3), Error);
  EXPECT_THROW(some(4, 2), Error);
  const auto add = [&](std::int64_t tokens, std::int64_t first, std::int64_t width) {
    add_positions<float>(Exec(), tokens, first, table.matrix(5, width), out.matrix(4, 3));
  };
  EXPECT_NO_THROW(add(4, 1, 3));
  EXPECT_NO_THROW(add(100, 1, 3));  // there are four rows
  EXPECT_THROW(add(4, 2, 3), Error);
  EXPECT_THROW(add(4, -1, 3), Error);
  EXPECT_THROW(add(0, 0, 3), Error);
  EXPECT_THROW(add(4, 0, 4), Error);
  const DeviceArray<std::int32_t> own(3, 0);
  EXPECT_THROW(find_own_words(Exec(), id, 0, 5, own), Error);
}

TEST(EmbeddingOfPieces, FindsOwnWords) {
  constexpr std::int32_t largest = std::numeric_limits<std::int32_t>::max();
  const DeviceArray<std::int32_t> id(std::vector<std::int32_t>{0, 6, 7, 8, 11, 12, 13, largest}),
      own(8, 99);
  find_own_words(Exec(), id, 7, 5, own);
  EXPECT_EQ(own.host(), (std::vector<std::int32_t>{-1, -1, 0, 1, 4, -1, -1, -1}));
  find_own_words(Exec(), id, largest, 1, own);
  EXPECT_EQ(own.host(), (std::vector<std::int32_t>{-1, -1, -1, -1, -1, -1, -1, 0}));
  find_own_words(Exec(), id, 7, 0, own);
  EXPECT_EQ(own.host(), std::vector<std::int32_t>(8, -1));
}

TEST(EmbeddingOfPieces, LeavesOutRowsWithoutAWord) {
  constexpr std::int64_t rows = 6, tokens = 3, width = 70, vocabulary = 4;
  const std::vector<std::int32_t> id = {-1, 2, -1, 2, 0, -1};
  const std::vector<float> dout = random_values<float>(rows * width, 1);
  std::vector<float> token = random_values<float>(vocabulary * width, 2);
  std::vector<float> position = random_values<float>(tokens * width, 3);
  const DeviceArray<std::int32_t> device_ids(id);
  const DeviceArray<float> dy(dout), dtoken(token), dposition(position);
  embedding_backward<float>(Exec(), device_ids, tokens, dy.matrix(rows, width),
                            dtoken.matrix(vocabulary, width), dposition.matrix(tokens, width));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < width; ++i) {
      if (id[r] >= 0) token[id[r] * width + i] += dout[r * width + i];
      position[r % tokens * width + i] += dout[r * width + i];
    }
  EXPECT_TRUE(same_bits(dtoken.host(), token));
  EXPECT_TRUE(same_bits(dposition.host(), position));

  const DeviceArray<std::int32_t> none(rows, -1),
      workspace(embedding_by_piece_workspace(rows, vocabulary));
  embedding_backward<float>(Exec(), none, tokens, dy.matrix(rows, width),
                            dtoken.matrix(vocabulary, width), {});
  embedding_backward_by_piece<float>(Exec(), none, dy.matrix(rows, width),
                                     dtoken.matrix(vocabulary, width), 2, workspace);
  EXPECT_TRUE(same_bits(dtoken.host(), token));
}

/// The gradients of tables with some of the words, concatenated, equal that of the whole table.
TEST(EmbeddingOfPieces, BackwardOfOwnWordsIsThatOfTheWholeTable) {
  constexpr std::int64_t rows = 96, vocabulary = 23, width = 70;
  std::vector<std::int32_t> id(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    id[r] = static_cast<std::int32_t>(r % 3 == 0 ? 5 : (r * r * 7 + r / 5) % vocabulary);
  const std::vector<float> before = random_values<float>(vocabulary * width, 4);
  const DeviceArray<std::int32_t> device_ids(id), own(rows, 0),
      workspace(embedding_by_piece_workspace(rows, vocabulary));
  const DeviceArray<float> dy(random_values<float>(rows * width, 5));
  const auto backward = [&](const DeviceArray<std::int32_t>& words, std::int64_t leaves,
                            View<float**> table) {
    if (leaves == 0)
      embedding_backward<float>(Exec(), words, rows, dy.matrix(rows, width), table, {});
    else
      embedding_backward_by_piece<float>(Exec(), words, dy.matrix(rows, width), table, leaves,
                                         workspace);
  };
  for (const std::int64_t leaves : {0, 1, 3, 8}) {
    const DeviceArray<float> whole(before);
    backward(device_ids, leaves, whole.matrix(vocabulary, width));
    for (const std::int64_t words : {1, 6, 12, 23}) {
      std::vector<float> joined;
      for (const WordPiece& piece : word_pieces(vocabulary, words)) {
        const auto begin = before.begin() + piece.first * width;
        const DeviceArray<float> some(std::vector<float>(begin, begin + piece.count * width));
        find_own_words(Exec(), device_ids, piece.first, piece.count, own);
        backward(own, leaves, some.matrix(piece.count, width));
        const std::vector<float> values = some.host();
        joined.insert(joined.end(), values.begin(), values.end());
      }
      EXPECT_TRUE(same_bits(joined, whole.host())) << leaves << " leaves, " << words << " words";
    }
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
