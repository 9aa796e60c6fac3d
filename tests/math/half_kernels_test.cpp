// SPDX-License-Identifier: Apache-2.0
// Kernels over 16-bit arrays compared with the same kernels in double, for the same rounded inputs:
// 16-bit outputs may differ by the rounding of their stores, float outputs by float's.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/activation.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/attention/rotary.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/embedding.hpp>
#include <ostrakon/math/linear_cross_entropy.hpp>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

#include "math/compare.hpp"
#include "support/device_array.hpp"

namespace ostrakon::math {
namespace {

using test::converted;
using test::DeviceArray;
using test::largest_difference;
using test::random_values;
using test::same_bits;

using Doubles = std::vector<double>;

/// Largest relative change by one rounded store.
template <class T>
constexpr double one_store = std::is_same<T, bf16>::value ? 0x1p-8 : 0x1p-11;

/// Returns values that T holds exactly, from -scale to scale, around `offset`.
template <class T>
Doubles inputs(std::int64_t count, std::uint64_t seed, double scale = 1, double offset = 0) {
  Doubles values = random_values<double>(count, seed);
  for (double& value : values) value = static_cast<double>(T(offset + scale * value));
  return values;
}

template <class T>
DeviceArray<T> device(const Doubles& values) {
  return DeviceArray<T>(converted<T>(values));
}

/// Returns an array of NaNs, which show elements that were not written.
template <class T>
DeviceArray<T> unwritten(std::int64_t count) {
  return DeviceArray<T>(count, T(std::numeric_limits<float>::quiet_NaN()));
}

template <class T>
Doubles doubles(const DeviceArray<T>& array) {
  return converted<double>(array.host());
}

template <class T>
View<T**> matrix(const DeviceArray<T>& array, std::int64_t columns) {
  return {array.data(), columns == 0 ? 0 : array.size() / columns, columns};
}

/// Returns the largest error of a row of `columns`, relative to the row's largest element or
/// `smallest`; infinity for NaN.
double row_error(const Doubles& values, const Doubles& expected, std::int64_t columns,
                 double smallest = 1e-30) {
  if (values.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t row = 0; row < expected.size(); row += static_cast<std::size_t>(columns)) {
    double scale = smallest, error = 0;
    for (std::size_t i = row; i < row + static_cast<std::size_t>(columns); ++i) {
      scale = std::max(scale, std::abs(expected[i]));
      const double difference = std::abs(values[i] - expected[i]);
      if (!(difference <= error)) error = difference;
      if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    }
    worst = std::max(worst, error / scale);
  }
  return worst;
}

/// The smallest normal number of fp16: below it the absolute rounding error of a store is constant.
constexpr double smallest_normal = 0x1p-14;

/// The error of float arithmetic in addition to the rounding of stores.
constexpr double float_sums = 2e-5;

#define EXPECT_STORED(values, expected, columns, stores)           \
  EXPECT_LE(row_error(values, expected, columns, smallest_normal), \
            (stores)*one_store<TypeParam> + float_sums)
#define EXPECT_FLOAT(values, expected) \
  EXPECT_LE(row_error(values, expected, static_cast<std::int64_t>((expected).size())), float_sums)

template <class T>
class HalfKernels : public testing::Test {};
using Halves = testing::Types<bf16, fp16>;
TYPED_TEST_SUITE(HalfKernels, Halves);

struct NormResults {
  Doubles y, applied, mean, rstd, dx, dx_added, dweight, dbias;
  bool applied_alike;
};

template <class T>
NormResults run_norm(NormKind kind, std::int64_t width, const Doubles& x, const Doubles& weight,
                     const Doubles& bias, const Doubles& dy, const Doubles& dx_before) {
  using C = compute_t<T>;
  const auto count = static_cast<std::int64_t>(x.size());
  const std::int64_t rows = count / width;
  const bool centered = kind == NormKind::layernorm;
  const auto in = device<T>(x), gain = device<T>(weight), shift = device<T>(bias);
  const auto dout = device<T>(dy), added = device<T>(dx_before);
  const auto out = unwritten<T>(count), again = unwritten<T>(count), din = unwritten<T>(count);
  const auto mean = unwritten<C>(rows), rstd = unwritten<C>(rows);
  const auto dweight = unwritten<C>(width), dbias = unwritten<C>(width);
  const View<C*> mean_if_any = centered ? mean.view() : View<C*>();
  const View<const T*> bias_if_any = centered ? shift.view() : View<T*>();
  const Exec exec;
  norm_forward<T>(exec, kind, 1e-5, matrix(in, width), gain, bias_if_any, matrix(out, width),
                  mean_if_any, rstd);
  norm_apply<T>(exec, kind, matrix(in, width), gain, bias_if_any, mean_if_any, rstd,
                matrix(again, width));
  norm_backward_input<T>(exec, kind, matrix(in, width), gain, mean_if_any, rstd,
                         matrix(dout, width), matrix(din, width), GradientUpdate::overwrite);
  norm_backward_input<T>(exec, kind, matrix(in, width), gain, mean_if_any, rstd,
                         matrix(dout, width), matrix(added, width), GradientUpdate::add);
  norm_backward_parameters<T>(exec, kind, matrix(in, width), mean_if_any, rstd, matrix(dout, width),
                              dweight, centered ? dbias.view() : View<C*>());
  return {doubles(out),
          doubles(again),
          centered ? doubles(mean) : Doubles(),
          doubles(rstd),
          doubles(din),
          doubles(added),
          doubles(dweight),
          centered ? doubles(dbias) : Doubles(),
          same_bits(out.host(), again.host())};
}

TYPED_TEST(HalfKernels, Norm) {
  using T = TypeParam;
  for (const NormKind kind : {NormKind::layernorm, NormKind::rmsnorm})
    for (const std::int64_t width : {7, 65, 5000}) {
      const std::int64_t rows = width == 65 ? 3000 : 3;
      const std::int64_t count = rows * width;
      // Values are far from 0, so that 16-bit sums would be detected.
      const Doubles x = inputs<T>(count, 1, 1, 2), weight = inputs<T>(width, 2),
                    bias = inputs<T>(width, 3), dy = inputs<T>(count, 4, 1, 0.5),
                    before = inputs<T>(count, 5);
      const NormResults narrow = run_norm<T>(kind, width, x, weight, bias, dy, before);
      const NormResults wide = run_norm<double>(kind, width, x, weight, bias, dy, before);
      SCOPED_TRACE(width);
      EXPECT_STORED(narrow.y, wide.y, width, 1);
      EXPECT_TRUE(narrow.applied_alike);
      EXPECT_FLOAT(narrow.mean, wide.mean);
      EXPECT_FLOAT(narrow.rstd, wide.rstd);
      EXPECT_STORED(narrow.dx, wide.dx, width, 1);
      EXPECT_STORED(narrow.dx_added, wide.dx_added, width, 1);
      EXPECT_FLOAT(narrow.dweight, wide.dweight);
      EXPECT_FLOAT(narrow.dbias, wide.dbias);
    }
}

struct ActivationResults {
  Doubles gelu, dgelu, swiglu, dswiglu;
};

template <class T>
ActivationResults run_activations(std::int64_t width, const Doubles& x, const Doubles& dy) {
  const auto in = device<T>(x), dout = device<T>(dy);
  const auto count = static_cast<std::int64_t>(x.size());
  const auto gelu = unwritten<T>(count), dgelu = unwritten<T>(count);
  const auto swiglu = unwritten<T>(count / 2), dswiglu = unwritten<T>(count);
  const Exec exec;
  gelu_forward<T>(exec, matrix(in, 2 * width), matrix(gelu, 2 * width));
  gelu_backward<T>(exec, matrix(in, 2 * width), matrix(dout, 2 * width), matrix(dgelu, 2 * width));
  swiglu_forward<T>(exec, matrix(in, 2 * width), matrix(swiglu, width));
  swiglu_backward<T>(exec, matrix(in, 2 * width),
                     View<T**>(dout.data(), count / (2 * width), width, 2 * width),
                     matrix(dswiglu, 2 * width));
  return {doubles(gelu), doubles(dgelu), doubles(swiglu), doubles(dswiglu)};
}

TYPED_TEST(HalfKernels, Activations) {
  using T = TypeParam;
  for (const std::int64_t width : {1, 19, 200}) {
    const Doubles x = inputs<T>(10 * width, 1, 6), dy = inputs<T>(10 * width, 2);
    const ActivationResults narrow = run_activations<T>(width, x, dy);
    const ActivationResults wide = run_activations<double>(width, x, dy);
    // Errors are compared element by element, as nothing is summed.
    EXPECT_STORED(narrow.gelu, wide.gelu, 2 * width, 1);
    EXPECT_STORED(narrow.dgelu, wide.dgelu, 2 * width, 1);
    EXPECT_STORED(narrow.swiglu, wide.swiglu, width, 1);
    EXPECT_STORED(narrow.dswiglu, wide.dswiglu, 2 * width, 1);
  }
}

template <class T>
Doubles run_rotate(Rotation rotation, std::int64_t head_width, const Doubles& x) {
  const auto rotated = device<T>(x);
  rotate<T>(Exec(), rotation, matrix(rotated, 3 * head_width), head_width, 10000.0, 4, 1000);
  return doubles(rotated);
}

TYPED_TEST(HalfKernels, Rotary) {
  using T = TypeParam;
  for (const std::int64_t head_width : {2, 10, 136})
    for (const Rotation rotation : {Rotation::forward, Rotation::inverse}) {
      const Doubles x = inputs<T>(7 * 3 * head_width, 1);
      EXPECT_STORED(run_rotate<T>(rotation, head_width, x),
                    run_rotate<double>(rotation, head_width, x), 3 * head_width, 1);
    }
}

struct EmbeddingResults {
  Doubles out, dtokens, dpositions;
};

template <class T>
EmbeddingResults run_embedding(const std::vector<std::int32_t>& ids, std::int64_t tokens,
                               std::int64_t width, const Doubles& table, const Doubles& positions,
                               const Doubles& dy) {
  using C = compute_t<T>;
  const DeviceArray<std::int32_t> device_ids(ids);
  const auto token_table = device<T>(table), position_table = device<T>(positions);
  const auto dout = device<T>(dy);
  const auto out = unwritten<T>(dout.size());
  const DeviceArray<C> dtokens(token_table.size(), C(1)), dpositions(position_table.size(), C(2));
  embedding_forward<T>(Exec(), device_ids, tokens, 1, matrix(token_table, width),
                       matrix(position_table, width), matrix(out, width));
  embedding_backward<T>(Exec(), device_ids, tokens, matrix(dout, width), matrix(dtokens, width),
                        matrix(dpositions, width));
  return {doubles(out), doubles(dtokens), doubles(dpositions)};
}

TYPED_TEST(HalfKernels, Embedding) {
  using T = TypeParam;
  constexpr std::int64_t tokens = 5, width = 70, rows = 2000, vocabulary = 3;
  std::vector<std::int32_t> ids(rows);
  for (std::int64_t r = 0; r < rows; ++r) ids[r] = static_cast<std::int32_t>(r * r % vocabulary);
  const Doubles table = inputs<T>(vocabulary * width, 1);
  const Doubles positions = inputs<T>((tokens + 1) * width, 2);
  const Doubles dy = inputs<T>(rows * width, 3, 1, 0.5);
  const EmbeddingResults narrow = run_embedding<T>(ids, tokens, width, table, positions, dy);
  const EmbeddingResults wide = run_embedding<double>(ids, tokens, width, table, positions, dy);
  EXPECT_STORED(narrow.out, wide.out, width, 1);
  EXPECT_FLOAT(narrow.dtokens, wide.dtokens);
  EXPECT_FLOAT(narrow.dpositions, wide.dpositions);
}

struct ElementwiseResults {
  Doubles added, biased, sums, copied, filled;
};

template <class T>
ElementwiseResults run_elementwise(std::int64_t width, const Doubles& x, const Doubles& y,
                                   const Doubles& bias) {
  const auto from = device<T>(x), added = device<T>(y), biased = device<T>(y);
  const auto terms = device<T>(bias);
  const auto sums = unwritten<compute_t<T>>(width);
  const auto copied = unwritten<T>(from.size()), filled = unwritten<T>(from.size());
  const Exec exec;
  add_to<T, OnDevice>(exec, from, added);
  add_bias<T>(exec, matrix(biased, width), terms);
  column_sums<T>(exec, matrix(from, width), sums);
  copy<T>(exec, from, copied);
  fill<T>(exec, filled, T(0.75));
  return {doubles(added), doubles(biased), doubles(sums), doubles(copied), doubles(filled)};
}

TYPED_TEST(HalfKernels, Elementwise) {
  using T = TypeParam;
  for (const std::int64_t width : {1, 70, 600}) {
    const std::int64_t count = 5000 * width;
    const Doubles x = inputs<T>(count, 1, 1, 0.5), y = inputs<T>(count, 2),
                  bias = inputs<T>(width, 3);
    const ElementwiseResults narrow = run_elementwise<T>(width, x, y, bias);
    const ElementwiseResults wide = run_elementwise<double>(width, x, y, bias);
    EXPECT_STORED(narrow.added, wide.added, 1, 1);
    EXPECT_STORED(narrow.biased, wide.biased, 1, 1);
    EXPECT_FLOAT(narrow.sums, wide.sums);
    EXPECT_EQ(narrow.copied, wide.copied);
    EXPECT_EQ(narrow.filled, wide.filled);
  }
}

struct HeadResults {
  Doubles losses, losses_again, dx, dweight;
};

template <class T>
HeadResults run_head(std::int64_t width, const std::vector<std::int32_t>& targets, const Doubles& x,
                     const Doubles& weight, double scale, std::int64_t shift) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(targets.size());
  const DeviceArray<std::int32_t> device_targets(targets);
  const auto in = device<T>(x), table = device<T>(weight);
  const std::int64_t vocabulary = table.size() / width;
  const auto losses = unwritten<C>(rows), again = unwritten<C>(rows);
  const auto dx = unwritten<T>(in.size());
  const auto dweight = unwritten<C>(table.size());
  const std::int64_t needed = linear_cross_entropy_workspace<T>(rows, vocabulary);
  const auto workspace = unwritten<T>(needed + shift + 1);
  linear_cross_entropy_forward<T>(Exec(), matrix(in, width), matrix(table, width), device_targets,
                                  losses, workspace.view().range(shift, workspace.size()));
  linear_cross_entropy_backward<T>(Exec(), matrix(in, width), matrix(table, width), device_targets,
                                   C(scale), again, matrix(dx, width), matrix(dweight, width),
                                   workspace.view().range(shift, workspace.size()));
  EXPECT_TRUE(std::isnan(doubles(workspace).back())) << "written beyond the workspace";
  return {doubles(losses), doubles(again), doubles(dx), doubles(dweight)};
}

TYPED_TEST(HalfKernels, LinearCrossEntropy) {
  using T = TypeParam;
  // There are more rows than in a chunk, so that the weight's gradient is summed over chunks.
  constexpr std::int64_t width = 48, rows = 1100, vocabulary = 257;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    targets[r] = static_cast<std::int32_t>(r * 31 % vocabulary);
  const Doubles x = inputs<T>(rows * width, 1, 2), weight = inputs<T>(vocabulary * width, 2);
  for (const std::int64_t shift : {0, 1}) {  // also a workspace that is not aligned for floats
    const HeadResults narrow = run_head<T>(width, targets, x, weight, 0.5, shift);
    const HeadResults wide = run_head<double>(width, targets, x, weight, 0.5, shift);
    EXPECT_FLOAT(narrow.losses, wide.losses);
    EXPECT_EQ(narrow.losses, narrow.losses_again);
    // The gradient of the logits is stored in 16 bits first, and then dx.
    EXPECT_STORED(narrow.dx, wide.dx, width, 2);
    EXPECT_STORED(narrow.dweight, wide.dweight, width, 1);
  }
}

/// Runs the head with the vocabulary in pieces of `words` words.
template <class T>
HeadResults run_pieces(std::int64_t width, std::int64_t words,
                       const std::vector<std::int32_t>& targets, const Doubles& x,
                       const Doubles& weight, double scale, std::int64_t shift) {
  using C = compute_t<T>;
  const auto rows = static_cast<std::int64_t>(targets.size());
  const std::int64_t vocabulary = static_cast<std::int64_t>(weight.size()) / width;
  const std::int64_t pieces = (vocabulary + words - 1) / words;
  const DeviceArray<std::int32_t> device_targets(targets);
  const auto in = device<T>(x), table = device<T>(weight);
  const auto losses = unwritten<C>(rows), log_sums = unwritten<C>(rows);
  const auto statistics = unwritten<C>(pieces * piece_statistics * rows);
  const auto dx = unwritten<C>(in.size()), dweight = unwritten<C>(table.size());
  const std::int64_t needed = cross_entropy_piece_workspace<T>(rows, width, words, 2);
  const auto workspace = unwritten<T>(needed + shift + 1);
  const View<T*> room = workspace.view().range(shift, workspace.size());
  const auto some = [&](std::int64_t piece, const auto& words_of) {
    return matrix(words_of, width)
        .row_range(piece * words, std::min((piece + 1) * words, vocabulary));
  };
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    cross_entropy_statistics<T>(
        Exec(), matrix(in, width), some(piece, table), piece * words, device_targets,
        matrix(statistics, rows)
            .row_range(piece * piece_statistics, (piece + 1) * piece_statistics),
        room);
  combine_statistics<C>(Exec(), matrix(statistics, rows), words, device_targets, losses, log_sums);
  Doubles sum(x.size(), 0.0);
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    cross_entropy_gradients<T>(Exec(), matrix(in, width), some(piece, table), piece * words,
                               device_targets, log_sums, C(scale), matrix(dx, width),
                               some(piece, dweight), 2, room);
    const Doubles terms = doubles(dx);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += terms[i];
  }
  EXPECT_TRUE(std::isnan(doubles(workspace).back())) << "written beyond the workspace";
  return {doubles(losses), doubles(losses), sum, doubles(dweight)};
}

