// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ostrakon::math {

/// What of attention a library of the device computes (attention_library.hpp).
enum class LibraryUse {
  never,
  automatic,  ///< where it is faster than own kernels, and its bits are found to be fixed
  always      ///< all
};

}  // namespace ostrakon::math
