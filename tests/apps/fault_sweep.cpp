// SPDX-License-Identifier: Apache-2.0

// Whole programs, of which every call for a file below their folder fails once, with every error:
// each run ends with status 0 and files that verify and hold what they hold without faults, or with
// status 1 and a message that says what failed and why. What was good before is there afterwards,
// byte for byte. Where a run can be resumed, it resumes from the newest checkpoint that is good, to
// the same end.
//
//   test_fault_sweep                                       a sample
//   test_fault_sweep --gtest_also_run_disabled_tests --gtest_filter=*Every*   all
//
// OSTRAKON_APPS: the folder of the programs.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <ostrakon/checkpoint/folder.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <support/scratch_folder.hpp>
#include <vector>

#include "command.hpp"
#include "fault_sweep_checks.hpp"
#include "fault_sweep_programs.hpp"

namespace ostrakon::testing {
namespace {

namespace fs = std::filesystem;
using Texts = std::vector<std::string>;

const char* const deck = R"(ostrakon:
  model: {layers: 1, width: 16, heads: 2, vocabulary: 257}
  data: {dataset: tokens}
  training: {steps: 3, global_batch_size: 2, micro_batch_size: 1, sequence_length: 16}
  schedule: {warmup_steps: 1}
  checkpoint: {every: 2}
  output: {trace: 1}
  runtime: {peak_gflops: 1}
)";

struct Error {
  const char* name;
  int number;
  bool stays;  ///< all later calls fail as well
};
constexpr std::array<Error, 8> errors = {{{"eio", EIO, false},
                                          {"enospc", ENOSPC, false},
                                          {"eacces", EACCES, false},
                                          {"estale", ESTALE, false},
                                          {"emfile", EMFILE, false},
                                          {"enomem", ENOMEM, false},
                                          {"eio", EIO, true},
                                          {"enospc", ENOSPC, true}}};

/// What is failed in one run.
struct Fault {
  int call = 0;  // from 1; 0: none
  const Error* error = nullptr;
};

class FaultSweep : public ::testing::TestWithParam<FaultyProgram> {
 protected:
  /// What programs read, and what is there before.
  static std::string inputs() {
    static const std::unique_ptr<ScratchFolder> folder = make_inputs();
    return folder->file("all");
  }

  static Command command(const Texts& arguments, int ranks, const std::string& folder) {
    const char* const apps = std::getenv("OSTRAKON_APPS");
    Command command = program("", ranks, {}, folder);
    command.arguments.pop_back();
    for (std::string argument : arguments) {
      for (std::size_t at; (at = argument.find('@')) != std::string::npos;)
        argument.replace(at, 1, folder);
      command.arguments.push_back(argument);
    }
    std::string& name = command.arguments[command.arguments.size() - arguments.size()];
    name = (apps == nullptr ? std::string(OSTRAKON_APPS_DIR) : apps) + "/" + name;
    command.time_limit = 180.0;
    return command;
  }

  static void run_well(const Texts& arguments, const std::string& folder) {
    const Outcome outcome = run_command(command(arguments, 1, folder));
    if (outcome.status != 0) throw std::runtime_error(arguments[0] + ": " + outcome.err);
  }

  static std::unique_ptr<ScratchFolder> make_inputs() {
    auto made = std::make_unique<ScratchFolder>();
    const std::string folder = made->file("all");
    fs::create_directories(folder + "/text");
    fs::create_directories(folder + "/out");
    std::string words, ids, bytes;
    for (int i = 0; i < 400; ++i) words += "words to train on, line " + std::to_string(i) + "\n";
    for (int i = 0; i < 512; ++i) {
      ids += {static_cast<char>(i % 256), static_cast<char>(i / 256)};
      bytes += "3 ";
    }
    write_bytes(folder + "/deck.yaml", deck);
    write_bytes(folder + "/text/a", words + "--\n" + words);
    write_bytes(folder + "/text/b", words);
    write_bytes(folder + "/ids", ids);
    write_bytes(folder + "/bytes", bytes);
    run_well({"ostrakon-data", "build", "@/text", "--output", "@/tokens", "--validation-fraction",
              "0.3"},
             folder);
    Texts train = programs()[0].arguments;
    train.insert(train.end(), {"--set", "training.steps=2"});
    run_well(train, folder);
    run_well({"ostrakon-checkpoint", "export", "@/run/weights.h5", "@/exported"}, folder);
    return made;
  }

