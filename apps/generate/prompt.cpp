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
#include <sstream>

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

Json parse_json(const std::string& place, const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(place + " is not JSON: " + error.what());
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

Prompt prompt_of(const Line& line, const std::string& place, const Json& given) {
  if (given.is_string()) return line.is_chat ? of_user(given) : Prompt{given, {}};
  require(given.is_object(), place,
          ": expected a string, or an object with `prompt` or `messages`");
  const bool is_chat = given.contains("messages");
  require(is_chat != given.contains("prompt"), place,
          ": expected either `prompt` or `messages` in an object");
  if (!is_chat) {
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
    prompts.push_back(prompt_of(line, place, parse_json(place, one)));
  }
  require(!prompts.empty(), "--prompts '", *line.prompts_file, "' has no prompts");
  return prompts;
}

}  // namespace

std::string read_prompt(const std::string& path, std::ostream& log) {
  return without_last_newline(read_text("--prompt-file", path, log));
}

std::vector<Prompt> read_prompts(const Line& line, std::ostream& log) {
  if (line.prompts_file) return prompts_of_lines(line, log);
  if (line.messages_file) {
    const std::string place = "--messages '" + *line.messages_file + "'";
    return {chat_of(place, parse_json(place, read_text("--messages", *line.messages_file, log)))};
  }
  std::vector<std::string> all = line.prompts;
  if (line.prompt_file) all = {read_prompt(*line.prompt_file, log)};
  require(!line.is_chat || !all.empty(),
          "--chat without a prompt; expected --prompt TEXT, --prompt-file FILE or --messages FILE");
  if (all.empty()) all = {""};
  std::vector<Prompt> prompts;
  for (const std::string& one : all)
    prompts.push_back(line.is_chat ? of_user(one) : Prompt{one, {}});
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
