// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/files/files.hpp>
#include <string>

namespace ostrakon::checkpoint {

// Functions for files of other programs. `kind` ("safetensors file") is the expected kind, for
// messages.

/// Returns the size of a file in bytes. Throws Error if it is missing, a folder, or not a plain
/// file.
std::int64_t plain_file_size(const std::string& path, const std::string& kind);

/// Returns the content of such a file. Throws Error, too, if it has more than `most_bytes`.
std::string read_plain_file(const std::string& path, const std::string& kind,
                            std::int64_t most_bytes);

/// Throws Error unless the end of the file is at `bytes`, its size by the system: otherwise the
/// known size is out of date.
void require_length(const PlainFile& file, std::int64_t bytes);

}  // namespace ostrakon::checkpoint