TYPED_TEST(HalfKernels, LinearCrossEntropyOfPieces) {
  using T = TypeParam;
  constexpr std::int64_t width = 48, rows = 1100, vocabulary = 257;
  std::vector<std::int32_t> targets(rows);
  for (std::int64_t r = 0; r < rows; ++r)
    targets[r] = static_cast<std::int32_t>(r * 31 % vocabulary);
  const Doubles x = inputs<T>(rows * width, 1, 2), weight = inputs<T>(vocabulary * width, 2);
  const HeadResults wide = run_head<double>(width, targets, x, weight, 0.5, 0);
  for (const std::int64_t words : {65, 257})
    for (const std::int64_t shift : {0, 1}) {
      const HeadResults narrow = run_pieces<T>(width, words, targets, x, weight, 0.5, shift);
      EXPECT_FLOAT(narrow.losses, wide.losses);
      // The gradient of the logits is stored in 16 bits, dx is not.
      EXPECT_STORED(narrow.dx, wide.dx, width, 1);
      EXPECT_STORED(narrow.dweight, wide.dweight, width, 1);
    }
}

// The gradient of a nearly certain target is the small difference of two large numbers.
TYPED_TEST(HalfKernels, GradientOfACertainTarget) {
  using T = TypeParam;
  const Doubles x = {8}, weight = {1, 0};  // probability of the other: 3.4e-4
  const HeadResults narrow = run_head<T>(1, {0}, x, weight, 64, 0);
  const HeadResults wide = run_head<double>(1, {0}, x, weight, 64, 0);
  EXPECT_STORED(narrow.dx, wide.dx, 1, 2);
  EXPECT_STORED(narrow.dweight, wide.dweight, 1, 1);
}

