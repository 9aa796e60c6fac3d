// SPDX-License-Identifier: Apache-2.0

// Preloaded library: file system calls that fail at a chosen moment. It counts this process's calls
// for files whose path contains a given text. It reads the environment:
//
//   OSTRAKON_FAULT_PATH   the text
//   OSTRAKON_FAULT_CALLS  which calls count, a list with commas; the default is "changes":
//                         opens    open a file or folder that must be there
//                         reads    read from a file or folder
//                         stats    ask for what a path or a file is
//                         changes  make or change files, or close any file
//                         closes   close any file
//                         hints    give advice, which may fail without harm
//                         all
//   OSTRAKON_FAULT_RANK   only processes of this rank of MPI count; default: all
//   OSTRAKON_FAULT_CALL   the call to fail, the first is 1
//   OSTRAKON_FAULT        kill       the process ends by SIGKILL before the call
//                         kill-half  the same, but half the bytes of a write are written
//                         hang       the call never returns
//                         eio, enospc, eacces, enoent, estale, enomem, emfile
//                                    the call fails with this error
//   OSTRAKON_FAULT_STAYS  1: all later calls fail as well
//   OSTRAKON_FAULT_LAST   all later calls up to this one fail as well: a disk that is full for a
//                         while
//   OSTRAKON_FAULT_HALF   1: the first call that fails writes half of its bytes and says so
//   OSTRAKON_FAULT_COUNT  a file that gets, at the end of the process, a line with the number of
//                         calls
//   OSTRAKON_FAULT_LOG    a file that gets a line for each call: number, function, path
//
// fopen() and fclose() are intercepted for C and C++ streams, as the system calls inside them can't
// be; C++ streams call read() and write().

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/// Kinds of calls, one bit each.
enum Kind : unsigned { opens = 1, reads = 2, stats = 4, changes = 8, closes = 16, hints = 32 };

struct Word {
  const char* name;
  unsigned kinds;
};
constexpr Word words[] = {
    {"opens", opens},   {"reads", reads}, {"stats", stats}, {"changes", changes | closes},
    {"closes", closes}, {"hints", hints}, {"all", ~0u}};

struct Reason {
  const char* name;
  int number;
};
constexpr Reason reasons[] = {{"eio", EIO},       {"enospc", ENOSPC}, {"eacces", EACCES},
                              {"enoent", ENOENT}, {"estale", ESTALE}, {"enomem", ENOMEM},
                              {"emfile", EMFILE}};

std::string setting(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void refuse(const std::string& name, const std::string& value) {
  std::fprintf(stderr, "faulty_files: %s is '%s', which is nothing known\n", name.c_str(),
               value.c_str());
  std::_Exit(125);
}

unsigned kinds_named(const std::string& list) {
  if (list.empty()) return changes | closes;
  unsigned kinds = 0;
  for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = list.find(',', begin);
    const std::string name = list.substr(begin, end - begin);
    unsigned found = 0;
    for (const Word& word : words)
      if (name == word.name) found = word.kinds;
    if (found == 0) refuse("OSTRAKON_FAULT_CALLS", list);
    kinds |= found;
  }
  return kinds;
}

bool is_of_rank(const std::string& rank) {
  if (rank.empty()) return true;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (std::getenv(name) != nullptr) return setting(name) == rank;
  // A single rank without mpiexec counts, but mpiexec itself does not.
  return rank == "0" && std::string(program_invocation_short_name).rfind("ostrakon-", 0) == 0;
}

/// Returns the current path of a descriptor.
std::string path_of(int descriptor) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

/// The file of a call: an open file, or a name, perhaps relative to an open folder; or two names.
struct Place {
  int folder = AT_FDCWD;
  const char* name = nullptr;
  const char* second = nullptr;
  int second_folder = AT_FDCWD;

  std::string path() const { return joined(folder, name); }
  std::string second_path() const { return second == nullptr ? "" : joined(second_folder, second); }

 private:
  static std::string joined(int folder, const char* name) {
    if (name == nullptr) return path_of(folder);
    return name[0] == '/' || folder == AT_FDCWD ? name : path_of(folder) + "/" + name;
  }
};

Place at(int descriptor) { return {descriptor}; }
Place at(const char* name) { return {AT_FDCWD, name == nullptr ? "" : name}; }
Place at(int folder, const char* name) { return {folder, name == nullptr ? "" : name}; }
Place at(std::FILE* stream) { return {::fileno(stream)}; }
Place at(DIR* folder) { return {::dirfd(folder)}; }

