// SPDX-License-Identifier: Apache-2.0
// Heads whose vocabulary is in pieces, on one rank and on several.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>

#include "math/linear_cross_entropy.hpp"

namespace {

using namespace ostrakon;
using namespace test::heads;
using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

using Scalars = ::testing::Types<float, double>;

template <class T>
class CrossEntropyPieces : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyPieces, Scalars);

/// The results of a head whose vocabulary is in pieces of `words` words. Each piece's weight is a
/// separate array, as on another rank.
template <class T>
struct HeadInPieces {
  const Head<T>& head;
  std::int64_t words;
  std::vector<T> statistics, losses, cross_entropies, margins, log_sums;
  std::vector<std::vector<T>> dx, dweight, dbias;  // per piece

  HeadInPieces(const Head<T>& whole, std::int64_t words_)
      : head(whole),
        words(words_),
        statistics(pieces() * of_piece() * whole.shape.rows),
        dx(pieces()),
        dweight(pieces()),
        dbias(pieces()) {}

  std::int64_t pieces() const { return (head.shape.vocabulary + words - 1) / words; }
  /// Statistics of a piece.
  std::int64_t of_piece() const { return math::piece_statistics(head.form.loss); }
  math::Targets<T> targets() const { return {head.targets, {}, head.loss()}; }
  std::int64_t count(std::int64_t piece) const {
    return std::min(words, head.shape.vocabulary - piece * words);
  }
  DeviceArray<T> weight_of(std::int64_t piece) const {
    const std::vector<T> all = head.weight.host();
    const auto begin = all.begin() + piece * words * head.shape.width;
    return DeviceArray<T>(std::vector<T>(begin, begin + count(piece) * head.shape.width));
  }
  /// What becomes of its logits.
  math::Logits<T> logits_of(std::int64_t piece) const {
    return head.logits().range(piece * words, piece * words + count(piece));
  }
  DeviceArray<T> workspace_of(std::int64_t piece, std::int64_t leaves) const {
    return DeviceArray<T>(math::cross_entropy_piece_workspace<T>(head.shape.rows, head.shape.width,
                                                                 count(piece), leaves));
  }

  void make_statistics(std::int64_t piece) {
    const DeviceArray<T> weight = weight_of(piece), workspace = workspace_of(piece, 1);
    const std::int64_t elements = of_piece() * head.shape.rows;
    const DeviceArray<T> made(elements);
    math::cross_entropy_statistics<T>(
        Exec(), head.by_row(head.x), weight.matrix(count(piece), head.shape.width), piece * words,
        targets(), made.matrix(of_piece(), head.shape.rows), workspace, logits_of(piece));
    const std::vector<T> values = made.host();
    std::copy(values.begin(), values.end(), statistics.begin() + piece * elements);
  }
  void combine() {
    const DeviceArray<T> all(statistics), made_losses(head.shape.rows), sums(head.shape.rows),
        made_margins(head.shape.rows), plain(head.shape.rows), unread(head.shape.rows);
    const auto combine_to = [&](const math::Targets<T>& of, const DeviceArray<T>& to,
                                const DeviceArray<T>& logs) {
      math::combine_statistics<T>(Exec(), all.matrix(pieces() * of_piece(), head.shape.rows),
                                  pieces(), words, of, to, logs, made_margins);
    };
    combine_to(head.targets, plain, unread);
    combine_to(targets(), made_losses, sums);
    cross_entropies = plain.host();
    losses = made_losses.host();
    margins = made_margins.host();
    log_sums = sums.host();
  }
  void make_gradients(std::int64_t piece, std::int64_t leaves, T scale) {
    const DeviceArray<T> weight = weight_of(piece), workspace = workspace_of(piece, leaves);
    const DeviceArray<T> sums(log_sums), by_rows(head.x.size()), by_words(weight.size()),
        of_bias(count(piece));
    math::cross_entropy_gradients<T>(
        Exec(), head.by_row(head.x), weight.matrix(count(piece), head.shape.width), piece * words,
        targets(), sums, scale, head.by_row(by_rows),
        by_words.matrix(count(piece), head.shape.width), leaves, workspace, logits_of(piece),
        head.form.has_bias ? of_bias.view() : View<T*>());
    dbias[piece] = of_bias.host();
    dx[piece] = by_rows.host();
    dweight[piece] = by_words.host();
  }

  void run(std::int64_t leaves, T scale) {
    for (std::int64_t piece = 0; piece < pieces(); ++piece) make_statistics(piece);
    combine();
    for (std::int64_t piece = 0; piece < pieces(); ++piece) make_gradients(piece, leaves, scale);
  }
};