struct AttentionResults {
  Doubles out, log_sum_exp, dqkv;
};

template <class T>
AttentionResults run_attention(const AttentionShape& shape, const Doubles& qkv, const Doubles& out,
                               const Doubles& log_sum_exp, const Doubles& dout,
                               std::int64_t shift) {
  using C = compute_t<T>;
  const std::int64_t width = shape.heads * shape.head_width;
  const std::int64_t all_width = width + 2 * shape.kv_heads * shape.head_width;
  const auto in = device<T>(qkv), given = device<T>(dout);
  const auto written = unwritten<T>(given.size()), din = unwritten<T>(in.size());
  const auto sums = unwritten<C>(shape.batch * shape.heads * shape.tokens);
  const auto forward = unwritten<T>(attention_forward_workspace<T>(shape) + shift + 1);
  attention_forward<T>(Exec(), shape, matrix(in, all_width), 0, shape.tokens,
                       matrix(written, width), sums, forward.view().range(shift, forward.size()));
  // Backward starts from the same output, so that only its own rounding matters.
  const auto from = out.empty() ? written : device<T>(out);
  const auto from_sums = out.empty() ? sums : device<C>(log_sum_exp);
  const auto backward = unwritten<T>(attention_backward_workspace<T>(shape) + shift + 1);
  attention_backward<T>(Exec(), shape, matrix(in, all_width), matrix(from, width), from_sums,
                        matrix(given, width), matrix(din, all_width),
                        backward.view().range(shift, backward.size()));
  EXPECT_TRUE(std::isnan(doubles(forward).back()) && std::isnan(doubles(backward).back()))
      << "written beyond the workspace";
  return {doubles(written), doubles(sums), doubles(din)};
}

