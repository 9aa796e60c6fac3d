// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <ostrakon/base/files/lock_file.hpp>
#include <ostrakon/base/files/lock_holder.hpp>
#include <string>
#include <thread>

// A lock on a folder that one process at a time may change, also across hosts. Its file "run.lock"
// is locked in the kernel: many network file systems pass this lock on to their server, and it ends
// with the process or its host. For file systems that don't lock, or lock on each host apart, the
// file's text names the holder (lock_holder.hpp), with a counter that grows while the holder runs.
//
// A process that finds a text and no kernel lock takes the file over if the holder is gone. On the
// same host, since the same boot, that is known at once; on other hosts, it is known when the
// counter has not changed for three intervals. While the file can't be read, the lock is neither
// taken over nor renewed.

namespace ostrakon {

struct FolderLockOptions {
  bool take_from_holder = false;               ///< also if it is held; its holder notices
  std::chrono::milliseconds interval{10'000};  ///< time between renewals of the counter
  std::chrono::milliseconds patience{2'000};   ///< wait for a holder about to end
  /// Receives sentences for the user: on waiting, and on the holder from which the lock was taken.
  /// May be empty.
  std::function<void(const std::string&)> tell;
  std::string advice;  ///< appended to the error "... is in use by ...": "; end it"
  /// The holder to write; nothing: this process. For tests.
  std::optional<LockHolder> holder;
  /// Locks an open file for this process alone, without waiting; returns 0 or errno. Tests use it
  /// to imitate other file systems.
  std::function<int(int descriptor)> try_lock;
  /// Reads the file, as read_lock_text() does. Tests use it to make reads fail.
  std::function<LockText(const std::string& path)> read;
};

/// Holds the lock on a folder from construction to destruction, which removes the file. A thread
/// renews the counter.
class FolderLock {
 public:
  /// Throws Error if the folder has another holder, which it names, or if the file can't be
  /// written. The folder must exist.
  FolderLock(const std::string& folder, FolderLockOptions options);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// Throws Error if the folder was taken over, naming its present holder, or if the file could not
  /// be read for longer than an interval. Reads the file: to be called before any change that
  /// another process must not make at the same time.
  void require_held();
  /// Whether the lock had been taken over at the last renewal of the counter.
  bool is_lost() const { return is_lost_; }

 private:
  enum class Attempt { taken, again };
  Attempt attempt(bool may_wait);
  bool is_gone(const std::string& found, bool kernel_lock, bool& settles, bool& is_taken) const;
  bool is_unchanged(const std::string& found) const;
  void tell_taken(const std::string& found) const;
  void require_taken();
  void replace_file();
  void remove_stale_files() const;
  void write();
  void write_first(bool made);
  bool look();
  bool make_again();
  void keep_renewing();
  void release();
  int try_lock(int descriptor) const;
  LockText read() const;
  std::optional<std::string> read_or_throw() const;
  void tell(const std::string& words) const;
  [[noreturn]] void refuse(const std::string& found) const;

  const std::string path_;
  const FolderLockOptions options_;
  LockHolder self_;
  int descriptor_ = -1;

  std::mutex mutex_;  // guards the lock file, lost_, unread_, seen_ and ends_
  std::string lost_;  // the process that has taken the lock
  int unread_ = 0;    // errno of the last read of the file; 0: it was read
  std::chrono::steady_clock::time_point seen_ =
      std::chrono::steady_clock::now();  // of the last successful read
  bool ends_ = false;
  std::atomic<bool> is_lost_{false};  // atomic, so that is_lost() never waits for a file system
  std::condition_variable wakes_;
  std::thread renewal_;
};

}  // namespace ostrakon
