// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_avx512.hpp>

namespace ostrakon::math {

AttentionTileKernels attention_tiles_avx512() { return attention_tiles_of<Avx512>(); }

}  // namespace ostrakon::math
