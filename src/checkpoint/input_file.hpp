// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace ostrakon::checkpoint {

// Files that others wrote. `kind` ("safetensors file") is what was expected, for messages.

/// The bytes that a file has. Throws Error where it is missing, a folder or anything but a file.
std::int64_t require_plain_file(const std::string& path, const std::string& kind);

}  // namespace ostrakon::checkpoint