// Ensures that a test run without units for fp16 really has none.
TEST(HalfKernelsInFloat, AreUsedWhereTheEnvironmentSaysSo) {
  const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (most == nullptr || std::string(most) != "AVX2" || products_on_device)
    GTEST_SKIP() << "this processor's units are used";
  EXPECT_EQ(half_products<fp16>(), HalfProducts::in_float);
}

TYPED_TEST(HalfKernels, Attention) {
  using T = TypeParam;
  const std::vector<AttentionShape> shapes = {
      {1, 1, 1, 1, 4},    {2, 7, 3, 1, 5},   {1, 65, 2, 2, 3}, {2, 150, 4, 2, 6},
      {1, 700, 4, 2, 16}, {3, 70, 6, 6, 20}, {2, 65, 2, 1, 64}};
  for (const AttentionShape& shape : shapes)
    for (const std::int64_t shift : {0, 1}) {
      SCOPED_TRACE(text("tokens ", shape.tokens, ", workspace at ", shift));
      const std::int64_t rows = shape.batch * shape.tokens;
      const std::int64_t width = shape.heads * shape.head_width;
      const std::int64_t all_width = width + 2 * shape.kv_heads * shape.head_width;
      const Doubles qkv = inputs<T>(rows * all_width, 1, 1, 0.25);
      const Doubles dout = inputs<T>(rows * width, 2, 1, 0.25);
      const AttentionResults narrow = run_attention<T>(shape, qkv, {}, {}, dout, shift);
      const AttentionResults wide =
          run_attention<double>(shape, qkv, narrow.out, narrow.log_sum_exp, dout, shift);
      // Probabilities are stored in 16 bits, except in tiles; then the output is.
      EXPECT_STORED(narrow.out, wide.out, width, 2);
      EXPECT_FLOAT(narrow.log_sum_exp, wide.log_sum_exp);
      EXPECT_STORED(narrow.dqkv, wide.dqkv, all_width, 2);
    }
}

