// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon {

/// Returns a path that is not in use: "<start><end>", or "<start>-2<end>" and so on if that exists,
/// also as a broken link. Throws Error if the system can't tell.
std::string free_name(const std::string& start, const std::string& end = "");

}  // namespace ostrakon
