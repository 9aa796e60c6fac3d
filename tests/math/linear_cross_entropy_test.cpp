// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/math/products/gemm.hpp>

#include "math/check_gradient.hpp"
#include "math/linear_cross_entropy.hpp"

namespace {

using namespace ostrakon;
using namespace test::heads;
using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::same_bits;

using Scalars = ::testing::Types<float, double>;

template <class T>
class LinearCrossEntropy : public ::testing::Test {};
TYPED_TEST_SUITE(LinearCrossEntropy, Scalars);

/// Heads of all shapes and their forms.
template <class T, class Body>
void for_each_head(const Body& body) {
  for (const Shape& shape : head_shapes())
    for (const Form& form : forms_of(shape)) {
      SCOPED_TRACE(name_of(shape) + ", " + name_of(form));
      body(random_head<T>(shape, T(2), form));
    }
}

template <class T>
void expect_gradients(const Head<T>& head, const HeadReference& reference) {
  EXPECT_LE(largest_difference(head.losses.host(), reference.losses), tolerance<T>);
  EXPECT_LE(largest_difference(head.dx.host(), reference.dx), tolerance<T>);
  EXPECT_LE(largest_difference(head.dweight.host(), reference.dweight), tolerance<T>);
  if (head.form.has_bias) {
    EXPECT_LE(largest_difference(head.dbias.host(), reference.dbias), tolerance<T>);
  }
}

TYPED_TEST(LinearCrossEntropy, AgreesWithPlainLoops) {
  using T = TypeParam;
  for_each_head<T>([](const Head<T>& head) {
    const std::int64_t rows = head.shape.rows;
    const double scale = 3.0 / static_cast<double>(rows);
    const HeadReference reference = head.reference(scale);
    head.forward();
    EXPECT_LE(largest_difference(head.losses.host(), reference.cross_entropies), tolerance<T>);
    EXPECT_LE(largest_difference(head.margins.host(), reference.margins), tolerance<T>);
    head.losses.assign(std::vector<T>(rows, std::numeric_limits<T>::quiet_NaN()));
    head.backward(static_cast<T>(scale));
    expect_gradients(head, reference);
  });
}

TEST(LinearCrossEntropyGradient, AgreesWithFiniteDifferences) {
  for (const Shape& shape : std::vector<Shape>{{1, 1, 2}, {1, 3, 5}, {6, 5, 11}, {9, 2, 64}})
    for (const Form& form : forms()) {
      constexpr double scale = 0.7;
      const std::string name = name_of(shape) + ", " + name_of(form);
      const Head<double> head = random_head<double>(shape, 2, form);
      head.backward(scale);
      const std::vector<double> dx = head.dx.host(), dweight = head.dweight.host(),
                                dbias = head.dbias.host();
      std::vector<double> x = head.x.host(), weight = head.weight.host(), bias = head.bias.host();
      const auto loss = [&] {
        head.x.assign(x);
        head.weight.assign(weight);
        head.bias.assign(bias);
        head.backward(scale);
        return test::weighted_sum(head.losses.host(), std::vector<double>(shape.rows, scale));
      };
      EXPECT_TRUE(test::gradient_agrees("dx, " + name, x, dx, loss));
      EXPECT_TRUE(test::gradient_agrees("dweight, " + name, weight, dweight, loss));
      if (form.has_bias) {
        EXPECT_TRUE(test::gradient_agrees("dbias, " + name, bias, dbias, loss));
      }
    }
}

TYPED_TEST(LinearCrossEntropy, RowsThatCountHaveTheBitsOfAllThatCount) {
  using T = TypeParam;
  for (const Form& form : forms()) {
    const Shape shape{37, 13, 19};
    const Head<T> all = random_head<T>(shape, T(2), {form.logits, form.has_bias, false, form.loss});
    const Head<T> some = random_head<T>(shape, T(2), {form.logits, form.has_bias, true, form.loss});
    all.backward(T(0.5));
    some.backward(T(0.5));
    std::vector<T> losses = all.losses.host(), dx = all.dx.host();
    for (std::int64_t r = 0; r < shape.rows; r += 3) {
      losses[r] = T(0);
      std::fill_n(dx.begin() + r * shape.width, shape.width, T(0));
    }
    EXPECT_TRUE(same_bits(some.losses.host(), losses)) << name_of(form);
    EXPECT_TRUE(same_bits(some.dx.host(), dx)) << name_of(form);
  }
}

TYPED_TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  using T = TypeParam;
  const Head<T> head = random_head<T>({20, 8, 33}, T(1000));
  head.backward(T(1));
  for (T loss : head.losses.host()) EXPECT_TRUE(loss >= T(0) && std::isfinite(loss)) << loss;
  for (T value : head.dweight.host()) EXPECT_TRUE(std::isfinite(value));
}