/// Runs the queries of one part, in pieces, with keys and values of all.
template <class T>
AttentionResults run_attention_part(const AttentionShape& shape, const AttentionQueries& queries,
                                    const Doubles& q, const Doubles& kv, const Doubles& dout,
                                    const AttentionResults& forward) {
  using C = compute_t<T>;
  const std::int64_t width = shape.heads * shape.head_width;
  const std::int64_t kv_width = 2 * shape.kv_heads * shape.head_width;
  const std::int64_t rows = shape.batch * queries.sequence.part_tokens();
  const auto in_q = device<T>(q), in_kv = device<T>(kv), given = device<T>(dout);
  const auto written = unwritten<T>(rows * width), dq = unwritten<T>(rows * width);
  const auto dkv = unwritten<C>(shape.batch * shape.tokens * kv_width);
  const auto sums = unwritten<C>(rows * shape.heads);
  attention_forward<T>(Exec(), shape, queries, matrix(in_q, width), matrix(in_kv, kv_width),
                       matrix(written, width), sums,
                       unwritten<T>(attention_forward_workspace<T>(shape) + 1).view());
  const auto from = forward.out.empty() ? written : device<T>(forward.out);
  const auto from_sums = forward.out.empty() ? sums : device<C>(forward.log_sum_exp);
  const auto room =
      unwritten<T>(attention_backward_workspace<T>(shape, queries.sequence.pieces) + 1);
  attention_backward<T>(Exec(), shape, queries, matrix(in_q, width), matrix(in_kv, kv_width),
                        matrix(from, width), from_sums, matrix(given, width), matrix(dq, width),
                        matrix(dkv, kv_width), room.view().range(0, room.size() - 1));
  EXPECT_TRUE(std::isnan(doubles(room).back())) << "written beyond the workspace";
  AttentionResults results{doubles(written), doubles(sums), doubles(dq)};
  const Doubles of_kv = doubles(dkv);
  results.dqkv.insert(results.dqkv.end(), of_kv.begin(), of_kv.end());
  return results;
}

