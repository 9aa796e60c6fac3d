// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention_tile_kernel.hpp>
#include <ostrakon/math/tile_vectors_plain.hpp>

namespace ostrakon::math {

AttentionTileKernel attention_tiles_plain() { return AttentionTiles<Plain>::kernel(); }

}  // namespace ostrakon::math
