// SPDX-License-Identifier: Apache-2.0

// Saves that are interrupted, or fail, at each call that changes files. They run in a child
// process, this program again, with support/faulty_files.cpp preloaded.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/reader.hpp>

#include "../support/scratch_folder.hpp"
#include "../support/trials.hpp"
#include "small_checkpoint.hpp"

namespace ostrakon::checkpoint {
namespace {

namespace fs = std::filesystem;

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using testing::holds;
using testing::SmallCheckpoint;

constexpr std::int64_t first_step = 100;
constexpr int exit_saved = 0;
constexpr int exit_failed = 3;  // ended by an Error
constexpr int exit_killed = -SIGKILL;

/// Returns the state of a save: version 0 for the first save, 1 for the second.
SmallCheckpoint state(int version) { return {3, Files::node, false, version}; }

/// Makes the second save, in the child.
int save_second(const std::string& path, std::int64_t step) {
  try {
    const Folder folder(path);
    state(1).save(folder, step, 2);
    folder.prune(1, 0);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_failed;
  }
  return exit_saved;
}

/// Writes a file of many small arrays.
int write_many(const std::string& path) {
  ShardMap map;
  map.slices.resize(1);
  map.nodes = {0};
  for (int i = 0; i < 2000; ++i) {
    map.parameters.push_back({"block." + std::to_string(i), "weight", {33}, "unit", false});
    map.slices[0].push_back({State::parameters, i, 0, 33});
  }
  const std::string numbers(4 * 33, 'x');
  const Folder folder(path);
  write_shard(folder.begin(1), lay_out(map, Files::rank, 0), 0,
              [&](std::size_t, std::int64_t, std::int64_t) { return numbers.data(); }, {});
  return exit_saved;
}

using Environment = std::map<std::string, std::string>;

class Faults : public ::testing::Test {
 protected:
  std::string path() const { return scratch_.file("checkpoints"); }

