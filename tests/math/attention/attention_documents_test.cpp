// SPDX-License-Identifier: Apache-2.0
// Attention in sequences that are packed from documents, which do not see each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/attention_on_chip.hpp>
#include <random>
#include <string>
#include <type_traits>

#include "math/attention/attention_reference.hpp"
#include "math/check_gradient.hpp"
#include "math/half_kernels.hpp"
#include "support/device_array.hpp"
#include "support/messages.hpp"

namespace ostrakon::math::in_documents {
namespace {

using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;
using test::attention::AttentionReference;
using test::attention::out_columns;
using test::attention::qkv_columns;
using test::attention::rows_of;
using Begins = std::vector<std::int32_t>;

/// Where the documents of the rows begin: in each sequence documents of random lengths, many of
/// them 1 or about a tile, the last ones of 1 as at the end of a packed sample.
Begins random_documents(const AttentionShape& shape, std::uint64_t seed) {
  const std::int64_t lengths[] = {1, 1, 2, 5, 17, 63, 64, 65, 100, 300};
  std::mt19937_64 random(seed);
  Begins begins;
  for (std::int64_t s = 0; s < shape.batch; ++s)
    for (std::int64_t begin = 0; begin < shape.tokens;) {
      const bool is_end = begin > shape.tokens * 9 / 10;
      const std::int64_t length = is_end ? 1 : lengths[random() % std::size(lengths)];
      const std::int64_t end = std::min(begin + length, shape.tokens);
      begins.insert(begins.end(), end - begin, static_cast<std::int32_t>(begin));
      begin = end;
    }
  return begins;
}

/// One attention; outputs begin as NaN. Without `begins` there are no documents.
template <class T>
struct Attention {
  using C = compute_t<T>;

  Attention(const AttentionShape& shape_, const std::vector<T>& qkv_, const Begins& begins_ = {},
            const std::vector<T>& sinks_ = {})
      : shape(shape_),
        qkv(qkv_),
        sinks(sinks_),
        out(rows_of(shape) * out_columns(shape)),
        dqkv(rows_of(shape) * qkv_columns(shape)),
        log_sum_exp(rows_of(shape) * shape.heads),
        begins(begins_) {}

  View<T**> matrix(const DeviceArray<T>& x) const {
    return x.matrix(rows_of(shape), x.size() / rows_of(shape));
  }
  View<const std::int32_t*> documents() const {
    return begins.size() > 0 ? View<const std::int32_t*>(begins) : View<const std::int32_t*>();
  }
  View<const T*> logits() const {
    return sinks.size() > 0 ? View<const T*>(sinks) : View<const T*>();
  }
  void forward(std::int64_t begin, std::int64_t end) const {
    const DeviceArray<T> workspace(attention_forward_workspace<T>(shape));
    attention_forward<T>(Exec(), shape, matrix(qkv), begin, end, matrix(out), log_sum_exp,
                         workspace, logits(), documents());
  }
  void backward(const std::vector<T>& dout) const {
    const DeviceArray<T> workspace(attention_backward_workspace<T>(shape)), device_dout(dout);
    attention_backward<T>(Exec(), shape, matrix(qkv), matrix(out), log_sum_exp, matrix(device_dout),
                          matrix(dqkv), workspace, documents());
  }
  void both(const std::vector<T>& dout) const {
    forward(0, shape.tokens);
    backward(dout);
  }

