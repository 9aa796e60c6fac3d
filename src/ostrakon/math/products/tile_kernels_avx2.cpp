// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_avx2.hpp>

namespace ostrakon::math {

const TileKernels& tile_kernels_avx2() {
  static constexpr TileKernels all = tile_kernels_of<Avx2>("AVX2");
  return all;
}

}  // namespace ostrakon::math
