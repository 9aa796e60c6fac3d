// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/tile_kernel.hpp>
#include <ostrakon/math/tile_vectors_avx2.hpp>

namespace ostrakon::math {

void tile_multiply_avx2(const OrderedProduct& product, const float* a, const float* b, float* c,
                        float* room) {
  TileKernel<Avx2>::multiply(product, a, b, c, room);
}

}  // namespace ostrakon::math
