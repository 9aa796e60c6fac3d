// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files.hpp>
#include <string>

namespace ostrakon::checkpoint {

// Files that others wrote. `kind` ("safetensors file") is what was expected, for messages.

/// The bytes that a file has. Throws Error where it is missing, a folder or anything but a file.
std::int64_t plain_file_size(const std::string& path, const std::string& kind);

/// Throws Error unless reading finds the end of a file where the system says that it is: what is
/// known of its length is out of date then.
void require_length(const PlainFile& file, std::int64_t bytes);

}  // namespace ostrakon::checkpoint