std::vector<std::int64_t> words_of_pieces(const Shape& shape) {
  std::vector<std::int64_t> all = {shape.vocabulary, (shape.vocabulary + 1) / 2};
  if (shape.vocabulary < 300) all.push_back(std::min<std::int64_t>(shape.vocabulary, 4));
  return all;
}

TYPED_TEST(CrossEntropyPieces, PiecesOfWordsAgreeWithPlainLoops) {
  using T = TypeParam;
  const auto expect_agreement = [](const Head<T>& head, const HeadReference& reference,
                                   double scale, std::int64_t words) {
    const Shape& shape = head.shape;
    const Form& form = head.form;
    HeadInPieces<T> pieces(head, words);
    pieces.run(shape.rows % 5 == 0 ? 5 : 1, static_cast<T>(scale));
    const std::string name = text(name_of(shape), ", ", name_of(form), ", pieces of ", words);
    EXPECT_LE(largest_difference(pieces.losses, reference.losses), tolerance<T>) << name;
    EXPECT_LE(largest_difference(pieces.margins, reference.margins), tolerance<T>) << name;
    std::vector<double> dx(shape.rows * shape.width, 0.0);
    std::vector<T> dweight, dbias;
    for (std::int64_t piece = 0; piece < pieces.pieces(); ++piece) {
      for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += pieces.dx[piece][i];
      dweight.insert(dweight.end(), pieces.dweight[piece].begin(), pieces.dweight[piece].end());
      dbias.insert(dbias.end(), pieces.dbias[piece].begin(), pieces.dbias[piece].end());
    }
    if (!form.has_bias) dbias.assign(reference.dbias.begin(), reference.dbias.end());
    EXPECT_LE(largest_difference(dbias, reference.dbias), tolerance<T>) << name;
    EXPECT_LE(largest_difference(dx, reference.dx), tolerance<T>) << name;
    EXPECT_LE(largest_difference(dweight, reference.dweight), tolerance<T>) << name;
    head.forward();
    EXPECT_LE(largest_difference(pieces.cross_entropies, head.losses.host()), tolerance<T>) << name;
  };
  for (const Shape& shape : head_shapes())
    for (const Form& form : forms_of(shape)) {
      const Head<T> head = random_head<T>(shape, T(2), form);
      const double scale = 3.0 / static_cast<double>(shape.rows);
      const HeadReference reference = head.reference(scale);
      for (const std::int64_t words : words_of_pieces(shape))
        expect_agreement(head, reference, scale, words);
    }
}

TYPED_TEST(CrossEntropyPieces, StatisticsAreOfTheWordsOfAPiece) {
  using T = TypeParam;
  const Shape shape{37, 13, 19};
  const Head<T> head = random_head<T>(shape, T(2), {{}, false, false, {0.1}});
  const std::vector<double> x = converted<double>(head.x.host()),
                            weight = converted<double>(head.weight.host());
  const std::vector<std::int32_t> targets = targets_of(shape);
  HeadInPieces<T> pieces(head, 5);
  std::vector<double> expected;
  for (std::int64_t piece = 0; piece < pieces.pieces(); ++piece) {
    pieces.make_statistics(piece);
    std::vector<double> largest, totals, at_target, sums;
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      std::vector<double> logits(pieces.count(piece), 0.0);
      for (std::int64_t v = 0; v < pieces.count(piece); ++v)
        for (std::int64_t j = 0; j < shape.width; ++j)
          logits[v] += x[r * shape.width + j] * weight[(piece * 5 + v) * shape.width + j];
      largest.push_back(*std::max_element(logits.begin(), logits.end()));
      totals.push_back(0);
      for (double logit : logits) totals.back() += std::exp(logit - largest.back());
      const std::int64_t target = targets[r] - piece * 5;
      at_target.push_back(target >= 0 && target < pieces.count(piece) ? logits[target] : 0.0);
      sums.push_back(std::accumulate(logits.begin(), logits.end(), 0.0));
    }
    for (const std::vector<double>& row : {largest, totals, at_target, sums})
      expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_LE(largest_difference(pieces.statistics, expected), tolerance<T>);
}

