// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace ostrakon::apps {

using Json = nlohmann::ordered_json;

/// Returns the bytes of a plain file. Throws Error where it can't be read.
std::string read_all(const std::string& path);

/// Calls take(record) for each line of a file that is not blank, a JSON object. Throws Error where
/// a line is none, where there is no line, and what `take` throws, with the file and the line.
void for_each_record(const std::string& path, const std::function<void(const Json&)>& take);

/// The text of a key. Throws Error where it has none.
std::string text_of(const Json& record, const char* key);

/// Writes a line to the standard output. Throws Error where it can't be written.
void write_line(const std::string& line);

/// Writes what was found of a file: a line of JSON, or lines for people, in which a name ends with
/// a blank where the value is a ratio.
void write_found(const std::string& file, const Json& found, bool as_json);

}  // namespace ostrakon::apps
