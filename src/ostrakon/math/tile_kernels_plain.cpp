// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/tile_kernel.hpp>
#include <ostrakon/math/tile_vectors_plain.hpp>

namespace ostrakon::math {

void tile_multiply_plain(const OrderedProduct& product, const float* a, const float* b, float* c,
                         float* room) {
  TileKernel<Plain>::multiply(product, a, b, c, room);
}

}  // namespace ostrakon::math
