// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/math/products/amx_gemm.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "math/compare.hpp"
#include "math/products/product_case.hpp"

namespace ostrakon::math {
namespace {

#define SKIP_WITHOUT_AMX() \
  if (!has_amx()) GTEST_SKIP() << "this processor, or this system, has no AMX for bf16"

/// Computes in plain loops what amx_gemm() specifies.
template <class C>
void in_plain_loops(const OrderedProduct& p, const bf16* a, const bf16* b, C* c) {
  const bool onto_c = std::is_same<C, float>::value && p.alpha == 1 && p.beta == 1;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      C& element = c[i * p.c_row + j];
      float sum = onto_c ? static_cast<float>(element) : 0.0f;
      for (std::int64_t first = 0; first < p.k; first += 32) {
        float even_and_odd[2] = {};
        for (std::int64_t t = first; t < std::min(p.k, first + 32); ++t)
          even_and_odd[t % 2] =
              std::fma(static_cast<float>(a[i * p.a.row + t * p.a.column]),
                       static_cast<float>(b[t * p.b.row + j * p.b.column]), even_and_odd[t % 2]);
        sum += even_and_odd[0] + even_and_odd[1];
      }
      if (onto_c)
        element = static_cast<C>(sum);
      else if (p.beta == 0)
        element = static_cast<C>(p.alpha * sum);
      else
        element = static_cast<C>(std::fma(p.alpha, sum, p.beta * static_cast<float>(element)));
    }
}

using Shape = test::ProductShape;
using test::same_bits;
using test::text_of;
template <class C>
using ProductCase = test::ProductCase<bf16, C, std::vector>;

template <class C>
class AmxGemm : public ::testing::Test {};
using Results = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(AmxGemm, Results);

TYPED_TEST(AmxGemm, HasTheBitsOfPlainLoops) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(1);
  // Complete and incomplete tiles in rows, columns and terms; several blocks, panels and passes.
  std::vector<Shape> shapes = {{1, 1, 1},     {16, 16, 32},  {17, 33, 31},  {32, 32, 64},
                               {33, 15, 65},  {5, 300, 7},   {700, 20, 70}, {20, 520, 300},
                               {64, 64, 257}, {40, 70, 1100}};
  std::uniform_int_distribution<std::int64_t> side(1, 90), terms(1, 600);
  for (int i = 0; i < 10; ++i) shapes.push_back({side(random), side(random), terms(random)});
  for (const Shape& shape : shapes)
    for (const int turned : {0, 1, 2, 3})
      for (const float beta : {0.0f, 1.0f, 0.3f})
        for (const float alpha : {1.0f, 0.7f}) {
          ProductCase<TypeParam> one(shape, turned & 1, turned & 2, turned == 1 ? 3 : 0, alpha,
                                     beta, random);
          std::vector<TypeParam> expected = one.c;
          in_plain_loops(one.product, one.a.data(), one.b.data(), expected.data());
          amx_gemm(one.product, one.a.data(), one.b.data(), one.c.data());
          EXPECT_TRUE(same_bits(one.c, expected)) << text_of(one.product);
        }
}

/// Covers more terms than are packed at once, a C larger than caches, and more columns than sums
/// are kept for.
TYPED_TEST(AmxGemm, LargeProductsHaveTheBitsOfTheirParts) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(2);
  for (const Shape& shape : {Shape{600, 1100, 4500}, Shape{1100, 1024, 600}, Shape{70, 2100, 5000},
                             Shape{2100, 600, 513}})
    for (const int turned : {0, 1, 2}) {
      ProductCase<TypeParam> whole(shape, turned & 1, turned & 2, 0, 1, 0, random);
      const OrderedProduct& p = whole.product;
      amx_gemm(p, whole.a.data(), whole.b.data(), whole.c.data());
      for (int i = 0; i < 4; ++i) {
        OrderedProduct part = p;
        part.m = 1 + static_cast<std::int64_t>(random() % 30);
        part.n = 1 + static_cast<std::int64_t>(random() % 30);
        const std::int64_t row = static_cast<std::int64_t>(random() % (p.m - part.m + 1));
        const std::int64_t column = static_cast<std::int64_t>(random() % (p.n - part.n + 1));
        part.c_row = part.n;
        std::vector<TypeParam> c(static_cast<std::size_t>(part.m * part.n));
        in_plain_loops(part, whole.a.data() + row * p.a.row, whole.b.data() + column * p.b.column,
                       c.data());
        for (std::int64_t r = 0; r < part.m; ++r)
          EXPECT_EQ(0, std::memcmp(&c[static_cast<std::size_t>(r * part.n)],
                                   whole.c.data() + (row + r) * p.c_row + column,
                                   static_cast<std::size_t>(part.n) * sizeof(TypeParam)))
              << text_of(p) << ", " << part.m << " x " << part.n << " from (" << row << ", "
              << column << ")";
      }
    }
}

