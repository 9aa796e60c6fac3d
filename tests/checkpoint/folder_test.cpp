// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest_text.hpp>

#include "../support/scratch_folder.hpp"
#include "small_checkpoint.hpp"

namespace {

/// Which calls below fail; null: none.
std::function<bool(const std::string& from, const std::string& to)> rename_fails;
std::function<bool()> sync_fails;

}  // namespace

// These stand before the C library's.
int rename(const char* from, const char* to) noexcept {
  errno = EIO;
  if (rename_fails && rename_fails(from, to)) return -1;
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}
int fsync(int descriptor) {
  errno = EIO;
  if (sync_fails && sync_fails()) return -1;
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;
using testing::holds;
using testing::SmallCheckpoint;

class CheckpointFolder : public ::testing::Test {
 protected:
  ~CheckpointFolder() override {
    rename_fails = nullptr;
    sync_fails = nullptr;
  }
  std::string place(const std::string& name) const { return folder_.path() + "/" + name; }
  bool is_there(const std::string& name) const {
    return fs::exists(fs::symlink_status(place(name)));
  }
  std::string save(std::int64_t step, std::int64_t sequence, int version = 0) const {
    return SmallCheckpoint(2, Files::single, false, version).save(folder_, step, sequence);
  }
  /// Changes a bit in the middle of a file.
  static void flip(const std::string& path) {
    std::string bytes = read_bytes(path);
    bytes[bytes.size() / 2] ^= 1;
    write_bytes(path, bytes);
  }
  /// Steps in the order of the list, those that can't be used negative.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const Folder::Entry& entry : folder_.list()) {
      found.push_back(entry.problem.empty() ? entry.step : -entry.step);
    }
    return found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  using Steps = std::vector<std::int64_t>;
  using Names = std::vector<std::string>;

  ScratchFolder scratch_;
  Folder folder_{scratch_.file("output/checkpoints")};
};

TEST_F(CheckpointFolder, NamesHoldTheStep) {
  EXPECT_EQ(folder_name(1200), "step-00001200");
  EXPECT_EQ(folder_name(0), "step-00000000");
  EXPECT_EQ(folder_name(123456789012), "step-123456789012");
}

TEST_F(CheckpointFolder, ASaveIsThereOnceItIsWhole) {
  EXPECT_EQ(steps(), Steps{});
  EXPECT_FALSE(fs::exists(folder_.path()));
  const std::string begun = folder_.begin(12);
  EXPECT_EQ(steps(), Steps{});
  EXPECT_FALSE(is_checkpoint(begun));
  write_bytes(begun + "/earlier", "try");
  EXPECT_EQ(folder_.begin(12), begun);
  EXPECT_TRUE(fs::is_empty(begun));

  const SmallCheckpoint small(2, Files::rank);
  const Manifest manifest = small.write_files(begun, 12, 5);
  const std::string path = folder_.commit(12, write_manifest(manifest)).path;
  EXPECT_EQ(names(), (Names{"step-00000012"}));
  folder_.mark_latest(12);
  EXPECT_EQ(path, place("step-00000012"));
  EXPECT_EQ(names(), (Names{"latest", "step-00000012"}));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000012");
  EXPECT_TRUE(is_checkpoint(path));
  EXPECT_TRUE(is_checkpoint(place("latest")));
  EXPECT_FALSE(is_checkpoint(folder_.path()));
  EXPECT_FALSE(is_checkpoint(path + "/manifest.json"));
  const std::vector<Folder::Entry> entries = folder_.list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].path, path);
  EXPECT_EQ(entries[0].step, 12);
  EXPECT_EQ(entries[0].sequence, 5);
  EXPECT_EQ(entries[0].problem, "");
  CheckpointReader reader(path);
  EXPECT_TRUE(holds(reader, small));
  EXPECT_TRUE(error_of([&] { folder_.begin(-1); }).find("step -1") != std::string::npos);
}

