// SPDX-License-Identifier: Apache-2.0
#pragma once

// Copies into a team's shared memory that go on while its threads do something else: by cp.async,
// from sm_80 on. Elsewhere a copy is done when the call that begins it returns.

#include <cstddef>
#include <cstring>
#include <ostrakon/math/vectors.hpp>

namespace ostrakon::math {

#if OSTRAKON_WARP_TILES && defined(__CUDA_ARCH__)
/// Returns the address of shared memory for instructions.
KOKKOS_INLINE_FUNCTION std::uint32_t shared_address(const void* x) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
}
#endif

/// Begins an asynchronous copy of `bytes`, 4 or 16, to `offset` bytes behind `to` in shared memory;
/// writes zeros unless `exists`. Both addresses are aligned to `bytes`.
template <int bytes>
KOKKOS_INLINE_FUNCTION void begin_copy(void* to, int offset, const void* from, bool exists) {
#if OSTRAKON_WARP_TILES && defined(__CUDA_ARCH__)
  // The address is added here, as compilers would otherwise keep one register per copy across the
  // loop.
  const int read = exists ? bytes : 0;
  if constexpr (bytes == 16)  // bypasses the L1 cache
    asm volatile(
        "{ .reg .u32 a; add.u32 a, %0, %1; cp.async.cg.shared.global [a], [%2], 16, %3; }" ::"r"(
            shared_address(to)),
        "r"(offset), "l"(from), "r"(read)
        : "memory");
  else
    asm volatile(
        "{ .reg .u32 a; add.u32 a, %0, %1; cp.async.ca.shared.global [a], [%2], 4, %3; }" ::"r"(
            shared_address(to)),
        "r"(offset), "l"(from), "r"(read)
        : "memory");
#else
  void* const place = static_cast<std::byte*>(to) + offset;
  if (exists)
    std::memcpy(place, from, bytes);
  else
    std::memset(place, 0, bytes);
#endif
}

/// Begins to copy elements [begin, begin + n) of an array of `count` to the same place of `to`,
/// which is aligned to vectors and has room for whole ones.
template <int n, class T>
KOKKOS_INLINE_FUNCTION void begin_lanes_copy(T* to, const T* from, std::int64_t begin,
                                             std::int64_t count) {
#if OSTRAKON_WARP_TILES
  static_assert(sizeof(Vector<T, n>) == 16, "a copy is of 16 bytes");
  if (begin + n <= count && begin_vectors<n>(from + begin))
    return begin_copy<16>(to + begin, 0, from + begin, true);
#endif
  store_vector<n>(to + begin, load_lanes<n>(from, begin, count));
}

/// Waits for the copies that the calling thread has begun: it may read them then, but other threads
/// only behind a barrier.
KOKKOS_INLINE_FUNCTION void end_own_copies() {
#if OSTRAKON_WARP_TILES && defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace ostrakon::math
