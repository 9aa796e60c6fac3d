// SPDX-License-Identifier: Apache-2.0
#include "prompt.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/lfs_pointer.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/text/json_record.hpp>
#include <sstream>
#include <tuple>

namespace ostrakon::apps {
namespace {

/// Announces that input is awaited: at once on a terminal, else after a second.
void tell_that_it_waits(std::ostream& log) {
  constexpr int patience = 1000;  // milliseconds
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (isatty(STDIN_FILENO) != 0)
    log << "reading the prompt from the terminal: end it with Control-D" << std::endl;
  else if (poll(&input, 1, patience) == 0)
    log << "waiting for the prompt on standard input (--prompt '' starts a new document)"
        << std::endl;
}

std::string read_all(int descriptor, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> block{};
  for (;;) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    require(count > 0, "can't read ", name, ": ", std::strerror(errno));
    text.append(block.data(), static_cast<std::size_t>(count));
  }
}

std::string without_last_newline(std::string text) {
  for (const char end : {'\n', '\r'}) {
    if (text.empty() || text.back() != end) break;
    text.pop_back();
  }
  return text;
}

/// Throws Error for a Git LFS pointer. It is no DamagedError, after which the next model would be
/// tried.
void require_no_pointer(const char* option, const std::string& path, const std::string& text) {
  try {
    if (text.size() <= most_lfs_pointer_bytes) require_no_lfs_pointer(path, text);
  } catch (const LfsPointer& pointer) {
    throw Error(option + (" " + std::string(pointer.what())));
  }
}

std::string read_standard_input(std::ostream& log) {
  tell_that_it_waits(log);
  return read_all(STDIN_FILENO, "standard input");
}

/// `option` is for messages.
std::string read_text(const char* option, const std::string& path, std::ostream& log) {
  if (path == "-") return read_standard_input(log);
  const std::string name = option + (" '" + path + "'");
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0, "can't read ", name, ": ", std::strerror(errno));
  try {
    std::string text = read_all(descriptor, name);
    require_no_pointer(option, path, text);
    ::close(descriptor);
    return text;
  } catch (...) {
    ::close(descriptor);
    throw;
  }
}

using Json = nlohmann::ordered_json;

/// The text of an option that is no JSON, for messages; `expected` ends it.
std::string no_json(const std::string& place, const std::string& why, const char* expected) {
  return place + " is not JSON (" + why + "); expected " + expected;
}

Json parse_line(const std::string& place, const std::string& line) {
  try {
    return texts::parse_record(line);
  } catch (const Error& error) {
    throw Error(no_json(place, error.what(),
                        "a string or an object in JSON in each line; --prompt-file takes plain "
                        "text"));
  }
}

/// Whether the first line that is not blank is JSON by itself.
bool is_of_json_lines(const std::string& given) {
  std::istringstream lines(given);
  for (std::string one; std::getline(lines, one);)
    if (one.find_first_not_of(" \t\r") != std::string::npos) return Json::accept(one);
  return false;
}

/// The line in which JSON has its error.
std::int64_t line_of_error(const std::string& given) {
  std::size_t read = 1;
  try {
    std::ignore = Json::parse(given);
  } catch (const Json::parse_error& error) {
    read = std::clamp<std::size_t>(error.byte, 1, given.size() + 1);
  } catch (const Json::exception&) {  // a number that overflows has no place
  }
  const auto end = given.begin() + static_cast<std::ptrdiff_t>(read - 1);
  return 1 + std::count(given.begin(), end, '\n');
}

Json parse_chat(const std::string& place, const std::string& given) {
  try {
    return texts::parse_record(given);
  } catch (const Error& error) {
    require(!is_of_json_lines(given), place, " has JSON in its lines; expected one list of ",
            "messages, or one object; --prompts takes a chat in each line");
    throw Error(no_json(place, text("line ", line_of_error(given), ", ", error.what()),
                        "a list of messages, or an object with one as `messages`; --prompt-file "
                        "takes plain text"));
  }
}

/// A chat from its list of messages, or from an object with it.
Prompt chat_of(const std::string& place, const Json& given) {
  Prompt prompt;
  prompt.chat = given.is_array() ? Json{{"messages", given}} : given;
  require(prompt.chat.is_object() && prompt.chat.contains("messages") &&
              prompt.chat["messages"].is_array() && !prompt.chat["messages"].empty(),
          place, ": expected a list of messages, or an object with one as `messages`");
  for (const Json& message : prompt.chat["messages"])
    require(message.is_object() && message.contains("role"), place, ": a message is ",
            message.dump(-1, ' ', false, Json::error_handler_t::replace),
            "; expected an object with `role` and `content`");
  return prompt;
}

/// What a user says.
Prompt of_user(const std::string& text) {
  return {"", {{"messages", Json::array({{{"role", "user"}, {"content", text}}})}}};
}