TEST_F(CheckpointFolder, CommitKeepsWhatHadTheNameUnderAnotherName) {
  save(12, 1, 0);
  const std::string path = save(12, 2, 1);
  EXPECT_EQ(names(), (Names{"latest", "step-00000012", "step-00000012.previous"}));
  write_bytes(folder_.begin(12) + "/manifest.json", "");
  const Folder::Committed third = folder_.commit(12, "third");
  EXPECT_EQ(third.path, path);
  EXPECT_EQ(third.previous, path + ".previous-2");
  for (const auto& [name, version] : {std::pair{".previous", 0}, std::pair{".previous-2", 1}}) {
    CheckpointReader reader(path + name);
    EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, version))) << name;
  }
  EXPECT_EQ(read_bytes(manifest_path(path)), "third");
  folder_.begin(13);
  EXPECT_EQ(folder_.commit(13, "").previous, "");
  // Later ones of other names are not in the way, nor removed.
  save(14, 4);
  folder_.prune(1, 0);
  folder_.remove_partial();
  EXPECT_TRUE(is_checkpoint(path + ".previous"));
  EXPECT_TRUE(is_checkpoint(path + ".previous-2"));
  EXPECT_EQ(fs::read_symlink(place("latest")), "step-00000014");
}

TEST_F(CheckpointFolder, CommitDoesNotFailOnceTheCheckpointHasItsName) {
  save(12, 1, 0);
  bool tried = false;
  rename_fails = [&](const std::string&, const std::string& to) {
    const bool renames = to == place("step-00000012.previous");
    tried = tried || renames;
    return renames;
  };
  std::string path;
  EXPECT_EQ(error_of([&] { path = save(12, 2, 1); }), "no error");
  EXPECT_TRUE(tried);
  rename_fails = nullptr;
  EXPECT_EQ(path, place("step-00000012"));
  EXPECT_TRUE(is_there("step-00000012.replaced.partial"));
  EXPECT_EQ(steps(), Steps{12});
  EXPECT_EQ(folder_.remove_partial(), Names{place("step-00000012.previous")});
  EXPECT_EQ(names(), (Names{"latest", "step-00000012", "step-00000012.previous"}));
  CheckpointReader reader(path), previous(path + ".previous");
  EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 1)));
  EXPECT_TRUE(holds(previous, SmallCheckpoint(2, Files::single, false, 0)));
}

TEST_F(CheckpointFolder, CommitThatFailsLeavesTheNamesAsTheyWere) {
  const std::string path = save(12, 1, 0);
  const Names before = {"latest", "step-00000012", "step-00000012.partial"};
  const auto expect_failure = [&](int step, const Names& expected) {
    EXPECT_NE(error_of([&] { save(step, 2, 1); }).find(folder_.path()), std::string::npos);
    rename_fails = nullptr;
    sync_fails = nullptr;
    EXPECT_EQ(names(), expected);
    CheckpointReader reader(path);
    EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 0)));
    folder_.abandon(step);
  };
  rename_fails = [&](const std::string& from, const std::string&) {
    return from == place("step-00000012.partial");
  };
  expect_failure(12, before);

  // The name is there, but not known to be on disk.
  const auto fail_sync_once_after = [](const std::string& name) {
    const auto armed = std::make_shared<int>(0);
    rename_fails = [=](const std::string&, const std::string& to) {
      if (to == name) ++*armed;
      return false;
    };
    sync_fails = [=] { return *armed == 1 && ++*armed; };
  };
  fail_sync_once_after(place("step-00000012"));
  expect_failure(12, before);
  fail_sync_once_after(place("step-00000012.replaced.partial"));
  expect_failure(12, before);
  fail_sync_once_after(place("step-00000013"));
  expect_failure(13, {"latest", "step-00000012", "step-00000013.partial"});
}

TEST_F(CheckpointFolder, ManifestsThatChangeAreLookedAtAgain) {
  const std::string path = manifest_path(save(12, 1));
  save(13, 2);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  const std::string good = read_bytes(path);
  std::string bad = good;
  bad[bad.size() / 2] ^= 1;
  // As long as before, and of the same time: it is what was looked at.
  const fs::file_time_type time = fs::last_write_time(path);
  write_bytes(path, bad);
  fs::last_write_time(path, time);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  EXPECT_EQ(Folder(folder_.path()).list()[1].problem.empty(), false);
  // Another time, a nanosecond on; repaired; another length; another file; none.
  fs::last_write_time(path, time + std::chrono::nanoseconds(1));
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  write_bytes(path, good + " ");
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  fs::last_write_time(path, time);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  const std::string other = scratch_.file("other");
  write_bytes(other, bad);
  fs::last_write_time(other, time);
  fs::rename(other, path);
  EXPECT_EQ(steps(), (Steps{13, -12}));
  write_bytes(path, good);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  fs::remove(path);
  EXPECT_NE(error_of([&] { steps(); }), "no error");
  save(12, 3);
  EXPECT_EQ(steps(), (Steps{12, 13}));
}

