// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of 16-bit matrices by oneDNN, on processors with instructions for them. Only gemm.cpp
// and gemm_facts.cpp include this file.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>

namespace ostrakon::math::onednn {

enum class Format { fp32, bf16, fp16 };

template <class T>
constexpr Format format_of = std::is_same<T, bf16>::value   ? Format::bf16
                             : std::is_same<T, fp16>::value ? Format::fp16
                                                            : Format::fp32;

/// Whether this oneDNN multiplies matrices of `format` on this processor faster than float
/// matrices.
bool multiplies(Format format);

/// C = alpha A B + beta C for A (m, k), B (k, n) and C (m, n), with m, n and k at least 1. Rows of
/// C are c_row apart. Sums are float.
struct Product {
  Format factors, result;
  std::int64_t m, n, k;
  Strides a, b;
  std::int64_t c_row;
  float alpha, beta;
};

/// Computes a product; returns false, doing nothing, if oneDNN has no implementation for it.
bool multiply(const Product& product, const void* a, const void* b, void* c);

}  // namespace ostrakon::math::onednn