/// Pieces are computed in another order, and in separate memory.
TYPED_TEST(CrossEntropyPieces, PiecesHaveTheSameBitsWhoeverComputesThem) {
  using T = TypeParam;
  for (const Shape& shape : std::vector<Shape>{{64, 16, 257}, {2500, 3, 9}, {150, 2, 3300}}) {
    const std::int64_t words = (shape.vocabulary + 3) / 4;
    const Head<T> head = random_head<T>(shape, T(2), {{}, false, false, {0.1, 0.01}});
    HeadInPieces<T> apart(head, words);
    for (std::int64_t piece = apart.pieces(); piece-- > 0;) apart.make_statistics(piece);
    apart.combine();
    for (std::int64_t piece = apart.pieces(); piece-- > 0;) apart.make_gradients(piece, 2, T(0.5));

    // One rank computes all pieces, one after the other, in one array with one workspace.
    const DeviceArray<T> statistics(apart.statistics.size()), sums(apart.log_sums),
        dx(shape.rows * shape.width), dweight(shape.vocabulary * shape.width),
        workspace(math::cross_entropy_piece_workspace<T>(shape.rows, shape.width, words, 2));
    const std::int64_t rows_of_all = apart.pieces() * apart.of_piece();
    for (std::int64_t piece = 0; piece < apart.pieces(); ++piece) {
      const std::int64_t first = piece * words, end = first + apart.count(piece);
      math::cross_entropy_statistics<T>(
          Exec(), head.by_row(head.x), head.by_word(head.weight).row_range(first, end), first,
          apart.targets(),
          statistics.matrix(rows_of_all, shape.rows)
              .row_range(piece * apart.of_piece(), (piece + 1) * apart.of_piece()),
          workspace);
      math::cross_entropy_gradients<T>(Exec(), head.by_row(head.x),
                                       head.by_word(head.weight).row_range(first, end), first,
                                       apart.targets(), sums, T(0.5), head.by_row(dx),
                                       head.by_word(dweight).row_range(first, end), 2, workspace);
      EXPECT_TRUE(same_bits(dx.host(), apart.dx[piece])) << name_of(shape) << ", piece " << piece;
    }
    std::vector<T> joined;
    for (const std::vector<T>& piece : apart.dweight)
      joined.insert(joined.end(), piece.begin(), piece.end());
    EXPECT_TRUE(same_bits(statistics.host(), apart.statistics)) << name_of(shape);
    EXPECT_TRUE(same_bits(dweight.host(), joined)) << name_of(shape);
  }
}

TYPED_TEST(CrossEntropyPieces, TotalsOfPiecesAreAddedByTheTree) {
  using T = TypeParam;
  constexpr std::int64_t rows = 50, words = 10;
  for (std::int64_t pieces = 1; pieces <= 17; ++pieces) {
    // With equal maxima the totals are added unscaled.
    const std::vector<T> largest = random_values<T>(rows, 1);
    const std::vector<T> totals = random_values<T>(pieces * rows, 2);
    const std::vector<T> at_target = random_values<T>(pieces * rows, 3);
    std::vector<std::int32_t> targets(rows);
    const std::int64_t of_piece = math::piece_statistics({});
    std::vector<T> statistics(pieces * of_piece * rows), losses, log_sums;
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto total = [&](std::int64_t piece) { return totals[piece * rows + r] + T(1.5); };
      std::vector<T> slots(math::tree_slots(pieces));
      math::sum_pieces(
          pieces, [&](std::int64_t slot, std::int64_t piece) { slots[slot] = total(piece); },
          [&](std::int64_t from, std::int64_t to) { slots[to] += slots[from]; });
      const std::int64_t own = r * 7 % pieces;
      targets[r] = static_cast<std::int32_t>(own * words + r % words);
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        T* const at = statistics.data() + piece * of_piece * rows;
        at[r] = largest[r];
        at[rows + r] = total(piece);
        at[2 * rows + r] = at_target[piece * rows + r];
      }
      losses.push_back((largest[r] - at_target[own * rows + r]) + std::log(slots[0]));
      log_sums.push_back(largest[r] + std::log(slots[0]));
    }
    const DeviceArray<T> all(statistics), made_losses(rows), made_sums(rows);
    const DeviceArray<std::int32_t> device_targets(targets);
    math::combine_statistics<T>(Exec(), all.matrix(pieces * of_piece, rows), pieces, words,
                                device_targets, made_losses, made_sums);
    if (on_device) {  // the device's logarithm differs
      EXPECT_LE(largest_difference(made_losses.host(), losses), tolerance<T>);
      EXPECT_LE(largest_difference(made_sums.host(), log_sums), tolerance<T>);
    } else {
      EXPECT_TRUE(same_bits(made_losses.host(), losses)) << pieces;
      EXPECT_TRUE(same_bits(made_sums.host(), log_sums)) << pieces;
    }
  }
}

