// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/attention_tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_avx2.hpp>

namespace ostrakon::math {

AttentionTileKernels attention_tiles_avx2() { return attention_tiles_of<Avx2>(); }

}  // namespace ostrakon::math
