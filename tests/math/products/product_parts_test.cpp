// SPDX-License-Identifier: Apache-2.0
// Products in parts whose sizes are multiples of 8 add up to the whole product.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostrakon/math/products/product_parts.hpp>
#include <vector>

namespace ostrakon::math {
namespace {

/// Returns small integers, so that all sums are exact.
std::vector<double> numbers(std::int64_t count, std::int64_t seed) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<double>((i * 7 + seed) % 13 - 6));
  return all;
}

/// Computes C = op(A) op(B) + beta C.
void multiply_plainly(const ProductPart<double, double>& part, const ProductLayout& layout,
                      double beta) {
  for (std::int64_t i = 0; i < part.extents.m; ++i)
    for (std::int64_t j = 0; j < part.extents.n; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < part.extents.k; ++k)
        sum += part.a[layout.turn_a ? k * layout.lda + i : i * layout.lda + k] *
               part.b[layout.turn_b ? j * layout.ldb + k : k * layout.ldb + j];
      double& c = part.c[i * layout.ldc + j];
      c = sum + (beta == 0.0 ? 0.0 : beta * c);
    }
}

/// Compares the sum of the parts with the whole product, and returns the parts.
std::vector<ProductExtents> parts_of(bool turn_a, bool turn_b, const ProductExtents& sizes,
                                     double beta, std::int64_t worth_it = 0) {
  const auto [m, n, k] = sizes;
  const ProductLayout layout{turn_a, turn_b, (turn_a ? m : k) + 3, (turn_b ? k : n) + 2, n + 1};
  const std::vector<double> a = numbers((turn_a ? k : m) * layout.lda, 1),
                            b = numbers((turn_b ? n : k) * layout.ldb, 2),
                            before = numbers(m * layout.ldc, 3);
  std::vector<double> whole = before, in_parts = before;
  multiply_plainly({a.data(), b.data(), whole.data(), sizes}, layout, beta);
  std::vector<ProductExtents> parts;
  multiply_in_parts(ProductPart<double, double>{a.data(), b.data(), in_parts.data(), sizes}, layout,
                    beta, worth_it, [&](const ProductPart<double, double>& part, double part_beta) {
                      parts.push_back(part.extents);
                      multiply_plainly(part, layout, part_beta);
                    });
  EXPECT_EQ(in_parts, whole) << turn_a << turn_b << " " << m << " " << n << " " << k << " " << beta;
  return parts;
}

TEST(ProductParts, AddUpToTheWhole) {
  for (const bool turn_a : {false, true})
    for (const bool turn_b : {false, true})
      for (const std::int64_t m : {5, 16, 19})
        for (const std::int64_t n : {8, 21})
          for (const std::int64_t k : {3, 24, 27})
            for (const double beta : {0.0, 1.0, 2.0}) parts_of(turn_a, turn_b, {m, n, k}, beta);
}

TEST(ProductParts, AreDividedAlongRows) {
  // Products are divided along the 53 words if these are the length of rows.
  EXPECT_EQ(parts_of(false, true, {16, 53, 24}, 0.0).size(), 2U);   // logits (rows, words)
  EXPECT_EQ(parts_of(false, false, {16, 24, 53}, 0.0).size(), 2U);  // terms are words
  EXPECT_EQ(parts_of(true, false, {53, 24, 16}, 0.0).size(), 2U);   // words of A^T
  // Products are not divided along columns, as that gains nothing.
  EXPECT_EQ(parts_of(false, false, {53, 24, 16}, 0.0).size(), 1U);
  EXPECT_EQ(parts_of(true, false, {16, 24, 53}, 0.0).size(), 1U);
  EXPECT_EQ(parts_of(false, true, {16, 24, 32}, 0.0).size(), 1U);
  // Small products, and small rests of a division, are not divided.
  EXPECT_EQ(parts_of(false, true, {16, 53, 24}, 0.0, 53 * 24 + 1).size(), 1U);
  EXPECT_EQ(parts_of(true, true, {53, 53, 24}, 0.0, 53 * 24).size(), 2U);
  EXPECT_EQ(parts_of(true, true, {53, 53, 24}, 0.0).size(), 4U);
  for (const ProductExtents& part : parts_of(true, true, {53, 61, 43}, 1.0))
    for (const std::int64_t size : {part.m, part.n, part.k})
      EXPECT_TRUE(size % 8 == 0 || size < 8) << size;
}

TEST(ProductParts, AreTheSameForAnyNumberOfRows) {
  for (const std::int64_t worth_it : {53 * 43 - 1, 53 * 43 + 1}) {
    std::vector<std::size_t> parts;
    for (const std::int64_t m : {1, 16, 400})
      parts.push_back(parts_of(false, true, {m, 53, 43}, 0.0, worth_it).size());
    EXPECT_EQ(parts, std::vector<std::size_t>(3, parts.front())) << worth_it;
    EXPECT_EQ(parts.front() > 1, worth_it <= 53 * 43);
  }
}

}  // namespace
}  // namespace ostrakon::math