  AttentionShape shape;
  DeviceArray<T> qkv, sinks, out, dqkv;
  DeviceArray<C> log_sum_exp;
  DeviceArray<std::int32_t> begins;
};

template <class T>
std::vector<T> inputs(std::int64_t count, std::uint64_t seed, double size = 1) {
  return converted<T>(halves::inputs<T>(count, seed, size));
}
template <class T>
std::vector<T> random_qkv(const AttentionShape& shape, std::uint64_t seed) {
  return inputs<T>(rows_of(shape) * qkv_columns(shape), seed, 2);
}
template <class T>
std::vector<T> random_dout(const AttentionShape& shape, std::uint64_t seed) {
  return inputs<T>(rows_of(shape) * out_columns(shape), seed);
}

std::string name_of(const AttentionShape& s) {
  return text("batch ", s.batch, ", tokens ", s.tokens, ", heads ", s.heads, " and ", s.kv_heads,
              ", widths ", s.head_width, " and ", s.width_of_values(), ", window ", s.scores.window,
              ", cap ", s.scores.soft_cap, ", slopes ", s.scores.slopes);
}

/// Sizes of and about a tile, and several; shared keys, values of another width; heads on chip, in
/// tiles and too wide for these; windows, caps, slopes and scales, alone and together.
struct Case {
  AttentionShape shape;
  bool sinks = false;
};
std::vector<Case> cases() {
  return {{{1, 1, 1, 1, 4}},
          {{3, 7, 2, 1, 5}, true},
          {{2, 64, 1, 1, 8}},
          {{1, 65, 2, 2, 64}},
          {{2, 300, 4, 2, 64}, true},
          {{1, 500, 2, 1, 128}},
          {{1, 700, 3, 1, 20, {}, 11}, true},
          {{1, 300, 2, 1, 64, {0, 0, 20}}},
          {{1, 300, 2, 2, 128, {0.1, 0, 130}}, true},
          {{1, 260, 2, 1, 24, {0, 1.5, 70, 2}, 16}, true},
          {{1, 200, 2, 1, 128, {0, 2.0, 0, 8, 5}}},
          {{1, 150, 2, 1, 16, {0.2, 0, 0, 2}}, true},
          {{1, 600, 2, 1, 260}, true},
          {{1, 140, 2, 1, 257, {0.05, 1.0, 65, 2}}}};
}

template <class T>
class AttentionInDocuments : public ::testing::Test {};
using Scalars = ::testing::Types<float, double, bf16, fp16>;
TYPED_TEST_SUITE(AttentionInDocuments, Scalars);

template <class T>
constexpr double tolerance = std::is_same<T, double>::value  ? 1e-12
                             : std::is_same<T, float>::value ? 1e-5
                                                             : 4 * halves::one_store<T>;
/// In tiles and on chip sums are in an order of positions; libraries' products are not.
template <class T>
bool is_ordered(const AttentionShape& shape) {
  return std::is_same<T, float>::value || attention_on_chip<T>(shape);
}

TYPED_TEST(AttentionInDocuments, AgreesWithPlainLoops) {
  using T = TypeParam;
  std::uint64_t seed = 100;
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c.shape));
    const Begins begins = random_documents(c.shape, ++seed);
    const std::vector<T> qkv = random_qkv<T>(c.shape, 1), dout = random_dout<T>(c.shape, 2);
    const std::vector<T> sinks = inputs<T>(c.sinks ? c.shape.heads : 0, 3, 3);
    const Attention<T> attention(c.shape, qkv, begins, sinks);
    attention.both(dout);
    AttentionReference reference(c.shape, converted<double>(qkv), converted<double>(sinks), begins);
    const std::vector<double> dqkv = reference.backward(converted<double>(dout));
    EXPECT_LE(largest_difference(converted<double>(attention.out.host()), reference.out),
              tolerance<T>);
    EXPECT_LE(largest_difference(attention.log_sum_exp.host(), reference.log_sum_exp),
              std::min(tolerance<T>, 1e-5));
    EXPECT_LE(largest_difference(converted<double>(attention.dqkv.host()), dqkv), 2 * tolerance<T>);
  }
}

TYPED_TEST(AttentionInDocuments, OneDocumentHasTheBitsOfNone) {
  using T = TypeParam;
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c.shape));
    const std::vector<T> qkv = random_qkv<T>(c.shape, 4), dout = random_dout<T>(c.shape, 5);
    const std::vector<T> sinks = inputs<T>(c.sinks ? c.shape.heads : 0, 6, 3);
    const Attention<T> one(c.shape, qkv, Begins(rows_of(c.shape), 0), sinks),
        none(c.shape, qkv, {}, sinks);
    one.both(dout);
    none.both(dout);
    EXPECT_TRUE(same_bits(one.out.host(), none.out.host()));
    EXPECT_TRUE(same_bits(one.log_sum_exp.host(), none.log_sum_exp.host()));
    EXPECT_TRUE(same_bits(one.dqkv.host(), none.dqkv.host()));
  }
}