TYPED_TEST(HalfKernels, AttentionOfPartsAndPieces) {
  using T = TypeParam;
  for (const AttentionShape& shape :
       {AttentionShape{2, 48, 4, 2, 20}, {1, 288, 12, 12, 16}, {3, 144, 8, 4, 32}})
    for (const auto& [parts, pieces] :
         {std::pair<std::int64_t, std::int64_t>{1, 4}, {2, 1}, {2, 2}})
      for (std::int64_t part = 0; part < parts; ++part) {
        SCOPED_TRACE(
            text("tokens ", shape.tokens, ", part ", part, " of ", parts, ", ", pieces, " pieces"));
        const AttentionQueries queries{{shape.tokens, parts, pieces}, part};
        const std::int64_t width = shape.heads * shape.head_width;
        const std::int64_t kv_width = 2 * shape.kv_heads * shape.head_width;
        const std::int64_t rows = shape.batch * shape.tokens / parts;
        const Doubles q = inputs<T>(rows * width, 1, 1, 0.25);
        const Doubles kv = inputs<T>(shape.batch * shape.tokens * kv_width, 2, 1, 0.25);
        const Doubles dout = inputs<T>(rows * width, 3, 1, 0.25);
        const AttentionResults narrow = run_attention_part<T>(shape, queries, q, kv, dout, {});
        const AttentionResults wide =
            run_attention_part<double>(shape, queries, q, kv, dout, narrow);
        EXPECT_STORED(narrow.out, wide.out, width, 2);
        EXPECT_FLOAT(narrow.log_sum_exp, wide.log_sum_exp);
        EXPECT_STORED(narrow.dqkv, wide.dqkv, static_cast<std::int64_t>(wide.dqkv.size()), 2);
      }
}