TYPED_TEST(AmxGemm, PartsHaveTheBitsOfTheWhole) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(3);
  std::uniform_int_distribution<std::int64_t> side(1, 300), terms(1, 700);
  for (int i = 0; i < 60; ++i) {
    ProductCase<TypeParam> whole({side(random), side(random), terms(random)}, i & 1, i & 2, i % 5,
                                 1, 0, random);
    const OrderedProduct& p = whole.product;
    amx_gemm(p, whole.a.data(), whole.b.data(), whole.c.data());
    OrderedProduct part = p;
    part.m = 1 + static_cast<std::int64_t>(random() % p.m);
    part.n = 1 + static_cast<std::int64_t>(random() % p.n);
    const std::int64_t row = static_cast<std::int64_t>(random() % (p.m - part.m + 1));
    const std::int64_t column = static_cast<std::int64_t>(random() % (p.n - part.n + 1));
    std::vector<TypeParam> c(static_cast<std::size_t>(part.m * part.n));
    part.c_row = part.n;
    amx_gemm(part, whole.a.data() + row * p.a.row, whole.b.data() + column * p.b.column, c.data());
    for (std::int64_t r = 0; r < part.m; ++r)
      EXPECT_EQ(0, std::memcmp(&c[static_cast<std::size_t>(r * part.n)],
                               whole.c.data() + (row + r) * p.c_row + column,
                               static_cast<std::size_t>(part.n) * sizeof(TypeParam)))
          << text_of(p) << ", " << part.m << " x " << part.n << " from (" << row << ", " << column
          << ")";
  }
}

/// Sums over terms that are added product by product, as in a gradient.
TEST(AmxGemmOfFloat, RunsOfTermsHaveTheBitsOfAllOfThem) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(4);
  for (const Shape& shape : {Shape{50, 70, 800}, Shape{33, 16, 96}, Shape{700, 300, 1300}}) {
    ProductCase<float> whole(shape, true, false, 0, 1, 0, random);
    const OrderedProduct& p = whole.product;
    amx_gemm(p, whole.a.data(), whole.b.data(), whole.c.data());
    for (const std::int64_t run : {32, 256, 320}) {
      std::vector<float> c(whole.c.size(), std::numeric_limits<float>::quiet_NaN());
      for (std::int64_t first = 0; first < p.k; first += run) {
        OrderedProduct part = p;
        part.k = std::min(run, p.k - first);
        part.beta = first == 0 ? 0.0f : 1.0f;
        amx_gemm(part, whole.a.data() + first * p.a.column, whole.b.data() + first * p.b.row,
                 c.data());
      }
      EXPECT_TRUE(same_bits(c, whole.c)) << text_of(p) << " in runs of " << run;
    }
  }
}

/// A large C whose rows are aligned to cache lines is written by non-temporal stores, except
/// incomplete lines.
TEST(AmxGemmOfFloat, HasItsBitsWhereverRowsBegin) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(7);
  constexpr std::int64_t line = 16;
  const Shape shape{1000, 1100, 300};
  ProductCase<float> one(shape, false, false, 4, 0.5f, 0, random);  // rows of 69 lines
  ASSERT_EQ(one.product.c_row % line, 0);
  std::vector<float> room(one.c.size() + 2 * line);
  const auto past = reinterpret_cast<std::uintptr_t>(room.data()) / sizeof(float) % line;
  float* const aligned = room.data() + (line - static_cast<std::int64_t>(past));
  std::vector<float> found[2];
  for (const std::int64_t shift : {0, 1}) {
    float* const c = aligned + shift;
    std::copy(one.c.begin(), one.c.end(), c);
    amx_gemm(one.product, one.a.data(), one.b.data(), c);
    found[shift].assign(c, c + one.c.size());
    for (std::int64_t i = 0; i < shape.m; ++i)
      for (std::int64_t j = shape.n; j < one.product.c_row; ++j) {
        const auto at = static_cast<std::size_t>(i * one.product.c_row + j);
        ASSERT_EQ(found[shift][at], one.c[at]) << "behind row " << i;
      }
  }
  EXPECT_TRUE(same_bits(found[0], found[1]));
  OrderedProduct row = one.product;
  row.m = 1;
  std::vector<float> expected(static_cast<std::size_t>(shape.n));
  in_plain_loops(row, one.a.data(), one.b.data(), expected.data());
  EXPECT_EQ(0, std::memcmp(expected.data(), found[0].data(), expected.size() * sizeof(float)));
}

TYPED_TEST(AmxGemm, ThreadsChangeNoBit) {
  SKIP_WITHOUT_AMX();
  std::mt19937 random(5);
  for (const Shape& shape : {Shape{97, 301, 270}, Shape{500, 33, 100}, Shape{1, 5000, 400}}) {
    ProductCase<TypeParam> one(shape, false, true, 0, 1, 0, random);
    std::vector<TypeParam> first;
    for (const int threads : {1, 2, 3, 4}) {
      set_gemm_threads(threads);
      amx_gemm(one.product, one.a.data(), one.b.data(), one.c.data());
      if (first.empty()) first = one.c;
      EXPECT_TRUE(same_bits(first, one.c)) << threads << " threads";
    }
    std::vector<TypeParam> other(one.c.size());
    std::thread([&] { amx_gemm(one.product, one.a.data(), one.b.data(), other.data()); }).join();
    EXPECT_TRUE(same_bits(first, other)) << "on another thread";
  }
  set_gemm_threads(1);
}

/// gemm() multiplies bf16 by AMX if it can, and says so.
TEST(AmxGemmOfFloat, IsWhatGemmTakes) {
  SKIP_WITHOUT_AMX();
  if (products_on_device) GTEST_SKIP() << "products are made on a device";
  EXPECT_STREQ(gemm_kernel_16bit(DType::bf16), "AMX");
  std::mt19937 random(6);
  ProductCase<float> one({40, 50, 333}, false, true, 0, 1, 0, random);
  std::vector<float> expected = one.c;
  in_plain_loops(one.product, one.a.data(), one.b.data(), expected.data());
  gemm<bf16, float>(
      Exec(), Transpose::no, Transpose::yes, 1, View<const bf16**>(one.a.data(), 40, 333),
      View<const bf16**>(one.b.data(), 50, 333), 0, View<float**>(one.c.data(), 40, 50));
  EXPECT_TRUE(same_bits(one.c, expected));
}

}  // namespace
}  // namespace ostrakon::math
