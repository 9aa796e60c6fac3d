// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <nlohmann/json_fwd.hpp>
#include <ostrakon/base/format.hpp>
#include <string>

namespace ostrakon::checkpoint {

/// The object that a JSON file is, which others wrote. Throws Error, naming the file, where it has
/// more than `most_bytes` bytes, is no JSON or no object, is nested too deeply, or has a key twice.
nlohmann::json read_json_object(const std::string& path, const std::string& kind,
                                std::int64_t most_bytes);

/// Reads it from text. `name`: of the file that the text is of, for messages.
nlohmann::json parse_json_object(const std::string& text, const std::string& kind,
                                 const std::string& name);

/// Writes text under a temporary name, syncs it and gives it its name. Throws Error.
void write_text_file(const std::string& path, const std::string& kind, const std::string& text);

/// What nlohmann says of a syntax error, without its own numbering.
std::string reason_of(const std::exception& error);

}  // namespace ostrakon::checkpoint
