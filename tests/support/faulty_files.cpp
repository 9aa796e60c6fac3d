// SPDX-License-Identifier: Apache-2.0

// A file system, preloaded, that fails at a chosen moment. It counts this process's calls that make
// or change files whose path holds the text OSTRAKON_FAULT_PATH, or that close such a file. From
// the environment:
//
//   OSTRAKON_FAULT_CALL   the call to fail, the first is 1
//   OSTRAKON_FAULT        kill       the process ends by SIGKILL before the call
//                         kill-half  the same, but half the bytes of a write are written
//                         enospc     the call fails, "No space left on device"
//                         eio        the call fails, "Input/output error"
//   OSTRAKON_FAULT_STAYS  1: all later calls fail as well
//   OSTRAKON_FAULT_COUNT  a file that gets, at the end of the process, a line with the number of
//                         calls

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum class Fault { none, kill, kill_half, no_space, input_output };

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Fault fault_named(const std::string& name) {
  if (name == "kill") return Fault::kill;
  if (name == "kill-half") return Fault::kill_half;
  if (name == "enospc") return Fault::no_space;
  if (name == "eio") return Fault::input_output;
  return Fault::none;
}

class Faults {
 public:
  Faults() {
    if (!count_file_.empty()) std::atexit([] { instance().write_count(); });
  }

  static Faults& instance() {
    static Faults* const faults = new Faults;  // used until the process ends
    return *faults;
  }

  bool concerns(const std::string& path) const {
    return !text_.empty() && path.find(text_) != std::string::npos;
  }
  /// By the path that a descriptor has now.
  bool concerns(int descriptor) const { return !text_.empty() && concerns(path_of(descriptor)); }
  bool concerns(int folder, const char* name) const {
    if (name == nullptr || text_.empty()) return false;
    return concerns(name[0] == '/' || folder == AT_FDCWD ? std::string(name)
                                                         : path_of(folder) + "/" + name);
  }

  /// Counts a call, and ends the process where that is its fault. True where the call shall fail:
  /// errno is set. write_half() is called before a process ends halfway.
  template <class WriteHalf>
  bool fails(const WriteHalf& write_half) {
    const long call = ++calls_;
    if (fault_ == Fault::none || call < call_ || (call > call_ && !stays_)) return false;
    if (fault_ == Fault::kill_half) write_half();
    if (fault_ == Fault::kill || fault_ == Fault::kill_half) ::kill(::getpid(), SIGKILL);
    errno = fault_ == Fault::no_space ? ENOSPC : EIO;
    return true;
  }
  bool fails() {
    return fails([] {});
  }

 private:
  static std::string path_of(int descriptor) {
    char path[4096];
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    const int saved = errno;
    const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
    errno = saved;
    return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
  }

  void write_count() const {
    if (std::FILE* const file = std::fopen(count_file_.c_str(), "a")) {
      std::fprintf(file, "%ld\n", calls_.load());
      std::fclose(file);
    }
  }

  const std::string text_ = setting("OSTRAKON_FAULT_PATH");
  const std::string count_file_ = setting("OSTRAKON_FAULT_COUNT");
  const Fault fault_ = fault_named(setting("OSTRAKON_FAULT"));
  const long call_ = std::atol(setting("OSTRAKON_FAULT_CALL").c_str());
  const bool stays_ = setting("OSTRAKON_FAULT_STAYS") == "1";
  std::atomic<long> calls_{0};
};

Faults& faults() { return Faults::instance(); }

/// The function that this library stands before.
template <class Function>
Function* next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof function);
  return function;
}

/// The mode that open() takes where it may make a file.
mode_t mode_of(int flags, va_list arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

bool open_fails(int folder, const char* path, int flags) {
  return (flags & O_CREAT) != 0 && faults().concerns(folder, path) && faults().fails();
}

/// The call, or its failure.
template <class Call>
int change(bool concerned, const Call& call) {
  if (concerned && faults().fails()) return -1;
  return call();
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_fails(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_fails(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_fails(folder, path, flags) ? -1 : real(folder, path, flags, mode);
}

int openat64(int folder, const char* path, int flags, ...) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_fails(folder, path, flags) ? -1 : real(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const auto half = [&] { real(descriptor, data, bytes / 2); };
  if (faults().concerns(descriptor) && faults().fails(half)) return -1;
  return real(descriptor, data, bytes);
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const auto half = [&] { real(descriptor, data, bytes / 2, offset); };
  if (faults().concerns(descriptor) && faults().fails(half)) return -1;
  return real(descriptor, data, bytes, offset);
}

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  const auto half = [&] { real(descriptor, data, bytes / 2, offset); };
  if (faults().concerns(descriptor) && faults().fails(half)) return -1;
  return real(descriptor, data, bytes, offset);
}

ssize_t writev(int descriptor, const iovec* parts, int count) {
  static auto* const real = next<ssize_t(int, const iovec*, int)>("writev");
  const auto half = [&] { real(descriptor, parts, count / 2); };
  if (faults().concerns(descriptor) && faults().fails(half)) return -1;
  return real(descriptor, parts, count);
}

int ftruncate(int descriptor, off_t bytes) noexcept {
  static auto* const real = next<int(int, off_t)>("ftruncate");
  return change(faults().concerns(descriptor), [&] { return real(descriptor, bytes); });
}

int ftruncate64(int descriptor, off64_t bytes) noexcept {
  static auto* const real = next<int(int, off64_t)>("ftruncate64");
  return change(faults().concerns(descriptor), [&] { return real(descriptor, bytes); });
}

int fsync(int descriptor) {
  static auto* const real = next<int(int)>("fsync");
  return change(faults().concerns(descriptor), [&] { return real(descriptor); });
}

int fdatasync(int descriptor) {
  static auto* const real = next<int(int)>("fdatasync");
  return change(faults().concerns(descriptor), [&] { return real(descriptor); });
}

// A descriptor is closed even where that fails.
int close(int descriptor) {
  static auto* const real = next<int(int)>("close");
  if (!faults().concerns(descriptor) || !faults().fails()) return real(descriptor);
  const int reason = errno;
  real(descriptor);
  errno = reason;
  return -1;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const real = next<int(const char*, const char*)>("rename");
  const bool concerned = faults().concerns(AT_FDCWD, from) || faults().concerns(AT_FDCWD, to);
  return change(concerned, [&] { return real(from, to); });
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  static auto* const real = next<int(int, const char*, int, const char*)>("renameat");
  const bool concerned = faults().concerns(from_folder, from) || faults().concerns(to_folder, to);
  return change(concerned, [&] { return real(from_folder, from, to_folder, to); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return change(faults().concerns(AT_FDCWD, path), [&] { return real(path, mode); });
}

int unlink(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("unlink");
  return change(faults().concerns(AT_FDCWD, path), [&] { return real(path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  return change(faults().concerns(folder, path), [&] { return real(folder, path, flags); });
}

int rmdir(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("rmdir");
  return change(faults().concerns(AT_FDCWD, path), [&] { return real(path); });
}

// In the C library it does not come back to unlink() or rmdir().
int remove(const char* path) noexcept {
  static auto* const real = next<int(const char*)>("remove");
  return change(faults().concerns(AT_FDCWD, path), [&] { return real(path); });
}

int symlink(const char* target, const char* path) noexcept {
  static auto* const real = next<int(const char*, const char*)>("symlink");
  return change(faults().concerns(AT_FDCWD, path), [&] { return real(target, path); });
}

}  // extern "C"
