// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace ostrakon::apps {

// Prompts from files and standard input lose one newline at their end, which editors and `echo`
// add. Waiting for standard input is announced on `log`.

/// Returns the text in a file; "-" is standard input. Throws Error if it can't be read.
std::string read_prompt(const std::string& path, std::ostream& log);

/// Parses token ids, separated by commas or white space. Throws Error for anything but ids in [0,
/// vocabulary).
std::vector<std::int32_t> parse_ids(const std::string& ids, std::int64_t vocabulary);

}  // namespace ostrakon::apps
