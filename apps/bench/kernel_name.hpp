// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::bench {

/// Returns a name for people, from the name of a device's kernel in its object code: of a kernel of
/// this program the function that launches it, of another one its name without namespaces, template
/// arguments and parameters.
std::string readable_kernel_name(const std::string& symbol);

}  // namespace ostrakon::bench
