// SPDX-License-Identifier: Apache-2.0
// Attention and products of 16-bit arrays.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <string>

#include "math/half_kernels.hpp"

namespace ostrakon::math {
namespace {

using namespace halves;

template <class T>
class HalfMatrices : public ::testing::Test {};
TYPED_TEST_SUITE(HalfMatrices, Halves);

struct AttentionResults {
  Doubles out, log_sum_exp, dqkv;
};

template <class T>
AttentionResults run_attention(const AttentionShape& shape, const Doubles& qkv, const Doubles& out,
                               const Doubles& log_sum_exp, const Doubles& dout,
                               std::int64_t shift) {
  using C = compute_t<T>;
  const std::int64_t width = shape.out_columns();
  const std::int64_t all_width = shape.query_columns() + shape.kv_columns();
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
TEST(HalfMatricesInFloat, AreUsedWhereTheEnvironmentSaysSo) {
  const char* const most = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (most == nullptr || std::string(most) != "AVX2" || products_on_device)
    GTEST_SKIP() << "this processor's units are used";
  EXPECT_EQ(half_products<fp16>(), HalfProducts::in_float);
}

TYPED_TEST(HalfMatrices, Attention) {
  using T = TypeParam;
  const std::vector<AttentionShape> shapes = {
      {1, 1, 1, 1, 4},    {2, 7, 3, 1, 5},   {1, 65, 2, 2, 3},  {2, 150, 4, 2, 6},
      {1, 700, 4, 2, 16}, {3, 70, 6, 6, 20}, {2, 65, 2, 1, 64}, {2, 150, 4, 2, 24, {}, 10}};
  for (const AttentionShape& shape : shapes)
    for (const std::int64_t shift : {0, 1}) {
      SCOPED_TRACE(text("tokens ", shape.tokens, ", workspace at ", shift));
      const std::int64_t rows = shape.batch * shape.tokens;
      const std::int64_t width = shape.out_columns();
      const std::int64_t all_width = shape.query_columns() + shape.kv_columns();
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

TYPED_TEST(HalfMatrices, AttentionOfPartsAndPieces) {
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

TYPED_TEST(HalfMatrices, Gemm) {
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

TYPED_TEST(HalfMatrices, GemmRepeatsItsBits) {
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
