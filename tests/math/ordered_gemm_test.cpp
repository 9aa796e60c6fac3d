// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/ordered_gemm.hpp>
#include <ostrakon/math/tile_kernels.hpp>
#include <random>
#include <string>
#include <vector>

namespace ostrakon::math {
namespace {

/// `size` floats before memory that nobody may touch.
class Guarded {
 public:
  explicit Guarded(std::int64_t size) : size_(size) {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    bytes_ = (size * 4 + page - 1) / page * page;
    void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes_ + page),
                              PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
    mprotect(memory_ + bytes_, static_cast<std::size_t>(page), PROT_NONE);
    page_ = page;
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(memory_, static_cast<std::size_t>(bytes_ + page_)); }

  float* data() { return reinterpret_cast<float*>(memory_ + bytes_) - size_; }
  std::int64_t size() const { return size_; }

 private:
  std::int64_t size_, bytes_ = 0, page_ = 0;
  char* memory_ = nullptr;
};

void fill(float* values, std::int64_t count, std::mt19937& random) {
  std::uniform_real_distribution<float> between(-1, 1);
  for (std::int64_t i = 0; i < count; ++i) values[i] = between(random);
}

/// What ordered_gemm() promises, in plain loops.
void in_plain_loops(const OrderedProduct& p, const float* a, const float* b, float* c) {
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      float& element = c[i * p.c_row + j];
      for (std::int64_t chunk = 0; chunk < p.k; chunk += product_chunk) {
        float sum = 0;
        for (std::int64_t t = chunk; t < std::min(p.k, chunk + product_chunk); ++t)
          sum = std::fma(a[i * p.a.row + t * p.a.column], b[t * p.b.row + j * p.b.column], sum);
        if (chunk == 0 && p.beta == 0)
          element = p.alpha * sum;
        else
          element = std::fma(p.alpha, sum, (chunk == 0 ? p.beta : 1.0f) * element);
      }
    }
}

struct NamedKernel {
  const char* name;
  TileMultiply multiply;
};

std::vector<NamedKernel> kernels_here() {
  std::vector<NamedKernel> kernels = {{"plain", tile_multiply_plain}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    kernels.push_back({"AVX2", tile_multiply_avx2});
  if (__builtin_cpu_supports("avx512f")) kernels.push_back({"AVX-512", tile_multiply_avx512});
#endif
  return kernels;
}

struct Shape {
  std::int64_t m, n, k;
};

/// A, B and C end where memory does; rows of C are followed by others, which must stay.
struct ProductCase {
  ProductCase(const Shape& shape, bool turn_a, bool turn_b, std::int64_t padding, float alpha,
              float beta, std::mt19937& random)
      : a((turn_a ? shape.k : shape.m) * ((turn_a ? shape.m : shape.k) + padding) - padding),
        b((turn_b ? shape.n : shape.k) * ((turn_b ? shape.k : shape.n) + padding) - padding),
        c(shape.m * (shape.n + padding) - padding) {
    const std::int64_t a_stride = (turn_a ? shape.m : shape.k) + padding;
    const std::int64_t b_stride = (turn_b ? shape.k : shape.n) + padding;
    product = {shape.m,
               shape.n,
               shape.k,
               turn_a ? Strides{1, a_stride} : Strides{a_stride, 1},
               turn_b ? Strides{1, b_stride} : Strides{b_stride, 1},
               shape.n + padding,
               alpha,
               beta};
    for (Guarded* one : {&a, &b, &c}) fill(one->data(), one->size(), random);
  }

  std::vector<float> values_of_c() { return {c.data(), c.data() + c.size()}; }

  Guarded a, b, c;
  OrderedProduct product;
};

std::string text_of(const OrderedProduct& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) +
         (p.a.row == 1 ? " A'" : " A") + (p.b.row == 1 ? " B'" : " B") + ", beta " +
         std::to_string(p.beta);
}

bool same_bits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() &&
         std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

