// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/vectors.hpp>

#if defined(__F16C__) && !OSTRAKON_ON_DEVICE
#include <immintrin.h>
#endif

namespace ostrakon::math {

/// y[0..count) = x[0..count) converted to another type, on the calling thread.
template <class A, class B>
KOKKOS_INLINE_FUNCTION void convert_run(const A* x, B* y, std::int64_t count) {
  map_run<vector_elements<A, B>()>(
      count, [](std::int64_t, A value) { return static_cast<B>(value); }, y, x);
}

#if defined(__F16C__) && !OSTRAKON_ON_DEVICE

// Compilers do not find the processor's conversion instructions by themselves; these are a few
// times as fast, with the same bits.
inline void convert_run(const fp16* x, float* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm256_storeu_ps(y + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x + i))));
  for (; i < count; ++i) y[i] = x[i];
}

inline void convert_run(const float* x, fp16* y, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < count; ++i) y[i] = fp16(x[i]);
}

#endif

}  // namespace ostrakon::math
