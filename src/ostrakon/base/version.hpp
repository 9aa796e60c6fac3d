// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ostrakon {

/// Ostrakon's version, from CMake's project(): "0.1.0".
const char* version();

/// What this build was compiled with: the compiler, the kind of build, and a hash of all flags.
const char* build();

}  // namespace ostrakon
