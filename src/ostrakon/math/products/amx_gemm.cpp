// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/amx_gemm.hpp>

#if defined(OSTRAKON_AMX_TILES)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ostrakon/math/products/amx_kernel.hpp>
#include <ostrakon/math/products/parallel_product.hpp>
#include <ostrakon/math/thread_scratch.hpp>

namespace ostrakon::math {
namespace {

bool processor_has_amx() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bf16"))
    return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  return (edx & amx_bf16) != 0 && (edx & amx_tile) != 0;
}

/// Asks Linux for permission to use tiles, which add 8 KiB to the saved state of a thread.
bool system_permits_tiles() {
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
  return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

struct AmxRoom {
  static constexpr std::int64_t bytes = amx_room;
};

const std::uint16_t* bits_of(const bf16* x) { return reinterpret_cast<const std::uint16_t*>(x); }
std::uint16_t* bits_of(bf16* x) { return reinterpret_cast<std::uint16_t*>(x); }
float* bits_of(float* x) { return x; }

template <class C>
void multiply(const OrderedProduct& product, const bf16* a, const bf16* b, C* c) {
  multiply_on_threads(
      product, a, b, c,
      [](const OrderedProduct& part, const bf16* a_part, const bf16* b_part, C* c_part) {
        amx_multiply(part, bits_of(a_part), bits_of(b_part), bits_of(c_part),
                     thread_scratch<AmxRoom>());
      });
}

}  // namespace

bool has_amx() {
  static const bool has = processor_has_amx() && system_permits_tiles();
  return has;
}

std::int64_t amx_gemm_room() { return thread_scratch_bytes_of<AmxRoom>(); }

void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, float* c) {
  multiply(product, a, b, c);
}

void amx_gemm(const OrderedProduct& product, const bf16* a, const bf16* b, bf16* c) {
  multiply(product, a, b, c);
}

}  // namespace ostrakon::math

#else

#include <ostrakon/base/error.hpp>

namespace ostrakon::math {

bool has_amx() { return false; }

std::int64_t amx_gemm_room() { return 0; }

void amx_gemm(const OrderedProduct&, const bf16*, const bf16*, float*) {
  throw Error("amx_gemm: not compiled for processors with AMX");
}

void amx_gemm(const OrderedProduct&, const bf16*, const bf16*, bf16*) {
  throw Error("amx_gemm: not compiled for processors with AMX");
}

}  // namespace ostrakon::math

#endif
