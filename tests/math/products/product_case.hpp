// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products that tests of kernels compute: random matrices of a shape, whichever way they lie.

#include <ostrakon/math/products/ordered_gemm.hpp>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "math/guarded.hpp"

namespace ostrakon::test {

struct ProductShape {
  std::int64_t m, n, k;
};

/// A product of random A and B, of T, and C, of Result, in arrays of type Array. `padding` elements
/// follow each row, and must not change. Guarded arrays end with the last row.
template <class T, class Result, template <class...> class Array>
struct ProductCase {
  ProductCase(const ProductShape& shape, bool turn_a, bool turn_b, std::int64_t padding,
              float alpha, float beta, std::mt19937& random)
      : a(array<T>(turn_a ? shape.k : shape.m, turn_a ? shape.m : shape.k, padding)),
        b(array<T>(turn_b ? shape.n : shape.k, turn_b ? shape.k : shape.n, padding)),
        c(array<Result>(shape.m, shape.n, padding)) {
    const std::int64_t a_stride = (turn_a ? shape.m : shape.k) + padding;
    const std::int64_t b_stride = (turn_b ? shape.k : shape.n) + padding;
    product = {shape.m,
               shape.n,
               shape.k,
               turn_a ? math::Strides{1, a_stride} : math::Strides{a_stride, 1},
               turn_b ? math::Strides{1, b_stride} : math::Strides{b_stride, 1},
               shape.n + padding,
               alpha,
               beta};
    std::uniform_real_distribution<float> between(-1, 1);
    for (T& x : a) x = static_cast<T>(between(random));
    for (T& x : b) x = static_cast<T>(between(random));
    for (Result& x : c) x = static_cast<Result>(between(random));
  }

  std::vector<Result> values_of_c() const { return {c.begin(), c.end()}; }

  Array<T> a, b;
  Array<Result> c;
  math::OrderedProduct product;

 private:
  template <class Element>
  static Array<Element> array(std::int64_t rows, std::int64_t columns, std::int64_t padding) {
    constexpr bool is_guarded = std::is_same_v<Array<Element>, Guarded<Element>>;
    const std::int64_t size = rows * (columns + padding) - (is_guarded ? padding : 0);
    return Array<Element>(static_cast<typename Array<Element>::size_type>(size));
  }
};

inline std::string text_of(const math::OrderedProduct& p) {
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) +
         (p.a.row == 1 ? " A'" : " A") + (p.b.row == 1 ? " B'" : " B") + ", alpha " +
         std::to_string(p.alpha) + ", beta " + std::to_string(p.beta);
}

}  // namespace ostrakon::test
