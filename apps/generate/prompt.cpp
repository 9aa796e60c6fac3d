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
void require_no_pointer(const std::string& path, const std::string& text) {
  try {
    if (text.size() <= most_lfs_pointer_bytes) require_no_lfs_pointer(path, text);
  } catch (const LfsPointer& pointer) {
    throw Error("--prompt-file " + std::string(pointer.what()));
  }
}

std::string read_standard_input(std::ostream& log) {
  tell_that_it_waits(log);
  return read_all(STDIN_FILENO, "standard input");
}

}  // namespace

std::string read_prompt(const std::string& path, std::ostream& log) {
  if (path == "-") return without_last_newline(read_standard_input(log));
  const std::string name = "--prompt-file '" + path + "'";
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(descriptor >= 0, "can't read ", name, ": ", std::strerror(errno));
  try {
    std::string text = read_all(descriptor, name);
    require_no_pointer(path, text);
    ::close(descriptor);
    return without_last_newline(std::move(text));
  } catch (...) {
    ::close(descriptor);
    throw;
  }
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
