// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/folder_lock.hpp>
#include <string>
#include <support/scratch_folder.hpp>
#include <system_error>
#include <thread>
#include <vector>

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// A network file system that locks on each host apart: another host's lock is not seen.
int lock_apart(int) { return 0; }
/// One that can't lock.
int lock_nothing(int) { return ENOLCK; }

class Lock : public ::testing::Test {
 protected:
  std::string folder() const { return folder_.file(""); }
  std::string file() const { return folder_.file("run.lock"); }

  FolderLockOptions options() {
    FolderLockOptions options;
    options.interval = interval;
    options.patience = milliseconds(0);
    options.advice = "; end it";
    options.tell = [this](const std::string& words) { told_ += words + "\n"; };
    return options;
  }
  std::unique_ptr<FolderLock> hold(const FolderLockOptions& options) {
    return std::make_unique<FolderLock>(folder(), options);
  }
  std::unique_ptr<FolderLock> hold() { return hold(options()); }
  std::string refusal(const FolderLockOptions& options) {
    return error_of([&] { hold(options); });
  }

  static LockHolder on_another_host() {
    LockHolder holder = this_holder(interval);
    holder.host = "node07";
    holder.boot = "of node07";
    holder.process = 123;
    holder.since = "2026-11-22T13:55:08Z";
    return holder;
  }
  void leave(const LockHolder& holder) { write_bytes(file(), write_holder(holder)); }
  LockHolder found() const { return read_holder(read_bytes(file())).value_or(LockHolder()); }

  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

  /// A process that holds the folder until it is ended.
  pid_t start_holder(const FolderLockOptions& of_child) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        FolderLockOptions mine = of_child;
        mine.tell = nullptr;
        const FolderLock lock(folder(), mine);
        for (;;) pause();
      } catch (const std::exception&) {
        _exit(1);
      }
    }
    EXPECT_TRUE(wait_for([&] { return found().process == child; }));
    return child;
  }
  static void end(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  static constexpr milliseconds interval{100};
  std::string told_;

 private:
  ScratchFolder folder_;
};

TEST_F(Lock, IsWrittenRenewedAndRemoved) {
  {
    const auto lock = hold();
    const LockHolder first = found();
    EXPECT_EQ(first.process, getpid());
    EXPECT_EQ(first.host, host_name());
    EXPECT_EQ(first.started, process_start(getpid()));
    EXPECT_EQ(first.interval, interval);
    EXPECT_TRUE(wait_for([&] { return found().renewed >= 3; }));
    EXPECT_EQ(found().id, first.id);
    EXPECT_FALSE(lock->is_lost());
    EXPECT_NO_THROW(lock->require_held());
  }
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_NO_THROW(hold());
  EXPECT_EQ(told_, "");
}

TEST_F(Lock, TextsOfHoldersComeBack) {
  LockHolder holder = on_another_host();
  holder.job = "Slurm job 42";
  holder.renewed = 17;
  const auto back = read_holder(write_holder(holder));
  ASSERT_TRUE(back);
  EXPECT_EQ(write_holder(*back), write_holder(holder));
  EXPECT_EQ(describe(*back),
            "process 123 on host node07 since 2026-11-22T13:55:08Z (Slurm job 42)");
  const std::string text = write_holder(holder);
  for (std::size_t cut = 0; cut + 20 < text.size(); ++cut)
    EXPECT_EQ(read_holder(text.substr(0, cut)).value_or(LockHolder()).process, 0)
        << text.substr(0, cut);
  EXPECT_FALSE(read_holder(std::string(4096, '\0')));
}

TEST_F(Lock, ASecondProcessIsRefusedByTheNameOfTheFirst) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const pid_t child = start_holder(all);
    const std::string error = refusal(all);
    EXPECT_NE(error.find("is in use by process " + std::to_string(child) + " on host " +
                         host_name() + " since 20"),
              std::string::npos)
        << error;
    EXPECT_EQ(error.substr(error.size() - 8), "; end it");
    EXPECT_EQ(found().process, child);  // untouched
    end(child);
    EXPECT_NO_THROW(hold(all));
  }
}

