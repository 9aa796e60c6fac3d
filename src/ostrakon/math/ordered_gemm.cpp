// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/ordered_gemm.hpp>

#include <cstdlib>
#include <memory>
#include <new>
#include <ostrakon/math/parallel_product.hpp>
#include <ostrakon/math/tile_kernels.hpp>

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

}  // namespace

void ordered_gemm(const OrderedProduct& product, const float* a, const float* b, float* c) {
  multiply_on_threads(
      product, a, b, c,
      [](const OrderedProduct& part, const float* a_part, const float* b_part, float* c_part) {
        kernel().multiply(part, a_part, b_part, c_part, room());
      });
}

const char* ordered_gemm_kernel() { return kernel().name; }

}  // namespace ostrakon::math
