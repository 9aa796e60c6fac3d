// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/version.hpp>

namespace ostrakon {

// CMake defines both macros, for this file alone.
const char* version() { return OSTRAKON_VERSION; }
const char* build() { return OSTRAKON_BUILD; }

}  // namespace ostrakon