TEST_F(Lock, AKilledHolderIsReplacedAtOnce) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions all = options();
    all.interval = milliseconds(5000);
    all.try_lock = try_lock;
    const pid_t child = start_holder(all);
    end(child);
    EXPECT_EQ(found().process, child);
    const auto began = Clock::now();
    const auto lock = hold(all);
    EXPECT_LT(Clock::now() - began, milliseconds(4000));
    EXPECT_EQ(found().process, getpid());
    EXPECT_NE(told_.find("was left by process " + std::to_string(child)), std::string::npos)
        << told_;
  }
}

TEST_F(Lock, AHolderThatIsAboutToEndIsWaitedFor) {
  const pid_t child = start_holder(options());
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(200));
    end(child);
  });
  FolderLockOptions patient = options();
  patient.patience = milliseconds(10'000);
  EXPECT_NO_THROW(hold(patient));
  ends.join();
}

TEST_F(Lock, ANumberThatAnotherProcessHasNowIsNotTheHolder) {
  LockHolder earlier = this_holder(interval);
  earlier.process = getppid();
  earlier.started = process_start(getppid()) + 1;
  leave(earlier);
  FolderLockOptions all = options();
  all.try_lock = lock_nothing;
  EXPECT_NO_THROW(hold(all));
  earlier.started -= 1;
  leave(earlier);
  EXPECT_NE(refusal(all).find("in use by process " + std::to_string(getppid())), std::string::npos);
}

TEST_F(Lock, AHostOfTheSameNameIsNotTakenForOursStartedAgain) {
  LockHolder before = this_holder(interval);
  before.boot = "another one";
  for (const bool kernel_lock : {false, true})
    EXPECT_EQ(presence_of(before, this_holder(interval), kernel_lock), Presence::unknown);
  leave(before);
  const auto began = Clock::now();
  EXPECT_NO_THROW(hold());
  EXPECT_GE(Clock::now() - began, 3 * interval);
  EXPECT_NE(told_.find("waits 0.3 s"), std::string::npos) << told_;
  // While it renews the file, it has it.
  FolderLockOptions theirs = options();
  theirs.try_lock = lock_apart;
  theirs.holder = before;
  theirs.holder->interval = milliseconds(500);
  const auto holder = hold(theirs);
  FolderLockOptions ours = options();
  ours.try_lock = lock_apart;
  EXPECT_NE(refusal(ours).find("is in use by process "), std::string::npos);
}

TEST_F(Lock, AHolderOnAnotherHostIsGoneWhereItsCounterStandsStill) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    leave(on_another_host());
    told_.clear();
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const auto began = Clock::now();
    EXPECT_NO_THROW(hold(all));
    EXPECT_GE(Clock::now() - began, 3 * interval);
    EXPECT_NE(
        told_.find("names process 123 on host node07 since 2026-11-22T13:55:08Z: waits 0.3 s"),
        std::string::npos)
        << told_;
  }
}

TEST_F(Lock, AHolderOnAnotherHostIsThereWhileItsCounterGrows) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    FolderLockOptions theirs = options();
    theirs.holder = on_another_host();
    theirs.holder->interval = milliseconds(500);  // also on a busy machine
    theirs.try_lock = try_lock;
    const auto holder = hold(theirs);
    FolderLockOptions ours = options();
    ours.try_lock = try_lock;
    const std::string error = refusal(ours);
    EXPECT_NE(error.find("is in use by process 123 on host node07"), std::string::npos) << error;
    EXPECT_NO_THROW(holder->require_held());
  }
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Lock, AnotherStartOfTheSameJobMayBeThere) {
  LockHolder earlier = on_another_host(), us = this_holder(interval);
  earlier.job = us.job = "Slurm job 42";
  EXPECT_EQ(presence_of(earlier, us, true), Presence::unknown);
}

