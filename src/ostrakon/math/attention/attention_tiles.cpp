// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_tiles.hpp>

#include <ostrakon/math/thread_scratch.hpp>

namespace ostrakon::math {
namespace {

AttentionTileKernels choose_tiles() {
#if defined(OSTRAKON_X86_TILES)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return attention_tiles_avx512();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return attention_tiles_avx2();
#endif
  return attention_tiles_plain();
}

struct AttentionRoom {
  static constexpr std::int64_t bytes = 4 * attention_tile_room;
};

}  // namespace

const AttentionTileKernels& attention_tiles() {
  static const AttentionTileKernels chosen = choose_tiles();
  return chosen;
}

std::int64_t attention_room_bytes() { return thread_scratch_bytes_of<AttentionRoom>(); }

float* attention_room() { return static_cast<float*>(thread_scratch<AttentionRoom>()); }

}  // namespace ostrakon::math
