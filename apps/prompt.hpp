// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace ostrakon::apps {

// Prompts from files and standard input lose one newline at their end, which editors and `echo`
// add. Waiting for standard input is announced on `log`.

/// The text in a file; "-" is standard input. Throws Error where it can't be read.
std::string read_prompt(const std::string& path, std::ostream& log);

/// Token ids, with commas or white space between them. Throws Error for what is no id in [0,
/// vocabulary).
std::vector<std::int32_t> parse_ids(const std::string& ids, std::int64_t vocabulary);

}  // namespace ostrakon::apps