TEST_F(CheckpointFolder, AbandonRemovesWhatWasBegun) {
  save(12, 1);
  write_bytes(folder_.begin(12) + "/file", "");
  folder_.abandon(12);
  folder_.abandon(13);
  EXPECT_EQ(names(), (Names{"latest", "step-00000012"}));
}

TEST_F(CheckpointFolder, ListsTheLastSavedFirstAndUnusableOnesLast) {
  save(30, 1);
  save(10, 2);
  save(20, 3);
  save(40, 4);
  save(50, 5);
  fs::resize_file(place("step-00000040/manifest.json"), 0);
  flip(place("step-00000050/manifest.json"));
  EXPECT_EQ(steps(), (Steps{20, 10, 30, -50, -40}));
  fs::rename(place("step-00000020"), place("step-00000025"));
  EXPECT_EQ(steps(), (Steps{10, 30, -50, -40, -25}));
  EXPECT_TRUE(folder_.list()[4].problem.find("is of step 20") != std::string::npos);
}

TEST_F(CheckpointFolder, OtherNamesAreNoCheckpoints) {
  const std::string path = save(12, 1);
  for (const char* name :
       {"step-0000012", "step-000000012", "step-00000012x", "step--0000001", "step-+0000012",
        "step-99999999999999999999", "xstep-00000012", "step-00000012.partial", "step-"}) {
    fs::copy(path, place(name));
  }
  write_bytes(place("step-00000099"), "no folder");
  EXPECT_EQ(steps(), Steps{12});
}

TEST_F(CheckpointFolder, RemovesOnlyWhatSavesLeaveBehind) {
  save(12, 1);
  folder_.begin(13);
  fs::create_directories(place("step-00000014.removed.partial"));
  fs::create_directory_symlink("step-00000013", place("latest.partial"));
  fs::create_directory_symlink(scratch_.file(""), place("step-00000077.partial"));
  const Names others = {"mine.partial", "step-1.partial", "step-00000012.x.partial", "notes"};
  for (const std::string& name : others) write_bytes(place(name), "mine");
  folder_.remove_partial();
  Names expected = others;
  expected.insert(expected.end(), {"latest", "step-00000012"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names(), expected);
  EXPECT_EQ(steps(), Steps{12});
  Folder(scratch_.file("none")).remove_partial();
}

TEST_F(CheckpointFolder, GivesAReplacedCheckpointItsNameBack) {
  save(12, 1);
  fs::rename(place("step-00000012"), place("step-00000012.replaced.partial"));
  // A run that only looks finds it, too.
  EXPECT_EQ(steps(), Steps{12});
  EXPECT_EQ(folder_.list().front().path, place("step-00000012.replaced.partial"));
  EXPECT_EQ(names(), (Names{"latest", "step-00000012.replaced.partial"}));
  save(13, 2);
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{13, 12}));
  fs::remove_all(place("step-00000013"));
  EXPECT_EQ(folder_.remove_partial(), Names{place("step-00000012")});
  EXPECT_EQ(steps(), Steps{12});
}

TEST_F(CheckpointFolder, PrunesAllButTheLastAndMilestones) {
  for (std::int64_t i = 1; i <= 7; ++i) save(10 * i, i);
  flip(place("step-00000030/manifest.json"));
  folder_.prune(2, 20);
  EXPECT_EQ(steps(), (Steps{70, 60, 40, 20, -30}));
  folder_.prune(1, 0);
  EXPECT_EQ(names(), (Names{"latest", "step-00000030", "step-00000070"}));
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{70, -30}));
  EXPECT_NE(error_of([&] { folder_.prune(0, 0); }), "no error");
}

TEST_F(CheckpointFolder, TwoThatWereReadOrSavedStay) {
  for (std::int64_t i = 1; i <= 4; ++i) save(10 * i, i);
  // Another run resumes from step 20.
  const Folder other(folder_.path());
  EXPECT_TRUE(other.note_sound(place("step-00000020")));
  EXPECT_TRUE(Folder(folder_.path()).note_sound(place("latest")));
  SmallCheckpoint(2, Files::single).save(other, 30, 5);
  other.prune(2, 0);
  EXPECT_EQ(steps(), (Steps{30, 40, 20}));
  SmallCheckpoint(2, Files::single).save(other, 50, 6);
  other.prune(2, 0);
  EXPECT_EQ(steps(), (Steps{50, 30}));
  EXPECT_TRUE(is_checkpoint(place("step-00000030.previous")));
  fs::rename(place("step-00000030.previous"), scratch_.file("step-00000030"));
  EXPECT_FALSE(other.note_sound(scratch_.file("step-00000030")));
  EXPECT_NE(error_of([&] { other.note_sound(place("step-00000099")); }), "no error");
}

