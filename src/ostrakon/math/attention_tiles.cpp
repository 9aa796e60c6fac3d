// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention_tiles.hpp>

#include <cstdlib>
#include <memory>
#include <new>

namespace ostrakon::math {
namespace {

AttentionTileKernel choose_tiles() {
#if defined(OSTRAKON_X86_TILES)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return attention_tiles_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return attention_tiles_avx2();
#endif
  return attention_tiles_plain();
}

struct FreedRoom {
  void operator()(float* memory) const { std::free(memory); }
};

}  // namespace

const AttentionTileKernel& attention_tiles() {
  static const AttentionTileKernel chosen = choose_tiles();
  return chosen;
}

float* attention_room() {
  constexpr std::size_t cache_line = 64;
  thread_local const std::unique_ptr<float, FreedRoom> memory(
      static_cast<float*>(std::aligned_alloc(cache_line, attention_tile_room * sizeof(float))));
  if (!memory) throw std::bad_alloc();
  return memory.get();
}

}  // namespace ostrakon::math