/// A, B and C of a product, with padding after their rows.
struct Product {
  std::int64_t m, n, k, padding;
  Transpose turn_a, turn_b;

  std::int64_t a_columns() const { return turn_a == Transpose::yes ? m : k; }
  std::int64_t b_columns() const { return turn_b == Transpose::yes ? k : n; }
  std::int64_t a_rows() const { return turn_a == Transpose::yes ? k : m; }
  std::int64_t b_rows() const { return turn_b == Transpose::yes ? n : k; }
};

template <class T, class C>
Doubles run_gemm(const Product& p, double alpha, const Doubles& a, const Doubles& b, double beta,
                 const Doubles& c) {
  const auto device_a = device<T>(a), device_b = device<T>(b);
  const auto device_c = device<C>(c);
  const View<T**> of_a(device_a.data(), p.a_rows(), p.a_columns(), p.a_columns() + p.padding);
  const View<T**> of_b(device_b.data(), p.b_rows(), p.b_columns(), p.b_columns() + 2 * p.padding);
  const View<C**> of_c(device_c.data(), p.m, p.n, p.n + 3 * p.padding);
  using Compute = compute_t<T>;
  gemm<T>(Exec(), p.turn_a, p.turn_b, static_cast<Compute>(alpha), of_a, of_b,
          static_cast<Compute>(beta), of_c);
  return doubles(device_c);
}