TYPED_TEST(LinearCrossEntropy, RepeatsItsBits) {
  using T = TypeParam;
  const Shape shape{2500, 3, 5};
  const Head<T> first = random_head<T>(shape), second = random_head<T>(shape);
  first.backward(T(1));
  second.backward(T(1));
  EXPECT_TRUE(same_bits(first.losses.host(), second.losses.host()));
  EXPECT_TRUE(same_bits(first.dx.host(), second.dx.host()));
  EXPECT_TRUE(same_bits(first.dweight.host(), second.dweight.host()));
}

TYPED_TEST(LinearCrossEntropy, LeavesOutAGradientOfTheWeightThatIsNotWanted) {
  using T = TypeParam;
  for (const Shape& shape : head_shapes()) {
    const Head<T> both = random_head<T>(shape), alone = random_head<T>(shape);
    both.backward(T(0.5));
    math::linear_cross_entropy_backward<T>(
        Exec(), alone.by_row(alone.x), alone.by_word(alone.weight), alone.targets, T(0.5),
        alone.losses, alone.by_row(alone.dx), {}, alone.workspace);
    Exec().fence();
    EXPECT_TRUE(same_bits(alone.losses.host(), both.losses.host())) << name_of(shape);
    EXPECT_TRUE(same_bits(alone.dx.host(), both.dx.host())) << name_of(shape);
  }
}

TYPED_TEST(LinearCrossEntropy, AddsTheGradientOfTheWeightWhereAllRowsAreTakenAtOnce) {
  using T = TypeParam;
  for (const Shape& shape : head_shapes()) {
    const Head<T> written = random_head<T>(shape), added = random_head<T>(shape);
    const std::vector<T> before = test::random_values<T>(shape.vocabulary * shape.width, 7);
    added.dweight.assign(before);
    const auto add = [&] {
      math::linear_cross_entropy_backward<T>(
          Exec(), added.by_row(added.x), added.by_word(added.weight), {added.targets, {}, {}},
          T(0.5), added.losses, added.by_row(added.dx), added.by_word(added.dweight),
          added.workspace, {}, {}, true);
      Exec().fence();
    };
    if (!math::takes_rows_at_once<T>(shape.rows, shape.vocabulary)) {
      EXPECT_THROW(add(), Error) << name_of(shape);
      continue;
    }
    written.backward(T(0.5));
    add();
    std::vector<T> sum = written.dweight.host();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
    EXPECT_LE(largest_difference(added.dweight.host(), test::converted<double>(sum)), tolerance<T>);
    if (math::adds_as_a_whole<T>(shape.rows)) {
      EXPECT_TRUE(same_bits(added.dweight.host(), sum)) << name_of(shape);
    }
  }
}

/// Runs the backward by piece for rows [begin, end).
template <class T>
void backward_by_piece(const Head<T>& head, std::int64_t begin, std::int64_t end,
                       std::int64_t pieces, T scale) {
  const Shape& s = head.shape;
  const DeviceArray<T> workspace(
      math::linear_cross_entropy_by_piece_workspace<T>(end - begin, s.width, s.vocabulary, pieces));
  const auto rows = [&](const DeviceArray<T>& x) { return head.by_row(x).row_range(begin, end); };
  math::linear_cross_entropy_backward_by_piece<T>(
      Exec(), rows(head.x), head.by_word(head.weight),
      {head.targets.view().range(begin, end), {}, head.loss()}, scale,
      head.losses.view().range(begin, end), rows(head.dx), head.by_word(head.dweight), pieces,
      workspace, head.logits(), head.dbias_or_none());
  Exec().fence();
}

