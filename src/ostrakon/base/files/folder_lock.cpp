// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/folder_lock.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/lock_file.hpp>
#include <system_error>
#include <utility>

namespace ostrakon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

void wait(milliseconds time) { std::this_thread::sleep_for(time); }

/// Returns the interval at which the holder renews its counter, or `ours` if the text does not give
/// a plausible one.
milliseconds interval_of(const std::string& found, milliseconds ours) {
  const auto them = read_holder(found);
  return them && them->process != 0
             ? std::clamp(them->interval, milliseconds(10), milliseconds(60'000))
             : ours;
}

bool is_other_file(const std::string& path, int descriptor) {
  try {
    return !is_file_of(path, descriptor);
  } catch (const Error&) {
    return false;
  }
}

std::string name_of(const std::string& found) {
  const auto them = read_holder(found);
  return them ? describe(*them) : "another process";
}

/// Starts a thread with all signals blocked: signals are for the process's other threads.
template <class Work>
std::thread start_without_signals(const Work& work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(work);
  } catch (const std::system_error&) {
    // If the system has no thread left, the kernel lock and require_held() work without it.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, FolderLockOptions options)
    : path_((std::filesystem::path(folder) / "run.lock").string()),
      options_(std::move(options)),
      self_(options_.holder ? *options_.holder : this_holder(options_.interval)) {
  try {
    const Clock::time_point until = Clock::now() + options_.patience;
    while (attempt(Clock::now() < until) == Attempt::again) wait(milliseconds(20));
    seen_ = Clock::now();
    remove_stale_files();
  } catch (...) {
    if (descriptor_ >= 0) close(descriptor_);
    throw;
  }
  renewal_ = start_without_signals([this] { keep_renewing(); });
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    ends_ = true;
  }
  wakes_.notify_all();
  if (renewal_.joinable()) renewal_.join();
  release();
}

int FolderLock::try_lock(int descriptor) const {
  return options_.try_lock ? options_.try_lock(descriptor) : lock_in_kernel(descriptor);
}

LockText FolderLock::read() const {
  return options_.read ? options_.read(path_) : read_lock_text(path_);
}

/// Reads the lock file; returns nothing if it was removed meanwhile. Throws Error if it can't be
/// read: the holder is unknown then.
std::optional<std::string> FolderLock::read_or_throw() const {
  const LockText found = read();
  if (is_removed(found.error)) return std::nullopt;
  require(found.error == 0, path_,
          " can't be read: ", std::generic_category().message(found.error));
  return found.text;
}

void FolderLock::tell(const std::string& words) const {
  if (options_.tell) options_.tell(words);
}

void FolderLock::refuse(const std::string& found) const {
  throw Error(text("'", parent_folder(path_), "' is in use by ", name_of(found), options_.advice));
}

FolderLock::Attempt FolderLock::attempt(bool may_wait) {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const bool made = descriptor_ >= 0, exists = !made && errno == EEXIST;
  // Its holder has just ended, which any call may notice if the holder is on another host.
  const auto ended = [&](int error) { return may_wait && is_removed(error); };
  if (exists) {
    descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor_ < 0 && ended(errno)) return Attempt::again;
  }
  require(descriptor_ >= 0, path_, " can't be ", exists ? "opened" : "made", ": ", system_error());
  struct stat kind {};
  if (fstat(descriptor_, &kind) != 0) {
    if (ended(errno)) return Attempt::again;
    throw Error(text(path_, " can't be looked at: ", system_error()));
  }
  require(S_ISREG(kind.st_mode), path_, " is not a plain file; expected one that locks the folder");
  const int error = try_lock(descriptor_);
  if (ended(error)) return Attempt::again;
  if (is_refusal(error)) {
    if (may_wait && !options_.take_from_holder) return Attempt::again;
    if (!options_.take_from_holder) refuse(read().text);
    const std::optional<std::string> found = read_or_throw();
    if (!found) return Attempt::again;
    replace_file();
    tell_taken(*found);
    require_taken();
    return Attempt::taken;
  }
  const bool kernel_lock = error == 0;
  require(kernel_lock || has_no_locks(error), path_,
          " can't be locked: ", std::generic_category().message(error));
  if (!is_file_of(path_, descriptor_)) return Attempt::again;
  if (made) {
    write_first(made);
    return Attempt::taken;
  }
  const std::optional<std::string> found = read_or_throw();
  if (!found) return Attempt::again;
  bool settles = !kernel_lock, is_taken = false;  // is_taken: from a live holder
  // An empty file means that its holder has ended, or is about to write its name.
  if (!found->empty() || !kernel_lock) {
    if (!is_gone(*found, kernel_lock, settles, is_taken)) {
      const std::optional<std::string> now = read_or_throw();
      if (!now || (now->empty() && now != found)) return Attempt::again;  // its holder ended
      refuse(*now);
    }
    if (!is_file_of(path_, descriptor_)) return Attempt::again;
  }
  write_first(made);
  if (is_taken) tell_taken(*found);
  // Another process may have decided to take the lock at the same time: the last to write has it.
  if (settles) wait(std::min(self_.interval / 5, milliseconds(2000)));
  require_taken();
  return Attempt::taken;
}

/// Throws Error if another process has written its name since, or if the file can't be read.
void FolderLock::require_taken() {
  look();
  if (is_lost_) refuse(read().text);
  require(unread_ == 0, path_, " can't be read: ", std::generic_category().message(unread_));
}

/// Whether the lock may be taken from the holder that the text names. Sets `settles` if another
/// process may take it at the same time.
bool FolderLock::is_gone(const std::string& found, bool kernel_lock, bool& settles,
                         bool& is_taken) const {
  const auto them = read_holder(found);
  const Presence presence = them ? presence_of(*them, self_, kernel_lock) : Presence::unknown;
  settles = settles || presence == Presence::unknown;
  if (options_.take_from_holder && presence != Presence::gone) {
    is_taken = true;
    return true;
  }
  if (presence == Presence::unknown) {
    const double seconds = 3e-3 * static_cast<double>(interval_of(found, self_.interval).count());
    tell(text(path_, " names ", name_of(found), ": waits ", seconds,
              " s to see whether it still is there"));
  }
  const bool gone =
      presence == Presence::gone || (presence == Presence::unknown && is_unchanged(found));
  if (gone) tell(text(path_, " was left by ", name_of(found), ", which is gone: taken over"));
  return gone;
}

/// Waits for the former holder to notice that it has lost the lock, before anything in the folder
/// is changed.
void FolderLock::tell_taken(const std::string& found) const {
  const milliseconds time = interval_of(found, self_.interval) * 6 / 5;
  tell(text("taken from ", name_of(found), ", as asked; waits ",
            1e-3 * static_cast<double>(time.count()), " s, in which it notices"));
  wait(time);
}

/// Whether the file stays unchanged for three intervals.
bool FolderLock::is_unchanged(const std::string& found) const {
  const milliseconds interval = interval_of(found, self_.interval);
  const Clock::time_point end = Clock::now() + 3 * interval;
  while (Clock::now() < end) {
    wait(interval / 10);
    if (read_or_throw() != found) return false;
  }
  return true;
}

/// Replaces the lock file, which another process has open and locked, by a new one.
void FolderLock::replace_file() {
  const std::string own = path_ + "." + self_.id;
  close(descriptor_);
  descriptor_ = open(own.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require(descriptor_ >= 0, own, " can't be made: ", system_error());
  try {
    try_lock(descriptor_);
    write();
    rename_file(own, path_);
  } catch (const Error&) {
    unlink(own.c_str());
    throw;
  }
}

/// Removes files that killed processes left in replace_file(). A recent file may still be in use;
/// its age is measured by the file server's clock.
void FolderLock::remove_stale_files() const {
  const std::filesystem::path path(path_);
  const std::string begin = path.filename().string() + ".";
  std::error_code none;
  const auto now = std::filesystem::last_write_time(path, none);
  if (none) return;
  for (std::filesystem::directory_iterator entry(path.parent_path(), none), end;
       !none && entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    const bool is_of_takers =
        name.rfind(begin, 0) == 0 && name.size() == begin.size() + self_.id.size() &&
        name.find_first_not_of("0123456789abcdef", begin.size()) == std::string::npos;
    if (!is_of_takers) continue;
    std::error_code error;
    const auto written = std::filesystem::last_write_time(entry->path(), error);
    if (!error && now - written > 10 * self_.interval) unlink(entry->path().c_str());
  }
}

void FolderLock::write() {
  const std::string lines = write_holder(self_);
  const ssize_t written = pwrite(descriptor_, lines.data(), lines.size(), 0);
  if (written >= 0 && written < static_cast<ssize_t>(lines.size())) errno = ENOSPC;
  const bool is_written = written == static_cast<ssize_t>(lines.size()) &&
                          ftruncate(descriptor_, static_cast<off_t>(lines.size())) == 0 &&
                          fdatasync(descriptor_) == 0;
  require(is_written, path_, " can't be written: ", system_error());
}

void FolderLock::write_first(bool made) {
  try {
    write();
  } catch (const Error&) {
    if (made) unlink(path_.c_str());
    throw;
  }
}

/// Whether the lock file is known to be still ours.
bool FolderLock::look() {
  if (is_lost_) return false;
  const Clock::time_point now = Clock::now();
  const LockText found = read();
  unread_ = found.error == ENOENT ? 0 : found.error;
  if (unread_ != 0) return false;
  seen_ = now;
  if (found.error == ENOENT) return make_again();
  const auto holder = read_holder(found.text);
  // An empty file is ours unless the system says that it is another file.
  if (holder ? holder->id == self_.id : found.text.empty() && !is_other_file(path_, descriptor_))
    return true;
  lost_ = name_of(found.text);
  is_lost_ = true;
  return false;
}

/// Creates the lock file again after it was removed by hand; fails if another process has taken the
/// folder since.
bool FolderLock::make_again() {
  const int descriptor = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return false;
  if (is_refusal(try_lock(descriptor))) {
    close(descriptor);
    return false;
  }
  close(std::exchange(descriptor_, descriptor));
  try {
    write();
  } catch (const Error&) {
    // If this fails, the next renewal tries again.
  }
  return true;
}

void FolderLock::require_held() {
  const std::lock_guard<std::mutex> guard(mutex_);
  look();
  require(!is_lost_, "'", parent_folder(path_), "' was taken by ", lost_,
          ": nothing more is written there");
  // A single failed read is tolerated: a process that takes the lock waits for longer than an
  // interval before it changes anything.
  require(unread_ == 0 || Clock::now() - seen_ <= self_.interval, path_,
          " can't be read: ", std::generic_category().message(unread_),
          "; whether the folder still is this run's is not known: nothing more is written there");
}

void FolderLock::keep_renewing() {
  std::unique_lock<std::mutex> guard(mutex_);
  Clock::time_point next = Clock::now() + self_.interval;
  while (!wakes_.wait_until(guard, next, [this] { return ends_; })) {
    next = Clock::now() + self_.interval;  // a fixed pace, even if the file system is slow
    const bool is_ours = look();
    if (is_lost_) return;
    if (!is_ours) continue;  // a file that can't be read may belong to another process by now
    ++self_.renewed;
    try {
      write();
    } catch (const Error&) {
      // If the file system is full or absent, the next renewal tries again.
    }
  }
}

void FolderLock::release() {
  const auto holder = read_holder(read().text);
  if (holder && holder->id == self_.id && unlink(path_.c_str()) != 0)
    // An empty file also means that the lock is released.
    if (ftruncate(descriptor_, 0) != 0) std::perror(path_.c_str());
  close(descriptor_);
}

}  // namespace ostrakon
