// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <ostrakon/base/lock_file.hpp>
#include <ostrakon/base/lock_holder.hpp>
#include <string>
#include <thread>

// A folder that one process at a time may change, whichever hosts see it. Its file "run.lock" is
// locked in the kernel, which many network file systems pass on to their server, and which ends
// with the process or its host; and its text names the holder (lock_holder.hpp) with a counter that
// grows while the holder is there, for file systems that don't lock, or on each host apart.
//
// A process that finds a text and no kernel lock takes the file over where the holder is gone: the
// same host, since the same boot, can tell at once; others because the counter does not change for
// three intervals. What can't be read proves nothing: there is no take-over then, and no renewal.

namespace ostrakon {

struct FolderLockOptions {
  bool take_from_holder = false;  ///< even if it is held; the holder notices, see require_held()
  std::chrono::milliseconds interval{10'000};  ///< between renewals of the counter
  std::chrono::milliseconds patience{2'000};   ///< for a holder that is just about to end
  /// Receives sentences: what is waited for, and from which holder the lock was taken. May be
  /// empty.
  std::function<void(const std::string&)> tell;
  std::string advice;  ///< what follows "... is in use by ...": "; end it"
  /// Who we are; nothing: this process. For tests.
  std::optional<LockHolder> holder;
  /// Locks an open file for this process alone, without waiting: 0, or errno. For tests: another
  /// file system.
  std::function<int(int descriptor)> try_lock;
  /// Reads the file, as read_lock_text() does. For tests: one that fails.
  std::function<LockText(const std::string& path)> read;
};

/// Holds a folder from its construction to its end, when the file is removed. A thread renews the
/// counter.
class FolderLock {
 public:
  /// Throws Error that names the holder where there is one; and where the file can't be written.
  /// The folder is there.
  FolderLock(const std::string& folder, FolderLockOptions options);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// Throws Error that names the present holder where the folder was taken over, or says why that
  /// is not known, for longer than an interval. Looks at the file: to be called before a change
  /// that another process must not make at the same time.
  void require_held();
  /// Whether it was taken over when the counter was last to be renewed.
  bool is_lost() const { return is_lost_; }

 private:
  enum class Attempt { taken, again };
  Attempt attempt(bool may_wait);
  bool is_gone(const std::string& found, bool kernel_lock, bool& settles, bool& is_taken) const;
  bool stands_still(const std::string& found) const;
  void tell_taken(const std::string& found) const;
  void require_taken();
  void replace_file();
  void remove_remains() const;
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

  std::mutex mutex_;  // of the file, and of
  std::string lost_;  // who has taken it
  int unread_ = 0;    // why the last look could not read it; 0: it could
  std::chrono::steady_clock::time_point seen_ = std::chrono::steady_clock::now();  // the last read
  bool ends_ = false;
  std::atomic<bool> is_lost_{false};  // known without waiting for a file system
  std::condition_variable wakes_;
  std::thread renewal_;
};

}  // namespace ostrakon