TYPED_TEST(LinearCrossEntropy, ByPieceAgreesWithPlainLoops) {
  using T = TypeParam;
  for_each_head<T>([](const Head<T>& head) {
    const std::int64_t rows = head.shape.rows;
    const double scale = 3.0 / static_cast<double>(rows);
    const HeadReference reference = head.reference(scale);
    for (const std::int64_t pieces : {1, 2, 5}) {
      if (rows % pieces != 0) continue;
      SCOPED_TRACE(pieces);
      backward_by_piece(head, 0, rows, pieces, static_cast<T>(scale));
      expect_gradients(head, reference);
    }
  });
}

/// Results do not depend on how many rows are computed at once: with few rows a block has more
/// words.
TEST(LinearCrossEntropy, PiecesHaveTheBitsOfTheWhole) {
  if (!math::is_partition_invariant<float>()) GTEST_SKIP() << "a library promises nothing";
  for (const Shape& shape : std::vector<Shape>{{64, 16, 257}, {4800, 3, 1500}}) {
    const Form form{{3.0, 2.0}, shape.rows == 64, shape.rows == 64, {0.1, 0.01}};
    const Head<float> whole = random_head<float>(shape, 2, form);
    backward_by_piece(whole, 0, shape.rows, 8, 0.5F);
    for (const std::int64_t parts : {2, 8}) {
      const Head<float> some = random_head<float>(shape, 2, form);
      std::vector<std::vector<float>> sums;
      math::sum_pieces(
          parts,
          [&](std::int64_t slot, std::int64_t part) {
            const std::int64_t rows = shape.rows / parts;
            backward_by_piece(some, part * rows, (part + 1) * rows, 8 / parts, 0.5F);
            sums.resize(slot);
            sums.push_back(some.dweight.host());
            const std::vector<float> dbias = some.dbias.host();
            sums.back().insert(sums.back().end(), dbias.begin(), dbias.end());
          },
          [&](std::int64_t from, std::int64_t to) {
            for (std::size_t i = 0; i < sums[to].size(); ++i) sums[to][i] += sums[from][i];
          });
      EXPECT_TRUE(same_bits(some.losses.host(), whole.losses.host())) << name_of(shape);
      EXPECT_TRUE(same_bits(some.dx.host(), whole.dx.host())) << name_of(shape);
      std::vector<float> expected = whole.dweight.host();
      const std::vector<float> dbias = whole.dbias.host();
      expected.insert(expected.end(), dbias.begin(), dbias.end());
      EXPECT_TRUE(same_bits(sums.front(), expected)) << name_of(shape);
    }
  }
}

TYPED_TEST(LinearCrossEntropy, WithoutRowsTheGradientIsZero) {
  using T = TypeParam;
  const Head<T> head = random_head<T>({0, 2, 3});
  head.forward();
  head.backward(T(1));
  EXPECT_EQ(head.dweight.host(), std::vector<T>(6, T(0)));
}

TEST(LinearCrossEntropyWorkspace, HoldsAChunkOfLogitsNotAll) {
  constexpr std::int64_t row = 272;  // whole cache lines
  EXPECT_EQ(math::linear_cross_entropy_workspace<float>(10, 257), 10 * row);
  EXPECT_EQ(math::linear_cross_entropy_workspace<float>(1 << 20, 257),
            (on_device ? 16384 : 1024) * row);
  EXPECT_EQ(math::linear_cross_entropy_workspace<float>(1 << 20, 128256),
            (on_device ? 2048 : 256) * 128256);
}

TEST(LinearCrossEntropyShapes, AreChecked) {
  const Head<double> head = random_head<double>({4, 3, 5});
  const View<double**> narrow(head.weight.data(), 5, 2);
  EXPECT_THROW(math::linear_cross_entropy_forward<double>(
                   Exec(), head.by_row(head.x), narrow, head.targets, head.losses, head.workspace),
               Error);
  EXPECT_THROW(math::linear_cross_entropy_backward<double>(
                   Exec(), head.by_row(head.x), head.by_word(head.weight), head.targets, 1.0,
                   head.losses, head.by_row(head.dx), narrow, head.workspace),
               Error);
}

}  // namespace
