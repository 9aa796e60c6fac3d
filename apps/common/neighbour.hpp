// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::apps {

/// Returns where a program of the same installation or build is; where there is none, its name, so
/// that it is looked for in PATH.
std::string neighbour(const std::string& name);

}  // namespace ostrakon::apps
