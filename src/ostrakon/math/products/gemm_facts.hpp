// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/facts.hpp>
#include <string>

namespace ostrakon::math {

/// Facts that determine the bits of products of `dtype` and of fp32 in this process, besides
/// threads: on the host the order of sums in fp32, and for 16 bits the library, its version and
/// instructions; otherwise the library and the device.
Facts gemm_facts(DType dtype);

/// Whether rows of a product of `dtype` have the same bits when they are computed alone, in this
/// process.
bool is_row_partition_invariant(DType dtype);

/// Returns XXH3 (64 bits) of a few products of fixed random matrices of `dtype`, as 16 hexadecimal
/// digits. Takes milliseconds.
std::string gemm_digest(DType dtype);

/// Returns gemm_digest of fp32 and of `dtype`, each once.
Facts gemm_digests(DType dtype);

}  // namespace ostrakon::math