// Queries in other company, and documents with other neighbours, have the same bits.
TYPED_TEST(AttentionInDocuments, BitsDependOnNoOtherDocument) {
  using T = TypeParam;
  std::uint64_t seed = 200;
  for (const Case& c : cases()) {
    if (!is_ordered<T>(c.shape)) continue;
    SCOPED_TRACE(name_of(c.shape));
    const AttentionShape& shape = c.shape;
    const Begins begins = random_documents(shape, ++seed);
    const std::vector<T> qkv = random_qkv<T>(shape, 7), dout = random_dout<T>(shape, 8);
    const Attention<T> whole(shape, qkv, begins), ranges(shape, qkv, begins);
    whole.both(dout);
    std::int64_t first = 0;
    for (const std::int64_t end : {1, 2, 19, 62, 64, 131, 1000}) {
      ranges.forward(std::min(first, shape.tokens), std::min(end, shape.tokens));
      first = end;
    }
    EXPECT_TRUE(same_bits(ranges.out.host(), whole.out.host()));
    // Every second document has other numbers.
    std::vector<bool> stays(rows_of(shape));
    bool even = false;
    for (std::int64_t row = 0; row < rows_of(shape); ++row) {
      if (row % shape.tokens == begins[row]) even = !even;
      stays[row] = even;
    }
    const auto mixed = [&](std::vector<T> x, const std::vector<T>& others) {
      const std::int64_t columns = static_cast<std::int64_t>(x.size()) / rows_of(shape);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (!stays[static_cast<std::int64_t>(i) / columns]) x[i] = others[i];
      return x;
    };
    const Attention<T> other(shape, mixed(qkv, random_qkv<T>(shape, 9)), begins);
    other.both(mixed(dout, random_dout<T>(shape, 10)));
    EXPECT_TRUE(same_bits(mixed(other.out.host(), whole.out.host()), whole.out.host()));
    const std::vector<T> zeros(rows_of(shape) * qkv_columns(shape), T(0));
    const std::vector<T> found = mixed(other.dqkv.host(), zeros),
                         expected = mixed(whole.dqkv.host(), zeros);
    EXPECT_EQ(largest_difference(converted<double>(found), converted<double>(expected)), 0.0);
  }
}

// Work falls with the documents' length: tiles that are another document's are not read. Products
// on a device read all keys.
TYPED_TEST(AttentionInDocuments, TilesOfOtherDocumentsAreNotRead) {
  using T = TypeParam;
  for (const AttentionShape& shape : {AttentionShape{1, 1100, 2, 1, 64}, {1, 1100, 2, 1, 20}}) {
    if (on_device && !attention_on_chip<T>(shape)) continue;
    constexpr std::int64_t begin = 512, end = 768;  // the only document with numbers
    Begins begins(shape.tokens);
    for (std::int64_t i = 0; i < shape.tokens; ++i)
      begins[i] = static_cast<std::int32_t>(i < begin ? 0 : i < end ? begin : end);
    std::vector<T> qkv = random_qkv<T>(shape, 11), dout = random_dout<T>(shape, 12);
    const Attention<T> before(shape, qkv, begins);
    before.both(dout);
    const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
    std::fill_n(qkv.begin(), begin * qkv_columns(shape), nan);
    std::fill(qkv.begin() + end * qkv_columns(shape), qkv.end(), nan);
    const Attention<T> after(shape, qkv, begins);
    after.both(dout);
    const auto of_document = [&](const std::vector<T>& x) {
      const std::int64_t columns = static_cast<std::int64_t>(x.size()) / shape.tokens;
      return std::vector<T>(x.begin() + begin * columns, x.begin() + end * columns);
    };
    EXPECT_TRUE(same_bits(of_document(before.out.host()), of_document(after.out.host())));
    EXPECT_TRUE(same_bits(of_document(before.dqkv.host()), of_document(after.dqkv.host())));
  }
}

