// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/fp8/blocks.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/plan/ir/quantized_flat.hpp>

namespace ostrakon::math {

// Parameters that are gathered in 8 bits: plan::QuantizedFlat says where in a part what is. Codes
// are e4m3, scales e8m0, as round_row_blocks() rounds blocks of 32. Both functions run in both
// spaces, as a kernel or on the calling thread, which Kokkos need not know; bitwise equal in both.
// They throw Error where sizes do not fit.

/// `to` (part_bytes) = part number `part`, of which x (part_elements) are the masters: rounded to
/// 8 bits where they have codes, else to bf16.
template <class Space>
void quantize_part(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                   std::int64_t part, View<const float*, Space> x, View<std::uint8_t*, Space> to);

/// y = the parts from number `first` on, as quantize_part() made them. `x`: (parts * part_bytes),
/// y: (parts * part_elements). It is exact down to 2^-133, the smallest number of bf16.
template <class Space>
void dequantize_parts(const ExecutorFor<Space>& where, const plan::QuantizedFlat& flat,
                      std::int64_t first, View<const std::uint8_t*, Space> x, View<bf16*, Space> y);

}  // namespace ostrakon::math
