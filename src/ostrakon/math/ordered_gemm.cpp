// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/ordered_gemm.hpp>

#include <cstdlib>
#include <memory>
#include <new>
#include <ostrakon/math/tile_kernels.hpp>
#if defined(_OPENMP)
#include <omp.h>
#endif

namespace ostrakon::math {
namespace {

struct Kernel {
  TileMultiply multiply;
  const char* name;
};

Kernel choose_kernel() {
#if defined(OSTRAKON_X86_TILES)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return {tile_multiply_avx512, "AVX-512"};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {tile_multiply_avx2, "AVX2"};
#endif
  return {tile_multiply_plain, "plain loops"};
}

const Kernel& kernel() {
  static const Kernel chosen = choose_kernel();
  return chosen;
}

struct Freed {
  void operator()(float* memory) const { std::free(memory); }
};

/// This thread's, from its first product on.
float* room() {
  constexpr std::size_t cache_line = 64;
  thread_local const std::unique_ptr<float, Freed> memory(
      static_cast<float*>(std::aligned_alloc(cache_line, tile_room * sizeof(float))));
  if (!memory) throw std::bad_alloc();
  return memory.get();
}

#if defined(_OPENMP)
/// Part `index` of `count` of the columns of C, or of its rows where these are more.
void multiply_part(const OrderedProduct& whole, const float* a, const float* b, float* c,
                   std::int64_t index, std::int64_t count) {
  const bool columns = whole.n >= whole.m;
  const std::int64_t size = columns ? whole.n : whole.m;
  constexpr std::int64_t granule = 32;  // whole tiles, and no cache line of C for two threads
  const std::int64_t granules = (size + granule - 1) / granule;
  const auto begin_of = [&](std::int64_t part) {
    const std::int64_t begin = granules * part / count * granule;
    return begin < size ? begin : size;
  };
  const std::int64_t begin = begin_of(index), length = begin_of(index + 1) - begin;
  if (length == 0) return;
  OrderedProduct part = whole;
  if (columns) {
    part.n = length;
    kernel().multiply(part, a, b + begin * whole.b.column, c + begin, room());
  } else {
    part.m = length;
    kernel().multiply(part, a + begin * whole.a.row, b, c + begin * whole.c_row, room());
  }
}
#endif

}  // namespace

void ordered_gemm(const OrderedProduct& product, const float* a, const float* b, float* c) {
#if defined(_OPENMP)
  // Where a thread has so few multiplications, it starts slower than they are done.
  constexpr std::int64_t enough = std::int64_t{1} << 16;
  if (omp_get_max_threads() > 1 && product.m * product.n * product.k >= 2 * enough) {
#pragma omp parallel
    multiply_part(product, a, b, c, omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  kernel().multiply(product, a, b, c, room());
}

const char* ordered_gemm_kernel() { return kernel().name; }

}  // namespace ostrakon::math