class Faults {
 public:
  Faults() {
    const std::string fault = setting("OSTRAKON_FAULT");
    kills_ = fault == "kill" || fault == "kill-half";
    hangs_ = fault == "hang";
    writes_half_ = fault == "kill-half" || setting("OSTRAKON_FAULT_HALF") == "1";
    for (const Reason& reason : reasons)
      if (fault == reason.name) error_ = reason.number;
    if (!kills_ && !hangs_ && error_ == 0 && !fault.empty() && fault != "count")
      refuse("OSTRAKON_FAULT", fault);
    if (!is_of_rank(setting("OSTRAKON_FAULT_RANK"))) text_.clear();
    if (!count_file_.empty() && is_of_rank(setting("OSTRAKON_FAULT_RANK")))
      std::atexit([] { instance().write_count(); });
  }

  static Faults& instance() {
    static Faults* const faults = new Faults;  // never destroyed
    return *faults;
  }

  /// Counts a call if it matches, and ends the process if that is the chosen fault. Returns true,
  /// and sets errno, if the call must fail. write_half() is called before a process ends in the
  /// middle of a write.
  template <class WriteHalf>
  bool fails(Kind kind, const char* function, const Place& place, const WriteHalf& write_half) {
    if (text_.empty() || (kinds_ & kind) == 0 || off_) return false;
    const int saved = errno;
    const std::string path = place.path();
    const bool concerned = holds(path) || holds(place.second_path());
    errno = saved;
    if (!concerned) return false;
    const long call = ++calls_;
    if (!log_file_.empty()) append(log_file_, std::to_string(call) + " " + function + " " + path);
    errno = saved;
    if ((!kills_ && !hangs_ && error_ == 0) || call < call_ || (call > last_ && !stays_))
      return false;
    if (writes_half_ && call == call_) write_half();
    if (kills_) ::kill(::getpid(), SIGKILL);
    while (hangs_) ::pause();
    errno = error_;
    return true;
  }

 private:
  bool holds(const std::string& path) const { return path.find(text_) != std::string::npos; }

  /// Appends a line with one write, as several processes may write to the file.
  void append(const std::string& file, const std::string& line) {
    off_ = true;
    const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const std::string bytes = line + "\n";
    if (descriptor >= 0 && ::write(descriptor, bytes.data(), bytes.size()) < 0) std::abort();
    if (descriptor >= 0) ::close(descriptor);
    off_ = false;
  }
  void write_count() { append(count_file_, std::to_string(calls_.load())); }

  std::string text_ = setting("OSTRAKON_FAULT_PATH");
  const std::string count_file_ = setting("OSTRAKON_FAULT_COUNT");
  const std::string log_file_ = setting("OSTRAKON_FAULT_LOG");
  const unsigned kinds_ = kinds_named(setting("OSTRAKON_FAULT_CALLS"));
  const long call_ = std::atol(setting("OSTRAKON_FAULT_CALL").c_str());
  const long last_ = std::max(call_, std::atol(setting("OSTRAKON_FAULT_LAST").c_str()));
  const bool stays_ = setting("OSTRAKON_FAULT_STAYS") == "1";
  bool kills_ = false, hangs_ = false, writes_half_ = false;
  int error_ = 0;
  std::atomic<long> calls_{0};
  static thread_local bool off_;  // set while this library itself writes
};

thread_local bool Faults::off_ = false;

template <class WriteHalf>
bool fails(Kind kind, const char* function, const Place& place, const WriteHalf& write_half) {
  return Faults::instance().fails(kind, function, place, write_half);
}

bool fails(Kind kind, const char* function, const Place& place) {
  return fails(kind, function, place, [] {});
}

/// Returns the function that this library intercepts.
template <class Function>
Function* next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof function);
  return function;
}

/// Returns the mode argument that open() takes if it may create a file.
mode_t mode_of(int flags, va_list arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

Kind kind_of_open(int flags) { return (flags & O_CREAT) != 0 ? changes : opens; }
Kind kind_of_open(const char* mode) {
  return mode[0] == 'r' && std::strchr(mode, '+') == nullptr ? opens : changes;
}

/// Fails after closing, as a file is closed even if close() reports an error.
template <class Close>
int failure_after(const Close& close) {
  const int reason = errno;
  close();
  errno = reason;
  return -1;
}

/// Sets a stream's error flag, as a failed call would do.
std::size_t failure_of(std::FILE* stream) {
#ifdef __GLIBC__
  constexpr int error_seen = 0x20;
  stream->_flags |= error_seen;
#else
  static_cast<void>(stream);
#endif
  return 0;
}

// The functions `stat` and `stat64` hide the types of these names.
using Stat = struct stat;
using Stat64 = struct stat64;
using Statx = struct statx;
using Statvfs = struct statvfs;
using Statvfs64 = struct statvfs64;

}  // namespace