/// Each leaf is computed separately, as on a rank with fewer rows.
TEST(CrossEntropyPiecesInFloat, WeightGradientsOfPiecesAreTheTreeOverLeaves) {
  if (!math::is_partition_invariant<float>()) GTEST_SKIP() << "a library promises nothing";
  const Shape shape{4800, 3, 1500};
  constexpr std::int64_t words = 700, leaves = 6;
  const std::int64_t rows = shape.rows / leaves;
  const Head<float> head = random_head<float>(shape);
  HeadInPieces<float> pieces(head, words);
  pieces.run(leaves, 0.5F);
  const DeviceArray<float> log_sums(pieces.log_sums);
  for (std::int64_t piece = 0; piece < pieces.pieces(); ++piece) {
    const DeviceArray<float> weight = pieces.weight_of(piece), dweight(weight.size()),
                             dx(head.x.size()),
                             workspace(math::cross_entropy_piece_workspace<float>(
                                 rows, shape.width, pieces.count(piece), 1));
    const auto by_word = [&](const DeviceArray<float>& array) {
      return array.matrix(pieces.count(piece), shape.width);
    };
    std::vector<std::vector<float>> sums(math::tree_slots(leaves));
    math::sum_pieces(
        leaves,
        [&](std::int64_t slot, std::int64_t leaf) {
          const std::int64_t begin = leaf * rows, end = begin + rows;
          math::cross_entropy_gradients<float>(
              Exec(), head.by_row(head.x).row_range(begin, end), by_word(weight), piece * words,
              head.targets.view().range(begin, end), log_sums.view().range(begin, end), 0.5F,
              head.by_row(dx).row_range(begin, end), by_word(dweight), 1, workspace);
          sums[slot] = dweight.host();
        },
        [&](std::int64_t from, std::int64_t to) {
          for (std::size_t i = 0; i < sums[to].size(); ++i) sums[to][i] += sums[from][i];
        });
    EXPECT_TRUE(same_bits(sums.front(), pieces.dweight[piece])) << piece;
    EXPECT_TRUE(same_bits(dx.host(), pieces.dx[piece])) << piece;
  }
}

TYPED_TEST(CrossEntropyPieces, PiecesWithLargeLogitsDoNotOverflow) {
  using T = TypeParam;
  const Head<T> head = random_head<T>({20, 8, 33}, T(1000));
  HeadInPieces<T> pieces(head, 10);
  pieces.run(2, T(1));
  for (T loss : pieces.losses) EXPECT_TRUE(loss >= T(0) && std::isfinite(loss)) << loss;
  for (const std::vector<T>& piece : pieces.dweight)
    for (T value : piece) EXPECT_TRUE(std::isfinite(value));
}

TYPED_TEST(CrossEntropyPieces, PiecesOfAFrozenWeightHaveTheSameInputGradient) {
  using T = TypeParam;
  const Shape shape{37, 13, 19};
  const Head<T> head = random_head<T>(shape);
  HeadInPieces<T> pieces(head, 7);
  pieces.run(1, T(0.5));
  const DeviceArray<T> sums(pieces.log_sums), dx(head.x.size()), weight = pieces.weight_of(1);
  math::cross_entropy_gradients<T>(Exec(), head.by_row(head.x), weight.matrix(7, shape.width), 7,
                                   head.targets, sums, T(0.5), head.by_row(dx), {}, 1,
                                   pieces.workspace_of(1, 1));
  EXPECT_TRUE(same_bits(dx.host(), pieces.dx[1]));
}

/// With fewer words more rows fit at a time: all together may have more logits.
TEST(CrossEntropyPiecesWorkspace, OfAPieceHoldsOneWithFewerWords) {
  constexpr std::int64_t words = 6283, fewer = 6276;
  for (const std::int64_t rows : {700, 768, 1000, 1536, 3000}) {
    const DeviceArray<float> x(rows, 1.0f), weight(words, 0.0f), statistics(3 * rows),
        workspace(math::cross_entropy_piece_workspace<float>(rows, 1, words, 1));
    const DeviceArray<std::int32_t> targets(rows, 0);
    for (const std::int64_t some : {words, fewer})
      EXPECT_NO_THROW(math::cross_entropy_statistics<float>(Exec(), x.matrix(rows, 1),
                                                            weight.matrix(some, 1), 0, targets,
                                                            statistics.matrix(3, rows), workspace))
          << rows << ", " << some;
  }
}

}  // namespace