TEST_F(CheckpointFolder, ShortJobsKeepNoMoreThanLongOnes) {
  // Each process saves once, whether it has read the one before or not.
  for (const bool reads : {true, false}) {
    fs::remove_all(folder_.path());
    for (std::int64_t i = 1; i <= 6; ++i) {
      const Folder process(folder_.path());
      if (reads && i > 1) process.note_sound(process.list().front().path);
      SmallCheckpoint(2, Files::single).save(process, 10 * i, i);
      process.prune(3, 0);
    }
    EXPECT_EQ(steps(), (Steps{60, 50, 40}));
  }
}

TEST_F(CheckpointFolder, NothingIsRemovedForWhatNobodyHasRead) {
  for (std::int64_t i = 1; i <= 4; ++i) save(10 * i, i);
  const Folder other(folder_.path());
  other.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{40, 30, 20, 10}));
  // What is older than the newest that was read goes, but no newer one.
  other.note_sound(place("step-00000020"));
  other.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{40, 30, 20}));
}

TEST_F(CheckpointFolder, ALinkThatLeadsNowhereIsNoEmptyFolder) {
  fs::create_directory(scratch_.file("output"));
  fs::create_directory_symlink(scratch_.file("away"), folder_.path());
  for (const std::string& error :
       {error_of([&] { folder_.list(); }), error_of([&] { folder_.names(); }),
        error_of([&] { folder_.set_aside(); })})
    EXPECT_EQ(error, "'" + folder_.path() + "' leads nowhere, or this host does not see it (yet)");
  fs::create_directory(scratch_.file("away"));
  EXPECT_EQ(steps(), Steps{});
}

TEST_F(CheckpointFolder, WhatCanNotBeReadEndsTheCallAndChangesNothing) {
  const auto later_version = [](std::string manifest) {
    manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
    const std::size_t digits = checksum_place(manifest);
    return manifest.replace(digits, checksum_digits, format_hex(checksum_of_text(manifest)));
  };
  const std::string manifest = manifest_path(place("step-00000020"));
  struct Case {
    std::function<void()> damage;
    std::string reason;
  };
  const Case cases[] = {
      {[&] { fs::remove(manifest); }, "does not see the file (yet)"},
      {[&] {
         fs::remove(manifest);
         fs::create_symlink("manifest.json", manifest);
       },
       "Too many levels of symbolic links"},
      {[&] {
         fs::remove(manifest);
         fs::create_directory(manifest);
       },
       "is a folder"},
      {[&] {
         fs::remove_all(place("step-00000020"));
         fs::create_directory_symlink("away", place("step-00000020"));
       },
       "is not visible on this host"},
      {[&] { write_bytes(manifest, later_version(read_bytes(manifest))); },
       "is of version 2; this program reads version 1: use the program that wrote it"}};
  for (const Case& one : cases) {
    fs::remove_all(folder_.path());
    for (std::int64_t i = 1; i <= 3; ++i) save(10 * i, i);
    one.damage();
    const Names before = names();
    for (const std::string& error :
         {error_of([&] { folder_.list(); }), error_of([&] { folder_.prune(1, 0); })}) {
      EXPECT_NE(error.find(one.reason), std::string::npos) << error;
      EXPECT_NE(error.find("step-00000020"), std::string::npos) << error;
    }
    EXPECT_EQ(names(), before);
    const std::vector<Folder::Entry> told = folder_.list(Folder::Unreadable::tell);
    ASSERT_EQ(told.size(), 3u);
    EXPECT_EQ(told.back().step, 20);
    EXPECT_TRUE(told.back().is_unreadable);
    // All of them are set aside whole.
    EXPECT_NE(folder_.set_aside(), "");
    fs::remove_all(folder_.path() + ".previous");
  }
  EXPECT_EQ(Folder(scratch_.file("none")).list().size(), 0u);
}

TEST_F(CheckpointFolder, ADamagedOneThatMadeRoomIsSetAsideByItsOwnName) {
  save(12, 1);
  fs::rename(place("step-00000012"), place("step-00000012.replaced.partial"));
  EXPECT_EQ(folder_.set_damaged_aside(folder_.list().front().path), place("step-00000012.damaged"));
}

