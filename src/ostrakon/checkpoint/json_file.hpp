// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/base/format.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// Reads a JSON object from a file of another program. Throws Error, naming the file, if it has
/// more than `most_bytes` bytes, is not a JSON object, is nested too deeply, or has a duplicate
/// key.
nlohmann::json read_json_object(const std::string& path, const std::string& kind,
                                std::int64_t most_bytes);

/// Parses a JSON object. `name`: the file's name, for messages.
nlohmann::json parse_json_object(const std::string& text, const std::string& kind,
                                 const std::string& name);

/// Writes text under a temporary name, syncs it and renames it. Throws Error.
void write_text_file(const std::string& path, const std::string& kind, const std::string& text);

/// Returns nlohmann's message of a syntax error, without its error number.
std::string reason_of(const std::exception& error);

}  // namespace ostrakon::checkpoint