template <class T>
void check_gemm(const Product& p, double alpha, double beta) {
  SCOPED_TRACE(text(p.m, " x ", p.n, " x ", p.k, p.turn_a == Transpose::yes ? ", A transposed" : "",
                    p.turn_b == Transpose::yes ? ", B transposed" : "", ", alpha ", alpha,
                    ", beta ", beta, ", padding ", p.padding));
  const Doubles a = inputs<T>(p.a_rows() * (p.a_columns() + p.padding), 1, 1, 0.1);
  const Doubles b = inputs<T>(p.b_rows() * (p.b_columns() + 2 * p.padding), 2, 1, 0.1);
  Doubles c = inputs<T>(p.m * (p.n + 3 * p.padding), 3);
  const Doubles expected = run_gemm<double, double>(p, alpha, a, b, beta, c);
  if (beta == 0)  // must not be read
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = 0; j < p.n; ++j)
        c[i * (p.n + 3 * p.padding) + j] = std::numeric_limits<double>::quiet_NaN();
  const std::int64_t stride = p.n + 3 * p.padding;
  EXPECT_LE(row_error(run_gemm<T, T>(p, alpha, a, b, beta, c), expected, stride),
            one_store<T> + float_sums);
  EXPECT_LE(row_error(run_gemm<T, float>(p, alpha, a, b, beta, c), expected, stride), float_sums);
}

TYPED_TEST(HalfKernels, Gemm) {
  using T = TypeParam;
  const std::vector<std::vector<std::int64_t>> shapes = {
      {1, 1, 1},     {1, 5, 3},    {7, 1, 2},      {3, 4, 1},      {17, 19, 23},   {64, 64, 64},
      {65, 130, 33}, {5, 200, 70}, {1, 300, 1100}, {1030, 9, 600}, {33, 2050, 515}};
  for (const auto& shape : shapes)
    for (const Transpose turn_a : {Transpose::no, Transpose::yes})
      for (const Transpose turn_b : {Transpose::no, Transpose::yes})
        for (const std::int64_t padding : {0, 3}) {
          const Product product{shape[0], shape[1], shape[2], padding, turn_a, turn_b};
          check_gemm<T>(product, 1, padding == 0 ? 0 : 1);
          check_gemm<T>(product, padding == 0 ? -0.5 : 0.125, padding == 0 ? 2 : 0);
        }
  check_gemm<T>({3, 4, 0, 2, Transpose::no, Transpose::yes}, 1, 0);
  check_gemm<T>({3, 4, 0, 2, Transpose::no, Transpose::yes}, 1, 0.5);
  check_gemm<T>({0, 4, 3, 0, Transpose::no, Transpose::no}, 1, 0);
}

TYPED_TEST(HalfKernels, GemmRepeatsItsBits) {
  using T = TypeParam;
  const Product product{1100, 70, 600, 0, Transpose::no, Transpose::yes};
  const Doubles a = inputs<T>(1100 * 600, 1), b = inputs<T>(70 * 600, 2), c = inputs<T>(77000, 3);
  const Doubles first = run_gemm<T, float>(product, 1, a, b, 0, c);
  run_gemm<T, T>({3, 5, 7, 0, Transpose::no, Transpose::no}, 1, a, b, 0, Doubles(15, 0.0));
  EXPECT_EQ(first, (run_gemm<T, float>(product, 1, a, b, 0, c)));
}

TEST(GemmOf16Bits, SaysHowItIsMade) { EXPECT_FALSE(std::string(gemm_kernel_16bit()).empty()); }

}  // namespace
}  // namespace ostrakon::math
