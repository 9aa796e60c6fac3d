// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <ostrakon/math/products/tile_kernels.hpp>
#include <random>
#include <string>
#include <vector>

#include "math/compare.hpp"
#include "math/guarded.hpp"
#include "math/products/product_case.hpp"

namespace ostrakon::math {
namespace {

using Shape = test::ProductShape;
using test::Guarded;
using test::same_bits;
using test::text_of;
template <class T, class C>
using ProductCase = test::ProductCase<T, C, Guarded>;

/// Computes in plain loops what ordered_gemm() specifies.
template <class T, class C>
void in_plain_loops(const OrderedProduct& p, const T* a, const T* b, C* c) {
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      float element = p.beta == 0 ? 0.0f : static_cast<float>(c[i * p.c_row + j]);
      for (std::int64_t chunk = 0; chunk < p.k; chunk += product_chunk) {
        float sum = 0;
        for (std::int64_t t = chunk; t < std::min(p.k, chunk + product_chunk); ++t)
          sum = std::fma(static_cast<float>(a[i * p.a.row + t * p.a.column]),
                         static_cast<float>(b[t * p.b.row + j * p.b.column]), sum);
        if (chunk == 0 && p.beta == 0)
          element = p.alpha * sum;
        else
          element = std::fma(p.alpha, sum, (chunk == 0 ? p.beta : 1.0f) * element);
      }
      c[i * p.c_row + j] = static_cast<C>(element);
    }
}

std::vector<const TileKernels*> kernels_here() {
  std::vector<const TileKernels*> kernels = {&tile_kernels_plain()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back(&tile_kernels_avx2());
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(&tile_kernels_avx512());
#endif
  return kernels;
}

// Runs the kernel for a type of element, with the workspace `room`.
void run(const TileKernels& kernels, const OrderedProduct& p, const float* a, const float* b,
         float* c, float* room) {
  kernels.of_float(p, a, b, c, room);
}
const Bf16Bits* bits_of(const bf16* x) { return reinterpret_cast<const Bf16Bits*>(x); }
const Fp16Bits* bits_of(const fp16* x) { return reinterpret_cast<const Fp16Bits*>(x); }
void run(const TileKernels& kernels, const OrderedProduct& p, const bf16* a, const bf16* b,
         float* c, float* room) {
  kernels.of_bf16(p, bits_of(a), bits_of(b), c, room);
}
void run(const TileKernels& kernels, const OrderedProduct& p, const bf16* a, const bf16* b, bf16* c,
         float* room) {
  kernels.of_bf16_to_bf16(p, bits_of(a), bits_of(b), reinterpret_cast<Bf16Bits*>(c), room);
}
void run(const TileKernels& kernels, const OrderedProduct& p, const fp16* a, const fp16* b,
         float* c, float* room) {
  kernels.of_fp16(p, bits_of(a), bits_of(b), c, room);
}
void run(const TileKernels& kernels, const OrderedProduct& p, const fp16* a, const fp16* b, fp16* c,
         float* room) {
  kernels.of_fp16_to_fp16(p, bits_of(a), bits_of(b), reinterpret_cast<Fp16Bits*>(c), room);
}

template <class Types>
class OrderedGemmOf : public ::testing::Test {};
template <class Factor, class Result>
struct Elements {
  using T = Factor;
  using C = Result;
};
using AllElements =
    ::testing::Types<Elements<float, float>, Elements<bf16, float>, Elements<bf16, bf16>,
                     Elements<fp16, float>, Elements<fp16, fp16>>;
TYPED_TEST_SUITE(OrderedGemmOf, AllElements, );

TYPED_TEST(OrderedGemmOf, EveryKernelHasTheBitsOfPlainLoops) {
  using C = typename TypeParam::C;
  std::mt19937 random(1);
  Guarded<float> room(sizeof(C) == sizeof(float) ? tile_room : tile_room_16bit);
  std::fill_n(room.data(), room.size(), NAN);
  std::vector<Shape> shapes = {{1, 1, 1},    {1, 40, 300}, {4, 33, 17},  {5, 17, 256},
                               {14, 32, 8},  {15, 64, 65}, {6, 16, 257}, {64, 31, 64},
                               {253, 35, 9}, {70, 1, 30},  {29, 1030, 5}};
  std::uniform_int_distribution<std::int64_t> side(1, 90), terms(1, 600);
  for (int i = 0; i < 12; ++i) shapes.push_back({side(random), side(random), terms(random)});
  for (const Shape& shape : shapes)
    for (const int turned : {0, 1, 2, 3})
      for (const float beta : {0.0f, 1.0f, 0.3f}) {
        ProductCase<typename TypeParam::T, C> expected(
            shape, turned & 1, turned & 2, turned == 1 ? 3 : 0, beta == 0 ? 1 : 0.7f, beta, random);
        const std::vector<C> before = expected.values_of_c();
        in_plain_loops(expected.product, expected.a.data(), expected.b.data(), expected.c.data());
        const std::vector<C> wanted = expected.values_of_c();
        for (const TileKernels* kernel : kernels_here()) {
          std::copy(before.begin(), before.end(), expected.c.data());
          run(*kernel, expected.product, expected.a.data(), expected.b.data(), expected.c.data(),
              room.data());
          EXPECT_TRUE(same_bits(expected.values_of_c(), wanted))
              << kernel->name << ": " << text_of(expected.product);
        }
      }
}

/// Covers more rows than are packed at a time, more columns than a panel, and more terms than are
/// kept.
TYPED_TEST(OrderedGemmOf, KernelsAgreeOnLargeMatrices) {
  using C = typename TypeParam::C;
  std::mt19937 random(2);
  Guarded<float> room(sizeof(C) == sizeof(float) ? tile_room : tile_room_16bit);
  std::fill_n(room.data(), room.size(), NAN);
  // The last three fill the buffer for packed A completely.
  for (const Shape& shape : {Shape{1400, 70, 300}, Shape{40, 1100, 20000}, Shape{300, 2100, 600},
                             Shape{448, 33, 1024}, Shape{1792, 33, 512}, Shape{14, 33, 32768}})
    for (const int turned : {0, 1, 2}) {
      ProductCase<typename TypeParam::T, C> one(shape, turned & 1, turned & 2, 0, 0.7f, 0.3f,
                                                random);
      const std::vector<C> before = one.values_of_c();
      std::vector<C> first;
      for (const TileKernels* kernel : kernels_here()) {
        if (kernel == &tile_kernels_plain() && kernels_here().size() > 2) continue;  // slow
        std::copy(before.begin(), before.end(), one.c.data());
        run(*kernel, one.product, one.a.data(), one.b.data(), one.c.data(), room.data());
        if (first.empty()) first = one.values_of_c();
        EXPECT_TRUE(same_bits(first, one.values_of_c())) << kernel->name << text_of(one.product);
      }
      // Some elements are compared one by one.
      std::uniform_int_distribution<std::int64_t> any(0, shape.m * shape.n - 1);
      for (int n = 0; n < 100; ++n) {
        const std::int64_t at = n == 0 ? shape.m * shape.n - 1 : any(random);
        const std::int64_t i = at / shape.n, j = at % shape.n;
        OrderedProduct element = one.product;
        element.m = element.n = 1;
        C value = before[static_cast<std::size_t>(at)];
        in_plain_loops(element, one.a.data() + i * element.a.row,
                       one.b.data() + j * element.b.column, &value);
        ASSERT_EQ(static_cast<float>(value),
                  static_cast<float>(first[static_cast<std::size_t>(at)]))
            << text_of(one.product) << " at " << i << ", " << j;
      }
    }
}

/// Computes only rows [row, row + rows) and columns [column, column + columns) of C.
TYPED_TEST(OrderedGemmOf, PartsHaveTheBitsOfTheWhole) {
  using C = typename TypeParam::C;
  std::mt19937 random(3);
  std::uniform_int_distribution<std::int64_t> side(1, 200), terms(1, 700);
  for (int i = 0; i < 60; ++i) {
    ProductCase<typename TypeParam::T, C> whole({side(random), side(random), terms(random)}, i & 1,
                                                i & 2, i % 5, 1, 0, random);
    const OrderedProduct& p = whole.product;
    ordered_gemm(p, whole.a.data(), whole.b.data(), whole.c.data());
    OrderedProduct part = p;
    part.m = 1 + static_cast<std::int64_t>(random() % p.m);
    part.n = 1 + static_cast<std::int64_t>(random() % p.n);
    const std::int64_t row = static_cast<std::int64_t>(random() % (p.m - part.m + 1));
    const std::int64_t column = static_cast<std::int64_t>(random() % (p.n - part.n + 1));
    std::vector<C> c(static_cast<std::size_t>(part.m * part.n));
    part.c_row = part.n;
    ordered_gemm(part, whole.a.data() + row * p.a.row, whole.b.data() + column * p.b.column,
                 c.data());
    for (std::int64_t r = 0; r < part.m; ++r)
      EXPECT_EQ(0, std::memcmp(&c[static_cast<std::size_t>(r * part.n)],
                               whole.c.data() + (row + r) * p.c_row + column,
                               static_cast<std::size_t>(part.n) * sizeof(C)))
          << text_of(p) << ", " << part.m << " x " << part.n << " from (" << row << ", " << column
          << ")";
  }
}

/// Covers infinities, NaNs, subnormals, and values that round to them.
template <class T>
void expect_conversions_of_half_hpp() {
  const T factor(1.75f);
  std::vector<float> room(tile_room_16bit, NAN);
  for (const TileKernels* kernel : kernels_here())
    for (const float x : {0.0f, 1.0f, -65504.0f, 1e38f, 6.1e-5f, 3e-6f, INFINITY, -INFINITY, NAN,
                          1.00390625f, 1.01171875f, std::numeric_limits<float>::denorm_min()}) {
      const T a(x);
      T c(0.0f);
      run(*kernel, {1, 1, 1, {1, 1}, {1, 1}, 1, 1.1f, 0}, &a, &factor, &c, room.data());
      const T expected(1.1f * (static_cast<float>(a) * 1.75f));
      if (std::isnan(static_cast<float>(expected)))
        EXPECT_TRUE(std::isnan(static_cast<float>(c))) << kernel->name;
      else
        EXPECT_EQ(c.bits, expected.bits) << kernel->name << ", " << x;
    }
}

TEST(OrderedGemm, RoundsAsHalvesAreRounded) {
  expect_conversions_of_half_hpp<bf16>();
  expect_conversions_of_half_hpp<fp16>();
}

TYPED_TEST(OrderedGemmOf, ThreadsChangeNoBit) {
  using C = typename TypeParam::C;
  std::mt19937 random(4);
  for (const Shape& shape :
       {Shape{97, 301, 270}, Shape{500, 33, 100}, Shape{1, 5000, 400}, Shape{64, 200, 300}}) {
    ProductCase<typename TypeParam::T, C> one(shape, false, true, 0, 1, 0, random);
    std::vector<C> first;
    for (const int threads : {1, 2, 3, 4}) {
      set_gemm_threads(threads);
      ordered_gemm(one.product, one.a.data(), one.b.data(), one.c.data());
      if (first.empty()) first = one.values_of_c();
      EXPECT_TRUE(same_bits(first, one.values_of_c())) << threads << " threads";
    }
  }
  set_gemm_threads(1);
}

}  // namespace
}  // namespace ostrakon::math