  /// Runs the program in a folder of its own, in which one call fails.
  Outcome run(const std::string& name, const Fault& fault) const {
    const std::string folder = scratch_.file(name);
    fs::copy(inputs(), folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    Command command = FaultSweep::command(GetParam().arguments, GetParam().ranks, folder);
    command.environment.insert(
        command.environment.end(),
        {{"LD_PRELOAD", OSTRAKON_FAULTY_FILES},
         {"OSTRAKON_FAULT_PATH", folder},
         {"OSTRAKON_FAULT_CALLS", "all"},
         {"OSTRAKON_FAULT_RANK", GetParam().faulty_rank},
         {"OSTRAKON_FAULT", fault.error == nullptr ? "count" : fault.error->name},
         {"OSTRAKON_FAULT_CALL", std::to_string(fault.call)},
         {"OSTRAKON_FAULT_STAYS", fault.error != nullptr && fault.error->stays ? "1" : "0"},
         {"OSTRAKON_FAULT_LOG", scratch_.file("log-" + name)}});
    return run_command(command);
  }

  /// The calls of a run, in order: "12 write /tmp/...".
  Texts calls_of(const std::string& name) const {
    std::istringstream stream(read_bytes(scratch_.file("log-" + name)));
    Texts calls;
    for (std::string line; std::getline(stream, line);) calls.push_back(line);
    return calls;
  }

  /// What is wrong with how a run ended; empty: nothing.
  std::string judge(const std::string& name, const Fault& fault, const Outcome& outcome) const {
    const fs::path folder = scratch_.file(name), reference = scratch_.file("reference");
    try {
      expect(!outcome.timed_out, "it does not end");
      expect(outcome.status == 0 || outcome.status == 1, "an exit status that is no error's");
      GetParam().keep(folder, inputs());
      if (outcome.status == 0) {
        GetParam().verify(folder, reference);
        return "";
      }
      expect(outcome.err.find("error") != std::string::npos, "no message");
      expect(outcome.err.find(std::strerror(fault.error->number)) != std::string::npos,
             "the message does not give the reason");
      expect(outcome.err.find(folder.filename().string()) != std::string::npos,
             "the message does not name the file");
    } catch (const std::exception& problem) {
      return problem.what();
    }
    return "";
  }

  /// Says what is wrong with a run without faults that was to resume where that one had ended.
  std::string judge_again(const std::string& name, std::int64_t newest,
                          const Outcome& outcome) const {
    const fs::path folder = scratch_.file(name), reference = scratch_.file("reference");
    const std::string start = "it does not go on well: ";
    try {
      expect(outcome.status == 0, outcome.err);
      const std::string origin = checkpoint::folder_name(newest) + ", step ";
      expect(outcome.out.find(origin) != std::string::npos,
             "not from " + checkpoint::folder_name(newest));
      verify_results(folder, reference, resume_steps);
      keep_checkpoint_in_place(folder, inputs());
    } catch (const std::exception& problem) {
      return start + problem.what();
    }
    return "";
  }

  void sweep(const std::vector<Fault>& faults);

  ScratchFolder scratch_;
  int calls_ = 0;
};

void FaultSweep::sweep(const std::vector<Fault>& faults) {
  int wrong = 0, told = 0, well = 0;
  std::mutex guard;
  constexpr int at_once = 2;
  in_parallel(
      static_cast<int>(faults.size()),
      [&](int number) {
        const Fault& fault = faults[static_cast<std::size_t>(number)];
        const std::string name = "run-" + std::to_string(number);
        const Outcome outcome = run(name, fault);
        std::unique_lock<std::mutex> lock(guard);  // HDF5 is for one thread at a time
        std::string problem = judge(name, fault, outcome);
        if (GetParam().goes_on && outcome.status != 0 && problem.empty()) {
          const std::int64_t newest = newest_step(scratch_.file(name), resume_steps);
          lock.unlock();
          const Outcome again = run_command(command(GetParam().arguments, 1, scratch_.file(name)));
          lock.lock();
          problem = judge_again(name, newest, again);
        }
        ++(outcome.status == 0 ? well : told);
        const Texts calls = calls_of(name);
        if (!problem.empty()) {
          ++wrong;
          ADD_FAILURE() << GetParam().name << ": " << fault.error->name
                        << (fault.error->stays ? " from call " : " at call ") << fault.call << ": "
                        << (static_cast<int>(calls.size()) < fault.call
                                ? "never made"
                                : calls[static_cast<std::size_t>(fault.call) - 1])
                        << ": " << problem << "\n  status " << outcome.status << ": "
                        << outcome.err.substr(0, 600);
        }
        fs::remove_all(scratch_.file(name));
        fs::remove(scratch_.file("log-" + name));
      },
      at_once);
  std::cout << GetParam().name << ": " << calls_ << " calls, " << faults.size() << " runs: " << told
            << " failed with a message or worse, " << well << " ended well; wrong: " << wrong
            << std::endl;
}

/// Every k-th call, with the errors in rotation.
TEST_P(FaultSweep, SampledFailuresAreToldOrDoNoHarm) {
  const Outcome good = run("reference", {});
  ASSERT_EQ(good.status, 0) << good.err;
  calls_ = static_cast<int>(calls_of("reference").size());
  ASSERT_GT(calls_, 20);
  const int every = std::max(1, calls_ / static_cast<int>(errors.size()));
  std::vector<Fault> faults;
  for (int call = 1 + every / 2; call <= calls_; call += every)
    faults.push_back({call, &errors[faults.size() % errors.size()]});
  sweep(faults);
}

TEST_P(FaultSweep, DISABLED_EveryFailureIsToldOrDoesNoHarm) {
  const Outcome good = run("reference", {});
  ASSERT_EQ(good.status, 0) << good.err;
  calls_ = static_cast<int>(calls_of("reference").size());
  std::vector<Fault> faults;
  for (int call = 1; call <= calls_; ++call)
    for (const Error& error : errors) faults.push_back({call, &error});
  sweep(faults);
}

INSTANTIATE_TEST_SUITE_P(Programs, FaultSweep, ::testing::ValuesIn(programs()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ostrakon::testing