/// Computes each part of the sequences with keys and values of all.
template <class T>
void expect_parts_of(const Case& c, std::int64_t parts, std::int64_t pieces) {
  const AttentionShape& shape = c.shape;
  SCOPED_TRACE(text(name_of(shape), " in ", parts, " parts of ", pieces, " pieces"));
  const SequenceParts sequence{shape.tokens, parts, pieces};
  const Begins begins = random_documents(shape, 300);
  const std::vector<T> qkv = random_qkv<T>(shape, 13), dout = random_dout<T>(shape, 14);
  const std::vector<T> sinks = inputs<T>(c.sinks ? shape.heads : 0, 15, 3);
  const Attention<T> whole(shape, qkv, begins, sinks);
  whole.both(dout);
  const std::int64_t of_part = sequence.part_tokens(), rows = shape.batch * of_part;
  const std::int64_t all = qkv_columns(shape), q = shape.query_columns(), kv = all - q;
  const auto columns_of = [&](const std::vector<T>& x, std::int64_t first, std::int64_t end,
                              const auto& row_of, std::int64_t count) {
    const std::int64_t columns = static_cast<std::int64_t>(x.size()) / rows_of(shape);
    std::vector<T> some;
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t j = first; j < end; ++j) some.push_back(x[row_of(r) * columns + j]);
    return some;
  };
  const auto same_row = [](std::int64_t r) { return r; };
  const DeviceArray<T> kv_of_all(columns_of(qkv, q, all, same_row, rows_of(shape)));
  std::vector<double> sum(rows_of(shape) * kv, 0.0);
  for (std::int64_t part = 0; part < parts; ++part) {
    const auto row_of = [&](std::int64_t row) {
      return row / of_part * shape.tokens + sequence.position(part, row % of_part);
    };
    Begins own;
    for (std::int64_t r = 0; r < rows; ++r) own.push_back(begins[row_of(r)]);
    const std::int64_t outs = out_columns(shape);
    const DeviceArray<T> own_q(columns_of(qkv, 0, q, row_of, rows)),
        own_dout(columns_of(dout, 0, outs, row_of, rows)), out(rows * outs), dq(rows * q),
        forward_room(attention_forward_workspace<T>(shape)),
        backward_room(attention_backward_workspace<T>(shape, pieces));
    const DeviceArray<compute_t<T>> sums(rows * shape.heads), dkv(rows_of(shape) * kv);
    const DeviceArray<std::int32_t> documents(own);
    const AttentionQueries queries{sequence, part, documents};
    attention_forward<T>(Exec(), shape, queries, own_q.matrix(rows, q),
                         kv_of_all.matrix(rows_of(shape), kv), out.matrix(rows, outs), sums,
                         forward_room, whole.logits());
    attention_backward<T>(Exec(), shape, queries, own_q.matrix(rows, q),
                          kv_of_all.matrix(rows_of(shape), kv), out.matrix(rows, outs), sums,
                          own_dout.matrix(rows, outs), dq.matrix(rows, q),
                          dkv.matrix(rows_of(shape), kv), backward_room);
    const std::vector<T> expected = columns_of(whole.out.host(), 0, outs, row_of, rows);
    const std::vector<T> expected_dq = columns_of(whole.dqkv.host(), 0, q, row_of, rows);
    if (is_ordered<T>(shape)) {
      EXPECT_TRUE(same_bits(out.host(), expected));
      EXPECT_EQ(largest_difference(converted<double>(dq.host()), converted<double>(expected_dq)),
                0.0);
    } else {
      EXPECT_LE(largest_difference(converted<double>(out.host()), converted<double>(expected)),
                tolerance<T>);
    }
    const std::vector<double> dkv_of_part = converted<double>(dkv.host());
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += dkv_of_part[i];
  }
  const std::vector<T> dkv = columns_of(whole.dqkv.host(), q, all, same_row, rows_of(shape));
  EXPECT_LE(largest_difference(sum, converted<double>(dkv)), 2 * tolerance<T>);
}

TYPED_TEST(AttentionInDocuments, PartsOfSequencesAreThoseOfTheWhole) {
  using T = TypeParam;
  expect_parts_of<T>({{2, 96, 2, 1, 64}, true}, 2, 1);
  expect_parts_of<T>({{1, 600, 2, 1, 64, {0, 0, 90}}}, 2, 3);
  expect_parts_of<T>({{1, 704, 2, 1, 128}}, 1, 4);
  expect_parts_of<T>({{1, 352, 4, 2, 24, {0, 1.5, 0, 4}, 16}, true}, 4, 2);
}

TEST(AttentionInDocumentsGradient, AgreesWithFiniteDifferences) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 9, 2, 1, 3}, {2, 12, 2, 2, 2, {0, 1.5, 4, 2}, 3}, {1, 67, 1, 1, 1}}) {
    const Begins begins = random_documents(shape, 400);
    std::vector<double> qkv = random_qkv<double>(shape, 16);
    const std::vector<double> dout = random_dout<double>(shape, 17);
    const Attention<double> attention(shape, qkv, begins);
    attention.both(dout);
    EXPECT_TRUE(test::gradient_agrees(name_of(shape), qkv, attention.dqkv.host(), [&] {
      attention.qkv.assign(qkv);
      attention.forward(0, shape.tokens);
      return test::weighted_sum(attention.out.host(), dout);
    }));
  }
}

TEST(AttentionInDocumentsGradient, RefusesAnotherNumberOfRows) {
  const AttentionShape shape{2, 4, 1, 1, 2};
  const Attention<float> attention(shape, random_qkv<float>(shape, 18), {0, 0, 0});
  EXPECT_EQ(testing::error_of([&] { attention.forward(0, 4); }),
            "attention: begins of the documents of 3 queries of 8; expected as many, or none");
}

}  // namespace
}  // namespace ostrakon::math::in_documents
