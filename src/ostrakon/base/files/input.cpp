// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/input.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/lfs_pointer.hpp>
#include <ostrakon/base/format.hpp>
#include <system_error>
#include <thread>

namespace ostrakon {
namespace {

// Longest time in seconds to wait for a writer to open a pipe, and for more bytes from it.
constexpr double longest_wait = 10.0, longest_silence = 60.0;

class Descriptor {
 public:
  /// Opens a pipe without waiting for its writer; reads from it don't block.
  explicit Descriptor(const std::string& path)
      : number_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

/// Waits for bytes; returns whether all writers have closed the pipe.
bool is_abandoned(int descriptor, int milliseconds) {
  pollfd watched{descriptor, POLLIN, 0};
  const int ready = ::poll(&watched, 1, milliseconds);
  return ready > 0 && (watched.revents & POLLIN) == 0;
}

}  // namespace

std::string read_text(const std::string& path, std::size_t most) {
  const Descriptor file(path);
  require(file.number() >= 0, path, ": can't be read: ", system_error());
  struct stat status {};
  const bool is_known = ::fstat(file.number(), &status) == 0;
  require(is_known, path, ": can't be read: ", system_error());
  require(!S_ISDIR(status.st_mode), path, ": is a folder; expected a file");
  const Stopwatch waited;
  Stopwatch silent;
  std::string text(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t got = ::read(file.number(), text.data() + size, most - size);
    if (got > 0) {
      size += static_cast<std::size_t>(got);
      silent = Stopwatch();
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // the writer is slow
      require(silent.seconds() < longest_silence, path, ": is a pipe, and its writer has written ",
              "nothing in ", longest_silence, " seconds");
      is_abandoned(file.number(), 1000);
      continue;
    }
    require(got == 0, path, ": can't be read: ", system_error());
    // No bytes mean the end of the file, unless it is a pipe without a writer so far.
    if (!S_ISFIFO(status.st_mode) || size > 0 || is_abandoned(file.number(), 0)) break;
    require(waited.seconds() < longest_wait, path, ": is a pipe to which no process wrote within ",
            longest_wait, " seconds");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  text.resize(size);
  require_no_lfs_pointer(path, text);
  return text;
}

void require_no_pipe(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return;  // the error is reported when the file is opened
  require(!S_ISFIFO(status.st_mode), "can't write '", path, "': it is a pipe, not a plain file");
}

void require_expanded(const std::string& what, const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  require(path.rfind('~', 0) != 0, what,
          ": '~' is not expanded to a home folder here; expected the ",
          "path written out, or './' before a name that begins with '~'");
  fs::path own = path;
  if (own.is_absolute()) {
    std::error_code failure;  // set if there is no working directory
    const fs::path known = fs::absolute(folder.empty() ? "." : folder, failure).lexically_normal();
    const auto [begin, ignored] = std::mismatch(own.begin(), own.end(), known.begin(), known.end());
    fs::path rest;
    for (auto part = begin; part != own.end(); ++part) rest /= *part;
    own = rest;
  }
  require(own.string().find('$') == std::string::npos, what,
          ": '$' is not expanded here; expected the path without variables");
}

void require_utf8(const std::string& what, const std::string& text) {
  const std::size_t at = first_not_utf8(text);
  require(at == text.size(), what, ": byte ", at + 1, " of '", text,
          "' is not UTF-8; expected a path that is, as files of this program keep it");
}

}  // namespace ostrakon
