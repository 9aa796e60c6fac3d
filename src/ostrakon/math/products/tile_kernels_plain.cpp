// SPDX-License-Identifier: Apache-2.0
#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // nvcc does not know GCC's pragmas, which unroll loops
#endif
#include <ostrakon/math/products/tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_plain.hpp>

namespace ostrakon::math {

const TileKernels& tile_kernels_plain() {
  static constexpr TileKernels all = tile_kernels_of<Plain>("plain loops");
  return all;
}

}  // namespace ostrakon::math