TEST_F(Lock, ANumberInAnotherContainerSaysNothing) {
  LockHolder us = this_holder(interval), them = us;
  them.process_namespace = "pid:[1]";
  EXPECT_EQ(presence_of(them, us, false), Presence::unknown);
  EXPECT_EQ(presence_of(them, us, true), Presence::gone);
}

TEST_F(Lock, AProcessThatTheSystemHidesMayBeThere) {
  EXPECT_EQ(presence_of(17, -1, false), Presence::unknown);
  EXPECT_EQ(presence_of(-1, 17, false), Presence::unknown);
  EXPECT_EQ(presence_of(17, -1, true), Presence::gone);
  EXPECT_EQ(presence_of(17, 18, false), Presence::gone);
  EXPECT_EQ(presence_of(17, 17, false), Presence::present);
  LockHolder us = this_holder(interval), them = us;
  them.started = -1;
  EXPECT_EQ(presence_of(them, us, false), Presence::unknown);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  them.process = child;
  EXPECT_EQ(presence_of(them, us, false), Presence::gone);
}

/// Reads the file, or fails.
class FailingReads {
 public:
  LockText operator()(const std::string& path) const {
    const int error = *error_;
    return error == 0 ? read_lock_text(path) : LockText{"", error};
  }
  void fail_with(int error) const { *error_ = error; }

 private:
  std::shared_ptr<std::atomic<int>> error_ = std::make_shared<std::atomic<int>>(0);
};

TEST_F(Lock, WhatCannotBeReadIsNotTaken) {
  for (const int error : {EIO, EMFILE, ENFILE, EACCES, ENOMEM})
    for (const auto& try_lock : {lock_apart, lock_nothing})
      for (const bool by_force : {false, true}) {
        leave(on_another_host());
        FolderLockOptions all = options();
        all.try_lock = try_lock;
        all.take_from_holder = by_force;
        const FailingReads reads;
        reads.fail_with(error);
        all.read = reads;
        EXPECT_NE(refusal(all).find(std::string("run.lock can't be read: ") +
                                    std::generic_category().message(error)),
                  std::string::npos);
        EXPECT_EQ(found().host, "node07");  // untouched
      }
  // Nor from one whose lock in the kernel is seen.
  fs::remove(file());
  const auto holder = hold();
  FolderLockOptions force = options();
  force.take_from_holder = true;
  const FailingReads reads;
  reads.fail_with(EIO);
  force.read = reads;
  EXPECT_NE(refusal(force).find("run.lock can't be read: Input/output error"), std::string::npos);
  EXPECT_NO_THROW(holder->require_held());
}

TEST_F(Lock, ReadsThatFailDoNotShowThatACounterStandsStill) {
  leave(on_another_host());
  FolderLockOptions all = options();
  all.try_lock = lock_apart;
  const FailingReads reads;
  all.read = [&, calls = 0](const std::string& path) mutable {
    reads.fail_with(++calls > 3 ? EIO : 0);
    return reads(path);
  };
  EXPECT_NE(refusal(all).find("run.lock can't be read: Input/output error"), std::string::npos);
  EXPECT_EQ(found().host, "node07");
}

TEST_F(Lock, AHolderThatCannotReadTheFileDoesNotWriteIt) {
  for (const auto& try_lock : {lock_apart, lock_nothing}) {
    fs::remove(file());
    FolderLockOptions all = options();
    all.try_lock = try_lock;
    const FailingReads reads;
    all.read = reads;
    const auto holder = hold(all);
    EXPECT_TRUE(wait_for([&] { return found().renewed >= 1; }));
    reads.fail_with(EIO);
    std::this_thread::sleep_for(2 * interval);  // what was begun is written
    leave(on_another_host());
    std::this_thread::sleep_for(3 * interval);
    EXPECT_EQ(found().host, "node07");
    EXPECT_FALSE(holder->is_lost());
    const std::string error = error_of([&] { holder->require_held(); });
    EXPECT_NE(error.find("run.lock can't be read: Input/output error; whether the folder"),
              std::string::npos)
        << error;
    reads.fail_with(0);
    EXPECT_TRUE(wait_for([&] { return holder->is_lost(); }));
  }
}

