// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// A path that is not in use, for something to be renamed: "<start><end>", or "<start>-2<end>" and
/// so on where that is taken, also by a link that leads nowhere. Throws Error where the system does
/// not say.
std::string free_name(const std::string& start, const std::string& end = "");

}  // namespace ostrakon
