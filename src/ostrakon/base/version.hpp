// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ostrakon {

/// Ostrakon's version, from CMake's project(): "0.1.0".
const char* version();

/// The compiler, build type, and hash of all flags of this build.
const char* build();

}  // namespace ostrakon
