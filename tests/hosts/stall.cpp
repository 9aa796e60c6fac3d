// SPDX-License-Identifier: Apache-2.0

// A file system that answers one process no more: what the process opens in it, or reads from it,
// never returns, if its path contains a text. Others go on. It begins when a file has the number of
// the process, and lasts until this program is ended. Files that were opened before this program
// was started do not count. Takes root.
//
//   stall FOLDER TEXT FILE      FOLDER: any in the file system; FILE: in another one

#include <fcntl.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace {

int fail(const char* what) {
  std::perror(what);
  return 1;
}

std::string path_of(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

/// The number in a file; 0: there is none.
int number_in(const char* file) {
  int number = 0;
  std::ifstream(file) >> number;
  return number;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: stall FOLDER TEXT FILE\n");
    return 1;
  }
  const std::string text = arguments[2];
  const int watch = ::fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_LARGEFILE);
  if (watch < 0) return fail("fanotify_init");
  if (::fanotify_mark(watch, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_OPEN_PERM | FAN_ACCESS_PERM,
                      AT_FDCWD, arguments[1]) != 0)
    return fail("fanotify_mark");
  alignas(fanotify_event_metadata) char events[4096];
  for (;;) {
    ssize_t length = ::read(watch, events, sizeof events);
    if (length < 0) return fail("read");
    for (auto* event = reinterpret_cast<fanotify_event_metadata*>(events);
         FAN_EVENT_OK(event, length); event = FAN_EVENT_NEXT(event, length)) {
      const bool stalls = path_of(event->fd).find(text) != std::string::npos &&
                          event->pid == number_in(arguments[3]);
      if (stalls)
        continue;  // without close(): answers go by descriptors, which would be used again
      const fanotify_response answer{event->fd, FAN_ALLOW};
      if (::write(watch, &answer, sizeof answer) < 0) return fail("write");
      ::close(event->fd);
    }
  }
}