TEST(OrderedGemm, EveryKernelHasTheBitsOfPlainLoops) {
  std::mt19937 random(1);
  std::vector<float> room(tile_room);
  std::vector<Shape> shapes = {{1, 1, 1},    {1, 40, 300}, {4, 33, 17},  {5, 17, 256},
                               {14, 32, 8},  {15, 64, 65}, {6, 16, 257}, {64, 31, 64},
                               {253, 35, 9}, {70, 1, 30},  {29, 1030, 5}};
  std::uniform_int_distribution<std::int64_t> side(1, 90), terms(1, 600);
  for (int i = 0; i < 12; ++i) shapes.push_back({side(random), side(random), terms(random)});
  for (const Shape& shape : shapes)
    for (const int turned : {0, 1, 2, 3})
      for (const float beta : {0.0f, 1.0f, 0.3f}) {
        ProductCase expected(shape, turned & 1, turned & 2, turned == 1 ? 3 : 0,
                             beta == 0 ? 1 : 0.7f, beta, random);
        const std::vector<float> before = expected.values_of_c();
        in_plain_loops(expected.product, expected.a.data(), expected.b.data(), expected.c.data());
        const std::vector<float> wanted = expected.values_of_c();
        for (const NamedKernel& kernel : kernels_here()) {
          std::copy(before.begin(), before.end(), expected.c.data());
          kernel.multiply(expected.product, expected.a.data(), expected.b.data(), expected.c.data(),
                          room.data());
          EXPECT_TRUE(same_bits(expected.values_of_c(), wanted))
              << kernel.name << ": " << text_of(expected.product);
        }
      }
}

/// More rows than are packed at a time, more columns than a panel, more terms than are held.
TEST(OrderedGemm, KernelsAgreeOnLargeMatrices) {
  std::mt19937 random(2);
  std::vector<float> room(tile_room);
  for (const Shape& shape : {Shape{1400, 70, 300}, Shape{40, 1100, 20000}, Shape{300, 2100, 60}})
    for (const int turned : {0, 1, 2}) {
      ProductCase one(shape, turned & 1, turned & 2, 0, 1, 0, random);
      std::vector<float> first;
      for (const NamedKernel& kernel : kernels_here()) {
        if (kernel.multiply == tile_multiply_plain && kernels_here().size() > 2) continue;  // slow
        kernel.multiply(one.product, one.a.data(), one.b.data(), one.c.data(), room.data());
        if (first.empty()) first = one.values_of_c();
        EXPECT_TRUE(same_bits(first, one.values_of_c())) << kernel.name << text_of(one.product);
      }
      // Some elements, one by one.
      for (std::int64_t at : {std::int64_t{0}, shape.m * shape.n / 2, shape.m * shape.n - 1}) {
        const std::int64_t i = at / shape.n, j = at % shape.n;
        OrderedProduct element = one.product;
        element.m = element.n = 1;
        float value = 0;
        in_plain_loops(element, one.a.data() + i * element.a.row,
                       one.b.data() + j * element.b.column, &value);
        EXPECT_EQ(value, first[static_cast<std::size_t>(i * one.product.c_row + j)]);
      }
    }
}

/// Rows [row, row + rows) and columns [column, column + columns) of C alone.
TEST(OrderedGemm, PartsHaveTheBitsOfTheWhole) {
  std::mt19937 random(3);
  std::uniform_int_distribution<std::int64_t> side(1, 200), terms(1, 700);
  for (int i = 0; i < 60; ++i) {
    ProductCase whole({side(random), side(random), terms(random)}, i & 1, i & 2, i % 5, 1, 0,
                      random);
    const OrderedProduct& p = whole.product;
    ordered_gemm(p, whole.a.data(), whole.b.data(), whole.c.data());
    OrderedProduct part = p;
    part.m = 1 + static_cast<std::int64_t>(random() % p.m);
    part.n = 1 + static_cast<std::int64_t>(random() % p.n);
    const std::int64_t row = static_cast<std::int64_t>(random() % (p.m - part.m + 1));
    const std::int64_t column = static_cast<std::int64_t>(random() % (p.n - part.n + 1));
    std::vector<float> c(static_cast<std::size_t>(part.m * part.n));
    part.c_row = part.n;
    ordered_gemm(part, whole.a.data() + row * p.a.row, whole.b.data() + column * p.b.column,
                 c.data());
    for (std::int64_t r = 0; r < part.m; ++r)
      EXPECT_EQ(0, std::memcmp(&c[static_cast<std::size_t>(r * part.n)],
                               whole.c.data() + (row + r) * p.c_row + column,
                               static_cast<std::size_t>(part.n) * sizeof(float)))
          << text_of(p) << ", " << part.m << " x " << part.n << " from (" << row << ", " << column
          << ")";
  }
}

TEST(OrderedGemm, ThreadsChangeNoBit) {
  std::mt19937 random(4);
  for (const Shape& shape : {Shape{97, 301, 270}, Shape{500, 33, 100}, Shape{1, 5000, 400}}) {
    ProductCase one(shape, false, true, 0, 1, 0, random);
    std::vector<float> first;
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
