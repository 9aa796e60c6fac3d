// SPDX-License-Identifier: Apache-2.0
#pragma once

// Non-temporal stores of large arrays, if the processor has them: a line is not fetched before it
// is written, and cached data stays. Not for data that is read again soon.

#include <cstddef>
#include <cstdint>
#include <ostrakon/math/portability.hpp>
#if defined(__SSE2__) && !OSTRAKON_ON_DEVICE
#include <immintrin.h>
#endif

// These are in an unnamed namespace, as sources with other compiler flags have other vectors.

namespace ostrakon::math {
namespace {

/// Whether an array is too large for a core's caches.
constexpr bool use_nontemporal(std::int64_t bytes) { return bytes > (std::int64_t{8} << 20); }

#if defined(__SSE2__) && !OSTRAKON_ON_DEVICE
/// The floats that one instruction moves.
class FloatVector {
 public:
#if defined(__AVX512F__)
  using Vector = __m512;
  static Vector load(const float* from) { return _mm512_loadu_ps(from); }
  static Vector add(Vector x, Vector y) { return _mm512_add_ps(x, y); }
  static void store_past(float* to, Vector x) { _mm512_stream_ps(to, x); }
#elif defined(__AVX__)
  using Vector = __m256;
  static Vector load(const float* from) { return _mm256_loadu_ps(from); }
  static Vector add(Vector x, Vector y) { return _mm256_add_ps(x, y); }
  static void store_past(float* to, Vector x) { _mm256_stream_ps(to, x); }
#else
  using Vector = __m128;
  static Vector load(const float* from) { return _mm_loadu_ps(from); }
  static Vector add(Vector x, Vector y) { return _mm_add_ps(x, y); }
  static void store_past(float* to, Vector x) { _mm_stream_ps(to, x); }
#endif
  static constexpr std::int64_t size = sizeof(Vector) / sizeof(float);
  static bool begins_at(const float* to) {
    return reinterpret_cast<std::uintptr_t>(to) % sizeof(Vector) == 0;
  }
};
#endif

/// to = left + right, or left if `right` is null. `to` may be one of them.
inline void add_nontemporal(const float* left, const float* right, float* to, std::int64_t count) {
  std::int64_t i = 0;
#if defined(__SSE2__) && !OSTRAKON_ON_DEVICE
  using V = FloatVector;
  const std::int64_t end = V::begins_at(to) ? count / V::size * V::size : 0;
  if (right != nullptr)
    for (; i < end; i += V::size)
      V::store_past(to + i, V::add(V::load(left + i), V::load(right + i)));
  else
    for (; i < end; i += V::size) V::store_past(to + i, V::load(left + i));
#endif
  for (; i < count; ++i) to[i] = right != nullptr ? left[i] + right[i] : left[i];
}

/// Orders these stores before later ones; to be called before other threads are notified.
inline void fence_nontemporal() {
#if defined(__SSE2__) && !OSTRAKON_ON_DEVICE
  _mm_sfence();
#endif
}

}  // namespace
}  // namespace ostrakon::math
