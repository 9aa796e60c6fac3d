// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "line.hpp"

namespace ostrakon::apps {

/// What is continued: a text or, where `chat` is an object with `messages`, what answers a chat.
struct Prompt {
  std::string text;
  nlohmann::ordered_json chat;

  bool is_chat() const { return !chat.is_null(); }
};

// Prompts from files and standard input lose one newline at their end, which editors and `echo`
// add. Waiting for standard input is announced on `log`.

/// Returns the text in a file; "-" is standard input. Throws Error if it can't be read.
std::string read_prompt(const std::string& path, std::ostream& log);

/// Returns the prompts that the command line names, at least one: an empty text where it names
/// none. Throws Error for files that can't be read, or have no prompts. Chats that end with a
/// message of the assistant are noted on `log`.
std::vector<Prompt> read_prompts(const Line& line, std::ostream& log);

/// Throws Error for a prompt, as read, that is not UTF-8. `taker`: what takes UTF-8 alone.
void require_utf8_prompt(const Line& line, const std::string& prompt, const std::string& taker);

/// Parses token ids, separated by commas or white space. Throws Error for anything but ids in [0,
/// vocabulary).
std::vector<std::int32_t> parse_ids(const std::string& ids, std::int64_t vocabulary);

}  // namespace ostrakon::apps
