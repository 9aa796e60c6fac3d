// SPDX-License-Identifier: Apache-2.0
#pragma once

// amx_gemm() by the tiles of AMX. The source amx_kernel.cpp is compiled for these instructions, so
// this header has plain declarations only; bf16 are their bits.

#include <cstdint>
#include <ostrakon/math/ordered_gemm.hpp>

namespace ostrakon::math {
// Sizes for a nearest cache of 48 KiB and a second of 2 MiB.

/// Terms that are added to the sums in one pass: a sliver of A and one of B, with them, stay in the
/// nearest cache.
constexpr std::int64_t amx_pass_terms = 256;
/// Columns of B that are packed at a time, and rows of C whose sums stay in the second cache
/// between passes: fewer where a panel of B with all of its terms, no more than amx_few_terms,
/// stays there.
constexpr std::int64_t amx_panel_columns = 256;
constexpr std::int64_t amx_block_rows = 512;
constexpr std::int64_t amx_few_terms = 1024;
constexpr std::int64_t amx_rows_of_few = 128;
/// So many terms are all packed before they are multiplied. With more, the sums of so many columns
/// are kept between passes, so that A need not be packed for each panel.
constexpr std::int64_t amx_most_terms = 4096;
constexpr std::int64_t amx_kept_columns = 1024;

/// A C of so many floats is written past the caches.
constexpr std::int64_t amx_streamed = std::int64_t{1} << 20;

/// Elements of packed A and of packed B, and sums that are kept.
constexpr std::int64_t amx_packed_a = std::int64_t{1} << 22;
constexpr std::int64_t amx_packed_b = amx_panel_columns * amx_most_terms;
constexpr std::int64_t amx_sums = amx_block_rows * amx_kept_columns;
/// Bytes that a kernel writes into besides C, aligned to a cache line.
constexpr std::int64_t amx_room = 2 * (amx_packed_a + amx_packed_b) + 4 * amx_sums;

void amx_multiply(const OrderedProduct&, const std::uint16_t* a, const std::uint16_t* b, float* c,
                  void* room);
void amx_multiply(const OrderedProduct&, const std::uint16_t* a, const std::uint16_t* b,
                  std::uint16_t* c, void* room);

}  // namespace ostrakon::math