TEST_F(Lock, OneReadThatFailsDoesNotEndARun) {
  FolderLockOptions all = options();
  all.interval = milliseconds(60'000);
  const FailingReads reads;
  all.read = reads;
  const auto holder = hold(all);
  reads.fail_with(EIO);
  EXPECT_NO_THROW(holder->require_held());
}

TEST_F(Lock, AFileThatIsRemovedMeanwhileIsTriedAgain) {
  for (const int error : {ESTALE, ENOENT}) {
    for (const bool while_read : {false, true}) {
      write_bytes(file(), "");
      FolderLockOptions all = options();
      all.patience = milliseconds(60'000);
      all.try_lock = [&, calls = 0](int descriptor) mutable {
        return ++calls < 3 && !while_read ? error : lock_in_kernel(descriptor);
      };
      all.read = [&, calls = 0](const std::string& path) mutable {
        return ++calls < 3 && while_read ? LockText{"", error} : read_lock_text(path);
      };
      EXPECT_NO_THROW(hold(all));
    }
    FolderLockOptions all = options();
    all.try_lock = [&](int) { return error; };
    EXPECT_NE(refusal(all).find("run.lock can't be locked: "), std::string::npos);
    fs::remove(file());
  }
}

TEST_F(Lock, OneOfManyTakersHasIt) {
  // No lock separates them: the text alone.
  leave(on_another_host());
  const std::string left = read_bytes(file());
  const auto began = Clock::now();
  constexpr int takers = 4;
  std::vector<std::unique_ptr<FolderLock>> locks(takers);
  std::vector<std::string> errors(takers);
  std::vector<std::thread> threads;
  for (int i = 0; i < takers; ++i)
    threads.emplace_back([&, i] {
      FolderLockOptions all = options();
      all.tell = nullptr;
      all.interval = milliseconds(10'000);  // 2 s to settle
      all.try_lock = lock_nothing;
      // All see it unchanged before one has written.
      all.read = [&](const std::string& path) {
        return Clock::now() - began < milliseconds(1000) ? LockText{left, 0} : read_lock_text(path);
      };
      const auto at = static_cast<std::size_t>(i);
      errors[at] = error_of([&] { locks[at] = hold(all); });
    });
  for (std::thread& thread : threads) thread.join();
  int have_it = 0;
  for (std::size_t i = 0; i < takers; ++i) {
    if (locks[i]) {
      ++have_it;
      EXPECT_NO_THROW(locks[i]->require_held());
    } else {
      EXPECT_NE(errors[i].find("is in use by process "), std::string::npos) << errors[i];
    }
  }
  EXPECT_EQ(have_it, 1);
}

TEST_F(Lock, OneOfManyTakersByForceHasIt) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions theirs = options();
    theirs.interval = milliseconds(2000);
    theirs.try_lock = try_lock;
    const auto holder = hold(theirs);
    std::vector<std::unique_ptr<FolderLock>> locks(2);
    std::vector<std::thread> threads;
    for (auto& lock : locks)
      threads.emplace_back([&] {
        FolderLockOptions all = theirs;
        all.tell = nullptr;
        all.take_from_holder = true;
        error_of([&] { lock = hold(all); });
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_NE(locks[0] == nullptr, locks[1] == nullptr);
  }
}

TEST_F(Lock, WhatATakerLeftThatWasKilledIsRemoved) {
  const std::string old = file() + ".0123456789abcdef", fresh = file() + ".0123456789abcdee",
                    other = file() + ".of.a.user";
  for (const std::string& path : {old, fresh, other}) write_bytes(path, "");
  for (const std::string& path : {old, other})
    fs::last_write_time(path, fs::last_write_time(fresh) - std::chrono::hours(1));
  FolderLockOptions all = options();
  all.interval = milliseconds(10'000);
  const auto lock = hold(all);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));  // another taker may be about to give it its name
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(Lock, AFileWithoutAHolderIsFree) {
  write_bytes(file(), "");
  EXPECT_NO_THROW(hold());
  EXPECT_EQ(told_, "");
  // What is no holder's text may be one that is being written.
  write_bytes(file(), "something else\n");
  EXPECT_NO_THROW(hold());
  EXPECT_NE(told_.find("names another process: waits"), std::string::npos) << told_;
}

TEST_F(Lock, AHolderThatWasKilledWhileItWroteIsGone) {
  LockHolder killed = this_holder(milliseconds(60'000));
  const std::string text = write_holder(killed);
  for (const char* last : {"\nprocesses: ", "\nprocess: ", "\nrenewed: "}) {
    write_bytes(file(), text.substr(0, text.find(last)));
    EXPECT_NO_THROW(hold());
  }
  EXPECT_EQ(told_.find("waits"), std::string::npos) << told_;
  killed = on_another_host();
  killed.process = 0;
  EXPECT_EQ(presence_of(killed, this_holder(interval), true), Presence::unknown);
}

TEST_F(Lock, CanBeTakenFromItsHolderWhichNotices) {
  for (const auto& try_lock : {std::function<int(int)>(), std::function<int(int)>(lock_apart),
                               std::function<int(int)>(lock_nothing)}) {
    FolderLockOptions theirs = options();
    theirs.try_lock = try_lock;
    if (try_lock) theirs.holder = on_another_host();
    theirs.interval = milliseconds(1000);
    if (theirs.holder) theirs.holder->interval = theirs.interval;
    const auto holder = hold(theirs);
    FolderLockOptions ours = options();
    ours.try_lock = try_lock;
    ours.take_from_holder = true;
    told_.clear();
    {
      const auto taker = hold(ours);
      EXPECT_NE(told_.find("taken from process "), std::string::npos) << told_;
      // By its own renewal, before the taker has changed anything.
      EXPECT_TRUE(holder->is_lost());
      const std::string error = error_of([&] { holder->require_held(); });
      EXPECT_NE(error.find("was taken by process " + std::to_string(getpid())), std::string::npos)
          << error;
      EXPECT_NO_THROW(taker->require_held());
      EXPECT_FALSE(taker->is_lost());
    }
    EXPECT_FALSE(fs::exists(file()));
  }
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(Lock, AHolderLooksAtTheFileBeforeAChange) {
  FolderLockOptions slow = options();
  slow.interval = milliseconds(60'000);
  const auto holder = hold(slow);
  leave(on_another_host());
  EXPECT_FALSE(holder->is_lost());
  EXPECT_NE(
      error_of([&] { holder->require_held(); }).find("was taken by process 123 on host node07"),
      std::string::npos);
  EXPECT_TRUE(holder->is_lost());
}

TEST_F(Lock, AHolderThatLostTheFileLeavesItToTheNewOne) {
  auto holder = hold();
  leave(on_another_host());
  holder.reset();
  EXPECT_EQ(found().host, "node07");
}

TEST_F(Lock, AFileThatSomebodyRemovesIsMadeAgain) {
  const auto lock = hold();
  const std::string id = found().id;
  fs::remove(file());
  EXPECT_TRUE(wait_for([&] { return found().id == id; }));
  EXPECT_NO_THROW(lock->require_held());
  EXPECT_NE(refusal(options()).find("in use by process"), std::string::npos);
}

TEST_F(Lock, WhatCannotBeWrittenIsSaid) {
  EXPECT_NE(error_of([&] {
              FolderLock(folder() + "/missing", options());
            }).find("run.lock can't be made: No such file or directory"),
            std::string::npos);
  fs::create_directory(file());
  EXPECT_NE(refusal(options()).find("run.lock can't be opened: Is a directory"), std::string::npos);
  fs::remove(file());
  FolderLockOptions broken = options();
  broken.try_lock = [](int) { return EIO; };
  EXPECT_NE(refusal(broken).find("can't be locked: Input/output error"), std::string::npos);
}

}  // namespace
}  // namespace ostrakon::testing
