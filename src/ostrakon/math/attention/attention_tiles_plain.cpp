// SPDX-License-Identifier: Apache-2.0
#if defined(__CUDACC__)
#pragma nv_diag_suppress 1675  // nvcc does not know GCC's pragmas, which unroll loops
#endif
#include <ostrakon/math/attention/attention_tile_kernel.hpp>
#include <ostrakon/math/products/tile_vectors_plain.hpp>

namespace ostrakon::math {

AttentionTileKernels attention_tiles_plain() { return attention_tiles_of<Plain>(); }

}  // namespace ostrakon::math
