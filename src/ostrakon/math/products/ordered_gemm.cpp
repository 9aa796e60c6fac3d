// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/ordered_gemm.hpp>

#include <ostrakon/math/products/half_as_bits.hpp>
#include <ostrakon/math/products/parallel_product.hpp>
#include <ostrakon/math/products/tile_kernels.hpp>
#include <ostrakon/math/thread_scratch.hpp>

#if defined(OSTRAKON_X86_TILES)
#include <cpuid.h>
#endif

namespace ostrakon::math {
namespace {

#if defined(OSTRAKON_X86_TILES)
/// Whether this machine converts fp16: every processor with AVX2 does, but not every virtual
/// machine.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned f16c = 1u << 29;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & f16c) != 0;
}
#endif

const TileKernels& choose_kernels() {
#if defined(OSTRAKON_X86_TILES)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return tile_kernels_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
    return tile_kernels_avx2();
#endif
  return tile_kernels_plain();
}

const TileKernels& kernels() {
  static const TileKernels& chosen = choose_kernels();
  return chosen;
}

/// One workspace for all kinds of C in 16 bits.
template <bool is_16bit>
struct TileRoom {
  static constexpr std::int64_t bytes = 4 * (is_16bit ? tile_room_16bit : tile_room);
};

template <class T, class C>
void multiply(const OrderedProduct& product, const T* a, const T* b, C* c,
              TileMultiply<T, C> kernel) {
  multiply_on_threads(
      product, a, b, c,
      [kernel](const OrderedProduct& part, const T* a_part, const T* b_part, C* c_part) {
        kernel(part, a_part, b_part, c_part,
               static_cast<float*>(thread_scratch<TileRoom<sizeof(C) != sizeof(float)>>()));
      });
}

}  // namespace

template <>
void ordered_gemm(const OrderedProduct& product, const float* a, const float* b, float* c) {
  multiply(product, a, b, c, kernels().of_float);
}
template <>
void ordered_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, float* c) {
  multiply(product, bits_of(a), bits_of(b), c, kernels().of_bf16);
}
template <>
void ordered_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, bf16* c) {
  multiply(product, bits_of(a), bits_of(b), bits_of(c), kernels().of_bf16_to_bf16);
}
template <>
void ordered_gemm(const OrderedProduct& product, const fp16* a, const fp16* b, float* c) {
  multiply(product, bits_of(a), bits_of(b), c, kernels().of_fp16);
}
template <>
void ordered_gemm(const OrderedProduct& product, const fp16* a, const fp16* b, fp16* c) {
  multiply(product, bits_of(a), bits_of(b), bits_of(c), kernels().of_fp16_to_fp16);
}

std::int64_t ordered_gemm_room() {
  return thread_scratch_bytes_of<TileRoom<false>>() + thread_scratch_bytes_of<TileRoom<true>>();
}

const char* ordered_gemm_kernel() { return kernels().name; }

}  // namespace ostrakon::math
