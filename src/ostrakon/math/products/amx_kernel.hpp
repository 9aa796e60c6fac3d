// SPDX-License-Identifier: Apache-2.0
#pragma once

// Kernels of amx_gemm() with AMX tiles. amx_kernel.cpp is compiled for these instructions, so this
// header has plain declarations only, and bf16 are passed as their bits.

#include <cstdint>
#include <ostrakon/math/products/ordered_gemm.hpp>

namespace ostrakon::math {
// Block sizes are chosen for an L1 cache of 48 KiB and an L2 cache of 2 MiB.

/// Terms per pass: a sliver of A, one of B and their sums stay in the L1 cache.
constexpr std::int64_t amx_pass_terms = 256;
/// Columns of B that are packed at a time, and rows of C whose sums stay in the L2 cache between
/// passes. There are fewer rows if a panel of B with all of its terms, at most amx_few_terms, stays
/// in L2.
constexpr std::int64_t amx_panel_columns = 256;
constexpr std::int64_t amx_block_rows = 512;
constexpr std::int64_t amx_few_terms = 1024;
constexpr std::int64_t amx_rows_of_few = 128;
/// Largest number of terms that are all packed before they are multiplied. With more terms, the
/// sums of amx_kept_columns columns are kept between passes, so that A need not be packed for each
/// panel.
constexpr std::int64_t amx_most_terms = 4096;
constexpr std::int64_t amx_kept_columns = 1024;

/// From this number of floats on, C is written by non-temporal stores.
constexpr std::int64_t amx_streamed = std::int64_t{1} << 20;

/// Elements of packed A and packed B, and number of kept sums.
constexpr std::int64_t amx_packed_a = std::int64_t{1} << 22;
constexpr std::int64_t amx_packed_b = amx_panel_columns * amx_most_terms;
constexpr std::int64_t amx_sums = amx_block_rows * amx_kept_columns;
/// Bytes of a kernel's workspace, aligned to a cache line.
constexpr std::int64_t amx_room = 2 * (amx_packed_a + amx_packed_b) + 4 * amx_sums;

void amx_multiply(const OrderedProduct&, const std::uint16_t* a, const std::uint16_t* b, float* c,
                  void* room);
void amx_multiply(const OrderedProduct&, const std::uint16_t* a, const std::uint16_t* b,
                  std::uint16_t* c, void* room);

}  // namespace ostrakon::math
