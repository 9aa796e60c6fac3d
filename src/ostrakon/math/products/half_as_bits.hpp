// SPDX-License-Identifier: Apache-2.0
#pragma once

// Element types for sources that are compiled for one kind of processor.

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/products/tile_kernels.hpp>

namespace ostrakon::math {

inline const float* bits_of(const float* x) { return x; }
inline const Bf16Bits* bits_of(const bf16* x) { return reinterpret_cast<const Bf16Bits*>(x); }
inline const Fp16Bits* bits_of(const fp16* x) { return reinterpret_cast<const Fp16Bits*>(x); }
inline float* bits_of(float* x) { return x; }
inline Bf16Bits* bits_of(bf16* x) { return reinterpret_cast<Bf16Bits*>(x); }
inline Fp16Bits* bits_of(fp16* x) { return reinterpret_cast<Fp16Bits*>(x); }

}  // namespace ostrakon::math
