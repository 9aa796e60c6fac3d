// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products by a device's library, for gemm.cpp alone.

#include <limits>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/pinned_products.hpp>
#include <ostrakon/math/products/product_parts.hpp>
#include <type_traits>

namespace ostrakon::math {
namespace {

template <class T>
constexpr ElementType element_type = std::is_same<T, bf16>::value     ? ElementType::bf16
                                     : std::is_same<T, fp16>::value   ? ElementType::fp16
                                     : std::is_same<T, double>::value ? ElementType::fp64
                                                                      : ElementType::fp32;

/// Smaller products, of 4096 rows, lose more by another launch than multiply_in_parts() gains;
/// other types, and the fake device, gain nothing.
template <class T>
constexpr std::int64_t worth_dividing = is_16bit<T>&& products_on_device
                                            ? (std::int64_t{1} << 27) / 4096
                                            : std::numeric_limits<std::int64_t>::max();

template <class T, class C>
DeviceProduct product_of(bool turn_a, bool turn_b, const ProductExtents& extents,
                         const Batch<const T>& a, const Batch<const T>& b, const Batch<C>& c,
                         Varies varies) {
  DeviceProduct product;
  product.turn_a = turn_a;
  product.turn_b = turn_b;
  product.factors = element_type<T>;
  product.result = element_type<C>;
  product.m = extents.m;
  product.n = extents.n;
  product.k = extents.k;
  product.row_a = a.first().stride();
  product.row_b = b.first().stride();
  product.row_c = c.first().stride();
  product.count = c.count();
  product.step_a = a.stride();
  product.step_b = b.stride();
  product.step_c = c.stride();
  product.varies = varies;
  return product;
}

template <class T, class C>
void pinned_gemm(const Exec& exec, bool turn_a, bool turn_b, const ProductExtents& whole,
                 compute_t<T> alpha, const Batch<const T>& a, const Batch<const T>& b,
                 compute_t<T> whole_beta, const Batch<C>& c, Varies varies) {
  DeviceProduct product = product_of<T, C>(turn_a, turn_b, whole, a, b, c, varies);
  const auto multiply = [&](const ProductPart<T, C>& part, compute_t<T> beta) {
    product.m = part.extents.m;
    product.n = part.extents.n;
    product.k = part.extents.k;
    multiply_pinned(exec, product, {part.a, part.b, part.c, part.c, nullptr, alpha, beta});
  };
  const ProductPart<T, C> all = {a.first().data(), b.first().data(), c.first().data(), whole};
  if (varies != Varies::nothing) return multiply(all, whole_beta);
  multiply_in_parts(all, ProductLayout{turn_a, turn_b, product.row_a, product.row_b, product.row_c},
                    whole_beta, worth_dividing<T>, multiply);
}

/// Whether one product can have addends, for any number of rows: it is not divided, and cuBLASLt
/// has biases of the type.
template <class T>
bool adds_in_product(const ProductExtents& all) {
  if (std::is_same<T, double>::value) return false;
  const auto is_odd = [](std::int64_t size) { return size % 8 != 0; };
  return all.n * all.k < worth_dividing<T> || !(is_odd(all.n) || is_odd(all.k));
}

}  // namespace
}  // namespace ostrakon::math
