// SPDX-License-Identifier: Apache-2.0
#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // it does not know GCC's pragmas, which unroll loops
#endif
#include <ostrakon/math/tile_kernel.hpp>
#include <ostrakon/math/tile_vectors_plain.hpp>

namespace ostrakon::math {

void tile_multiply_plain(const OrderedProduct& product, const float* a, const float* b, float* c,
                         float* room) {
  TileKernel<Plain>::multiply(product, a, b, c, room);
}

}  // namespace ostrakon::math
