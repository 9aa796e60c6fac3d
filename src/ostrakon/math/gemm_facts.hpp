// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/facts.hpp>

namespace ostrakon::math {

/// What the bits of products of `dtype` and of fp32 depend on in this process, besides threads: on
/// the host the order of sums in fp32, and for 16 bits what multiplies, its version, instructions;
/// else the library and the device.
Facts gemm_facts(DType dtype);

/// Whether any rows of a product of matrices of `dtype` have the bits that they have in the whole
/// product, here.
bool rows_have_bits_of_whole(DType dtype);

/// XXH3 (64 bits) of a few products of fixed random matrices of `number`, as sixteen hexadecimal
/// digits. Milliseconds.
std::string gemm_digest(DType dtype);

}  // namespace ostrakon::math