TEST_F(CheckpointFolder, LinkedCheckpointsAreListedButNeverRemoved) {
  const std::string elsewhere = scratch_.file("elsewhere");
  save(10, 1);
  fs::rename(place("step-00000010"), elsewhere);
  fs::create_directory_symlink(elsewhere, place("step-00000010"));
  save(20, 2);
  save(30, 3);
  EXPECT_EQ(steps(), (Steps{30, 20, 10}));
  folder_.prune(1, 0);
  EXPECT_EQ(steps(), (Steps{30, 10}));
  save(10, 4, 1);
  CheckpointReader reader(elsewhere);
  EXPECT_TRUE(holds(reader, SmallCheckpoint(2, Files::single, false, 0)));
}

TEST_F(CheckpointFolder, IsSetAsideUnderAFreeName) {
  EXPECT_EQ(folder_.set_aside(), "");
  folder_.begin(1);
  EXPECT_EQ(folder_.set_aside(), "");
  save(12, 1);
  EXPECT_EQ(folder_.set_aside(), folder_.path() + ".previous");
  EXPECT_FALSE(fs::exists(folder_.path()));
  save(13, 1);
  EXPECT_EQ(Folder(folder_.path() + "/").set_aside(), folder_.path() + ".previous-2");
  save(14, 1);
  EXPECT_EQ(folder_.set_aside(), folder_.path() + ".previous-3");
  EXPECT_TRUE(is_checkpoint(folder_.path() + ".previous/step-00000012"));
  EXPECT_TRUE(is_checkpoint(folder_.path() + ".previous-2/step-00000013"));
}

TEST_F(CheckpointFolder, BehindALinkTheFolderIsSetAsideAndTheLinkStays) {
  const std::string disk = scratch_.file("disk/run"), second = scratch_.file("second");
  fs::create_directories(disk);
  fs::create_directory(scratch_.file("output"));
  fs::create_directory_symlink(disk, second);
  fs::create_directory_symlink("../second", folder_.path());
  EXPECT_EQ(folder_.set_aside(), "");
  for (const char* const end : {"", "/"}) {
    save(12, 1);
    const std::string aside = Folder(folder_.path() + end).set_aside();
    EXPECT_EQ(aside, fs::canonical(disk).string() + ".previous" + (*end == '/' ? "-2" : ""));
    EXPECT_TRUE(is_checkpoint(aside + "/step-00000012"));
    EXPECT_EQ(fs::read_symlink(folder_.path()), "../second");
    EXPECT_EQ(fs::read_symlink(second), disk);
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
  save(13, 1);
  EXPECT_TRUE(is_checkpoint(disk + "/step-00000013"));
}

TEST_F(CheckpointFolder, ADamagedCheckpointIsSetAside) {
  save(11, 1);
  const std::string path = save(12, 2);
  EXPECT_EQ(steps(), (Steps{12, 11}));
  EXPECT_EQ(folder_.set_damaged_aside(path), path + ".damaged");
  save(12, 3);
  EXPECT_EQ(folder_.set_damaged_aside(path), path + ".damaged-2");
  EXPECT_EQ(steps(), Steps{11});
  save(12, 4);
  EXPECT_EQ(folder_.set_damaged_aside(path + "/"), path + ".damaged-3");
  save(13, 5);
  folder_.prune(1, 0);
  folder_.remove_partial();
  EXPECT_EQ(names(), (Names{"latest", "step-00000012.damaged", "step-00000012.damaged-2",
                            "step-00000012.damaged-3", "step-00000013"}));
  EXPECT_TRUE(is_checkpoint(path + ".damaged"));

  // What is no checkpoint, or not of this folder.
  const std::string elsewhere = scratch_.file("step-00000013");
  fs::create_directory(elsewhere);
  for (const std::string& other :
       {place("latest"), path + ".damaged", path, folder_.path(), elsewhere, std::string()}) {
    EXPECT_NE(error_of([&] { folder_.set_damaged_aside(other); }), "no error") << other;
  }
  EXPECT_TRUE(fs::exists(elsewhere));
  EXPECT_EQ(steps(), Steps{13});
}

TEST_F(CheckpointFolder, FailuresNameThePath) {
  write_bytes(scratch_.file("output"), "no folder");
  for (const std::string& error :
       {error_of([&] { folder_.begin(1); }), error_of([&] { folder_.list(); })}) {
    EXPECT_TRUE(error.find(scratch_.file("output")) != std::string::npos) << error;
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
