// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace ostrakon::checkpoint {

// Numbers of 8 and 4 bits in published weights. All conversions to float are exact.

/// 4 bits of exponent (bias 7), 3 of mantissa, no infinity, NaN only where all of these bits are
/// set; at most 448. "FP8 formats for deep learning", Micikevicius et al., 2022; torch's
/// float8_e4m3fn.
float float_of_e4m3(std::uint8_t code);

/// 5 bits of exponent (bias 15), 2 of mantissa, infinity and NaN as in IEEE 754: the upper byte of
/// an fp16. Torch's float8_e5m2.
float float_of_e5m2(std::uint8_t code);

/// 2 bits of exponent (bias 1), 1 of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. The
/// upper four bits of `code` are ignored. "OCP microscaling formats (MX)", version 1.0.
float float_of_e2m1(std::uint8_t code);

/// A power of two, 2^(code - 127); NaN for 255. "OCP microscaling formats (MX)", version 1.0.
float float_of_e8m0(std::uint8_t code);

}  // namespace ostrakon::checkpoint