/// The chat that the `completion` of a record answers; its `prompt` is a list of messages.
Prompt chat_of_record(const Line& line, const std::string& place, Json record) {
  require(line.is_chat, place, ": `prompt` is a list; expected --chat, with which it is messages, ",
          "or a string");
  record["messages"] = record["prompt"];
  record.erase("prompt");
  record.erase("completion");
  return chat_of(place, record);
}

Prompt prompt_of(const Line& line, const std::string& place, const Json& given) {
  if (given.is_string()) return line.is_chat ? of_user(given) : Prompt{given, {}};
  require(given.is_object(), place,
          ": expected a string, or an object with `prompt` or `messages`");
  const bool is_chat = given.contains("messages");
  require(is_chat != given.contains("prompt"), place,
          ": expected either `prompt` or `messages` in an object");
  if (!is_chat) {
    if (given["prompt"].is_array()) return chat_of_record(line, place, given);
    require(given["prompt"].is_string(), place, ": `prompt` is no string");
    return prompt_of(line, place, given["prompt"]);
  }
  require(!line.ids, place, ": `messages` with --ids; expected `prompt`");
  return chat_of(place, given);
}

std::vector<Prompt> prompts_of_lines(const Line& line, std::ostream& log) {
  std::vector<Prompt> prompts;
  std::istringstream lines(read_text("--prompts", *line.prompts_file, log));
  std::int64_t number = 0;
  for (std::string one; std::getline(lines, one);) {
    ++number;
    if (one.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = text("--prompts '", *line.prompts_file, "', line ", number);
    prompts.push_back(prompt_of(line, place, parse_line(place, one)));
  }
  require(!prompts.empty(), "--prompts '", *line.prompts_file, "' has no prompts");
  return prompts;
}

/// Texts that a chat begins with go through JSON and the chat template, which take UTF-8.
Prompt checked_user(const Line& line, const std::string& text) {
  require_utf8_prompt(line, text, "the chat template");
  return of_user(text);
}

std::vector<Prompt> read_all_prompts(const Line& line, std::ostream& log) {
  if (line.prompts_file) return prompts_of_lines(line, log);
  if (line.messages_file) {
    const std::string place = "--messages '" + *line.messages_file + "'";
    return {chat_of(place, parse_chat(place, read_text("--messages", *line.messages_file, log)))};
  }
  std::vector<std::string> all = line.prompts;
  if (line.prompt_file) all = {read_prompt(*line.prompt_file, log)};
  require(!line.is_chat || !all.empty(),
          "--chat without a prompt; expected --prompt TEXT, --prompt-file FILE or --messages FILE");
  if (all.empty()) all = {""};
  std::vector<Prompt> prompts;
  for (const std::string& one : all)
    prompts.push_back(line.is_chat ? checked_user(line, one) : Prompt{one, {}});
  return prompts;
}

bool is_answered(const Prompt& prompt) {
  if (!prompt.is_chat()) return false;
  const Json& role = prompt.chat["messages"].back()["role"];
  return role.is_string() && role == "assistant";
}

}  // namespace

void require_utf8_prompt(const Line& line, const std::string& prompt, const std::string& taker) {
  const std::size_t at = first_not_utf8(prompt);
  const std::string place =
      line.prompt_file ? "--prompt-file '" + *line.prompt_file + "'" : std::string("the prompt");
  require(at == prompt.size(), place, ": byte ", at + 1, " is not UTF-8, which ", taker, " takes");
}

std::string read_prompt(const std::string& path, std::ostream& log) {
  return without_last_newline(read_text("--prompt-file", path, log));
}

std::vector<Prompt> read_prompts(const Line& line, std::ostream& log) {
  std::vector<Prompt> prompts = read_all_prompts(line, log);
  const auto answered = std::count_if(prompts.begin(), prompts.end(), is_answered);
  if (answered > 0)
    log << "note: " << (prompts.size() == 1 ? "the chat ends" : "chats that end") << " with a "
        << "message of the assistant" << (prompts.size() == 1 ? "" : text(": ", answered))
        << "; another message of the assistant begins after it" << std::endl;
  return prompts;
}

std::vector<std::int32_t> parse_ids(const std::string& ids, std::int64_t vocabulary) {
  constexpr const char* between = ", \t\r\n";
  std::vector<std::int32_t> tokens;
  for (std::size_t at = ids.find_first_not_of(between); at != std::string::npos;) {
    const std::size_t end = std::min(ids.find_first_of(between, at), ids.size());
    std::int64_t id = -1;
    const auto [stopped, failure] = std::from_chars(ids.data() + at, ids.data() + end, id);
    require(failure == std::errc() && stopped == ids.data() + end && id >= 0 && id < vocabulary,
            "the prompt's token ", tokens.size(), " is '",
            ids.substr(at, std::min(end - at, std::size_t{40})), "'; expected an id from 0 to ",
            vocabulary - 1);
    tokens.push_back(static_cast<std::int32_t>(id));
    at = ids.find_first_not_of(between, end);
  }
  return tokens;
}

}  // namespace ostrakon::apps
