// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/products/tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_avx512.hpp>

namespace ostrakon::math {

const TileKernels& tile_kernels_avx512() {
  static constexpr TileKernels all = tile_kernels_of<Avx512>("AVX-512");
  return all;
}

}  // namespace ostrakon::math