  /// Runs this program with `arguments`; its calls for files fail as `environment` defines. Returns
  /// its exit status, negative for a signal.
  int run_child(const std::string& work, std::int64_t step, const Environment& environment) const {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      const int log = ::open(scratch_.file("log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
      ::dup2(log, STDERR_FILENO);
      for (const auto& [key, value] : environment) ::setenv(key.c_str(), value.c_str(), 1);
      ::setenv("OSTRAKON_FAULT_PATH", "/checkpoints", 1);
      ::setenv("LD_PRELOAD", OSTRAKON_FAULTY_FILES, 1);
      // The library is preloaded before that of the address sanitizer, which would refuse to start.
      const char* const options = std::getenv("ASAN_OPTIONS");
      const std::string more = options == nullptr ? "" : std::string(":") + options;
      ::setenv("ASAN_OPTIONS", ("verify_asan_link_order=0" + more).c_str(), 1);
      ::execl("/proc/self/exe", "test_checkpoint_faults", work.c_str(), path().c_str(),
              std::to_string(step).c_str(), nullptr);
      ::_exit(127);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  int save_in_child(std::int64_t step, const Environment& environment) const {
    return run_child("--save", step, environment);
  }

  /// Returns the number of calls in a save.
  int count_calls(const std::string& work, std::int64_t step) const {
    const std::string file = scratch_.file("count");
    const int status =
        run_child(work, step, {{"OSTRAKON_FAULT", "count"}, {"OSTRAKON_FAULT_COUNT", file}});
    EXPECT_EQ(status, exit_saved) << read_bytes(scratch_.file("log"));
    const int calls = std::atoi(read_bytes(file).c_str());
    fs::remove(file);
    return calls;
  }

  /// Restores the folder with only the first checkpoint.
  void save_first() const {
    const std::string kept = scratch_.file("first");
    if (!fs::exists(kept)) state(0).save(Folder(kept), first_step, 1);
    fs::remove_all(path());
    fs::copy(kept, path(), fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  }

  /// Returns the version that a run would resume from; -1 if it could not, or if it is another
  /// version. Checks that all checkpoints that count as sound are complete.
  int version_found() const {
    int found = -1;
    for (const Folder::Entry& entry : Folder(path()).list()) {
      if (!entry.problem.empty()) continue;
      CheckpointReader reader(entry.path);
      EXPECT_EQ(error_of([&] { reader.verify(); }), "no error");
      if (found < 0) found = holds(reader, state(0)) ? 0 : holds(reader, state(1)) ? 1 : -1;
    }
    return found;
  }

  /// Makes another save after the fault.
  void expect_next_save(std::int64_t step) const {
    const Folder folder(path());
    folder.remove_partial();
    EXPECT_GE(version_found(), 0);
    state(1).save(folder, step, 3);
    folder.prune(1, 0);
    ASSERT_EQ(folder.list().size(), 1u);
    EXPECT_EQ(folder.list().front().sequence, 3);
    EXPECT_EQ(version_found(), 1);
  }

  void interrupt_each_call(std::int64_t step) const {
    save_first();
    const int calls = count_calls("--save", step);
    ASSERT_GT(calls, 20);
    int first = 0, second = 0;
    // Cases are sampled: one fault at odd calls, the other at even ones.
    const int every = tests::every_nth(2);
    int begin = 1;
    for (const char* fault : {"kill", "kill-half"}) {
      for (int call = begin; call <= calls; call += every) {
        SCOPED_TRACE(text(fault, " at call ", call, " of ", calls));
        save_first();
        ASSERT_EQ(save_in_child(step, {{"OSTRAKON_FAULT", fault},
                                       {"OSTRAKON_FAULT_CALL", std::to_string(call)}}),
                  exit_killed);
        if (step == first_step) {
          Folder(path()).remove_partial();  // one of them is renamed to its final name
        } else {
          EXPECT_TRUE(is_checkpoint(path() + "/latest"));
          for (const Folder::Entry& entry : Folder(path()).list()) EXPECT_EQ(entry.problem, "");
        }
        const int found = version_found();
        ASSERT_GE(found, 0);
        ++(found == 0 ? first : second);
        expect_next_save(step);
      }
      begin = every + 1 - begin;
    }
    EXPECT_GT(first, 0);
    EXPECT_GT(second, 0);
    std::printf(
        "%d calls: after %d interruptions there was the first checkpoint, after %d the "
        "second\n",
        calls, first, second);
  }

  void fail_each_call(std::int64_t step) const {
    save_first();
    const int calls = count_calls("--save", step);
    int failed = 0, saved = 0;
    // Cases are sampled: each error at odd calls if it stays, else at even ones, and vice versa.
    const int every = tests::every_nth(2);
    int begin = 1;
    for (const char* fault : {"enospc", "eio"}) {
      for (const char* stays : {"0", "1"}) {
        for (int call = begin; call <= calls; call += every) {
          SCOPED_TRACE(text(fault, " at call ", call, " of ", calls, ", stays: ", stays));
          save_first();
          const int status = save_in_child(step, {{"OSTRAKON_FAULT", fault},
                                                  {"OSTRAKON_FAULT_STAYS", stays},
                                                  {"OSTRAKON_FAULT_CALL", std::to_string(call)}});
          const std::string log = read_bytes(scratch_.file("log"));
          ASSERT_TRUE(status == exit_saved || status == exit_failed) << status << " " << log;
          if (step == first_step) Folder(path()).remove_partial();
          if (status == exit_saved) {
            ASSERT_EQ(version_found(), 1);
            ++saved;
          } else {
            EXPECT_HAS(log, "checkpoints");
            ASSERT_GE(version_found(), 0);
            ++failed;
          }
          expect_next_save(step);
        }
        begin = every + 1 - begin;
      }
      begin = every + 1 - begin;
    }
    EXPECT_GT(failed, saved);
    std::printf("%d calls: %d failures were told, %d did not matter\n", calls, failed, saved);
  }

  ScratchFolder scratch_;
};

TEST_F(Faults, InterruptedSavesLeaveTheFirstCheckpointOrTheSecond) { interrupt_each_call(200); }

TEST_F(Faults, InterruptedReplacementsLeaveOneOfTheTwo) { interrupt_each_call(first_step); }

TEST_F(Faults, FailedSavesAreToldAndLeaveTheFirstCheckpointOrTheSecond) { fail_each_call(200); }

TEST_F(Faults, FailedReplacementsLeaveOneOfTheTwo) { fail_each_call(first_step); }

TEST_F(Faults, ManySmallArraysAreWrittenTogether) {
  const int calls = count_calls("--write-many", 1);
  std::printf("%d calls for 2,000 arrays\n", calls);
  EXPECT_GT(calls, 3);
  EXPECT_LT(calls, 20);
}

}  // namespace
}  // namespace ostrakon::checkpoint

int main(int argc, char** argv) {
  const std::string work = argc == 4 ? argv[1] : "";
  if (work == "--save") return ostrakon::checkpoint::save_second(argv[2], std::atoll(argv[3]));
  if (work == "--write-many") return ostrakon::checkpoint::write_many(argv[2]);
  // Only processes end here, not machines, so files in memory are sufficient.
  if (::access("/dev/shm", W_OK) == 0) ::setenv("TMPDIR", "/dev/shm", 0);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