// Defines an intercepted function: its kind; result type, name, parameters and arguments; its
// Place, and its result on failure. `real` is the C library's function.
#define FUNCTION(kind, result, name, parameters, arguments, place, failure) \
  result name parameters {                                                  \
    static auto* const real = next<result parameters>(#name);               \
    if (fails(kind, #name, place)) return failure;                          \
    return real arguments;                                                  \
  }

// Defines a function that writes, with the arguments to write half of the bytes.
#define WRITING(name, parameters, arguments, half)                                       \
  ssize_t name parameters {                                                              \
    static auto* const real = next<ssize_t parameters>(#name);                           \
    ssize_t taken = -1;                                                                  \
    if (fails(changes, #name, at(descriptor), [&] { taken = real half; })) return taken; \
    return real arguments;                                                               \
  }

// Defines a variant of open(), whose last argument exists only if it may create a file.
#define OPENING(name, parameters, types, place, ...)         \
  int name parameters {                                      \
    static auto* const real = next<int types>(#name);        \
    va_list arguments;                                       \
    va_start(arguments, flags);                              \
    const mode_t mode = mode_of(flags, arguments);           \
    va_end(arguments);                                       \
    if (fails(kind_of_open(flags), #name, place)) return -1; \
    return real(__VA_ARGS__, flags, mode);                   \
  }

// clang-format off
extern "C" {

OPENING(open,     (const char* path, int flags, ...), (const char*, int, ...), at(path), path)
OPENING(open64,   (const char* path, int flags, ...), (const char*, int, ...), at(path), path)
OPENING(openat,   (int folder, const char* path, int flags, ...), (int, const char*, int, ...),
        at(folder, path), folder, path)
OPENING(openat64, (int folder, const char* path, int flags, ...), (int, const char*, int, ...),
        at(folder, path), folder, path)
FUNCTION(kind_of_open(mode), std::FILE*, fopen,   (const char* path, const char* mode),
         (path, mode), at(path), nullptr)
FUNCTION(kind_of_open(mode), std::FILE*, fopen64, (const char* path, const char* mode),
         (path, mode), at(path), nullptr)
FUNCTION(opens, DIR*, opendir,   (const char* path), (path), at(path), nullptr)
FUNCTION(opens, DIR*, fdopendir, (int descriptor), (descriptor), at(descriptor), nullptr)
FUNCTION(opens, std::FILE*, fdopen, (int descriptor, const char* mode) noexcept,
         (descriptor, mode), at(descriptor), nullptr)

FUNCTION(reads, ssize_t, read,    (int descriptor, void* data, size_t bytes),
         (descriptor, data, bytes), at(descriptor), -1)
FUNCTION(reads, ssize_t, pread,   (int descriptor, void* data, size_t bytes, off_t offset),
         (descriptor, data, bytes, offset), at(descriptor), -1)
FUNCTION(reads, ssize_t, pread64, (int descriptor, void* data, size_t bytes, off64_t offset),
         (descriptor, data, bytes, offset), at(descriptor), -1)
FUNCTION(reads, ssize_t, readv,   (int descriptor, const iovec* parts, int count),
         (descriptor, parts, count), at(descriptor), -1)
FUNCTION(reads, size_t, fread,    (void* data, size_t size, size_t count, std::FILE* stream),
         (data, size, count, stream), at(stream), failure_of(stream))
FUNCTION(reads, dirent*, readdir,     (DIR* folder), (folder), at(folder), nullptr)
FUNCTION(reads, dirent64*, readdir64, (DIR* folder), (folder), at(folder), nullptr)

FUNCTION(stats, int, stat,    (const char* path, Stat* out) noexcept, (path, out), at(path), -1)
FUNCTION(stats, int, stat64,  (const char* path, Stat64* out) noexcept, (path, out), at(path), -1)
FUNCTION(stats, int, lstat,   (const char* path, Stat* out) noexcept, (path, out), at(path), -1)
FUNCTION(stats, int, lstat64, (const char* path, Stat64* out) noexcept, (path, out), at(path), -1)
FUNCTION(stats, int, fstat,   (int descriptor, Stat* out) noexcept, (descriptor, out),
         at(descriptor), -1)
FUNCTION(stats, int, fstat64, (int descriptor, Stat64* out) noexcept, (descriptor, out),
         at(descriptor), -1)
FUNCTION(stats, int, fstatat, (int folder, const char* path, Stat* out, int flags) noexcept,
         (folder, path, out, flags), at(folder, path), -1)
FUNCTION(stats, int, statx,
         (int folder, const char* path, int flags, unsigned mask, Statx* out) noexcept,
         (folder, path, flags, mask, out), at(folder, path), -1)
FUNCTION(stats, int, statvfs, (const char* path, Statvfs* out) noexcept, (path, out), at(path), -1)
FUNCTION(stats, int, statvfs64, (const char* path, Statvfs64* out) noexcept, (path, out),
         at(path), -1)
FUNCTION(stats, int, access,  (const char* path, int mode) noexcept, (path, mode), at(path), -1)
FUNCTION(stats, ssize_t, readlink, (const char* path, char* out, size_t size) noexcept,
         (path, out, size), at(path), -1)
FUNCTION(stats, char*, realpath, (const char* path, char* out) noexcept, (path, out), at(path),
         nullptr)

WRITING(write,    (int descriptor, const void* data, size_t bytes),
        (descriptor, data, bytes), (descriptor, data, bytes / 2))
WRITING(pwrite,   (int descriptor, const void* data, size_t bytes, off_t offset),
        (descriptor, data, bytes, offset), (descriptor, data, bytes / 2, offset))
WRITING(pwrite64, (int descriptor, const void* data, size_t bytes, off64_t offset),
        (descriptor, data, bytes, offset), (descriptor, data, bytes / 2, offset))
WRITING(writev,   (int descriptor, const iovec* parts, int count),
        (descriptor, parts, count), (descriptor, parts, count / 2))
FUNCTION(changes, size_t, fwrite, (const void* data, size_t size, size_t count, std::FILE* stream),
         (data, size, count, stream), at(stream), failure_of(stream))
FUNCTION(changes, int, ftruncate,   (int descriptor, off_t bytes) noexcept, (descriptor, bytes),
         at(descriptor), -1)
FUNCTION(changes, int, ftruncate64, (int descriptor, off64_t bytes) noexcept, (descriptor, bytes),
         at(descriptor), -1)
FUNCTION(changes, int, truncate,    (const char* path, off_t bytes) noexcept, (path, bytes),
         at(path), -1)
FUNCTION(changes, int, fsync,     (int descriptor), (descriptor), at(descriptor), -1)
FUNCTION(changes, int, fdatasync, (int descriptor), (descriptor), at(descriptor), -1)
FUNCTION(changes, int, rename,    (const char* from, const char* to) noexcept, (from, to),
         (Place{AT_FDCWD, from, to}), -1)
FUNCTION(changes, int, renameat,
         (int from_folder, const char* from, int to_folder, const char* to) noexcept,
         (from_folder, from, to_folder, to), (Place{from_folder, from, to, to_folder}), -1)
FUNCTION(changes, int, renameat2,
         (int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept,
         (from_folder, from, to_folder, to, flags), (Place{from_folder, from, to, to_folder}), -1)
FUNCTION(changes, int, link,      (const char* from, const char* to) noexcept, (from, to),
         (Place{AT_FDCWD, from, to}), -1)
FUNCTION(changes, int, symlink,   (const char* target, const char* path) noexcept, (target, path),
         at(path), -1)
FUNCTION(changes, int, mkdir,     (const char* path, mode_t mode) noexcept, (path, mode), at(path),
         -1)
FUNCTION(changes, int, mkdirat,   (int folder, const char* path, mode_t mode) noexcept,
         (folder, path, mode), at(folder, path), -1)
FUNCTION(changes, int, unlink,    (const char* path) noexcept, (path), at(path), -1)
FUNCTION(changes, int, unlinkat,  (int folder, const char* path, int flags) noexcept,
         (folder, path, flags), at(folder, path), -1)
FUNCTION(changes, int, rmdir,     (const char* path) noexcept, (path), at(path), -1)
// The C library's remove() does not call the intercepted unlink() or rmdir().
FUNCTION(changes, int, remove,    (const char* path) noexcept, (path), at(path), -1)

FUNCTION(closes, int, close,    (int descriptor), (descriptor), at(descriptor),
         failure_after([&] { real(descriptor); }))
FUNCTION(closes, int, fclose,   (std::FILE* stream), (stream), at(stream),
         failure_after([&] { real(stream); }))
FUNCTION(closes, int, closedir, (DIR* folder), (folder), at(folder),
         failure_after([&] { real(folder); }))

FUNCTION(hints, int, posix_fadvise,
         (int descriptor, off_t offset, off_t bytes, int advice) noexcept,
         (descriptor, offset, bytes, advice), at(descriptor), errno)
FUNCTION(hints, int, sync_file_range,
         (int descriptor, off64_t offset, off64_t bytes, unsigned flags),
         (descriptor, offset, bytes, flags), at(descriptor), -1)

}  // extern "C"
