// SPDX-License-Identifier: Apache-2.0

// ostrakon-launch: runs a launcher of ranks, and ends with the status of the run.

#include <filesystem>
#include <iostream>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/watch/verdict.hpp>
#include <ostrakon/watch/watchdog.hpp>

#include "../common/program.hpp"
#include "launcher.hpp"
#include "verdicts.hpp"

namespace ostrakon::apps::launch_program {
namespace {

constexpr double look_again_seconds =
    3.0;  // for a verdict, after a launcher that a signal has ended

struct Options {
  std::int64_t patience = 10;         // seconds
  std::int64_t give_up = 3;           // jobs; 0: never
  std::optional<std::int64_t> named;  // times
};

void say(const std::string& line) { std::cerr << "ostrakon-launch: " << line << '\n'; }

/// Runs the command. Returns the run's exit status.
int launch(const std::string& folder, const Words& command, const Options& options) {
  const std::vector<watch::Verdict> earlier = watch::read_verdicts(folder);
  Launcher launcher(command);
  const NewVerdict verdict(folder, earlier);
  double patient_until = 0.0;  // 0: there is no verdict yet
  std::optional<int> status;
  while (!status) {
    status = launcher.wait(0.5);
    if (status || !verdict.is_there()) continue;
    if (patient_until == 0.0) patient_until = seconds_now() + static_cast<double>(options.patience);
    if (seconds_now() < patient_until) continue;
    say(text(shown(command[0]), " still runs ", options.patience,
             " s after the watchdog has ended its ranks, and is ended"));
    status = launcher.end();
  }
  if (launcher.was_asked_to_end()) return *status;
  const bool was_killed = *status > 128;
  if (!verdict.comes_within(was_killed ? look_again_seconds : *status == 0 ? 0.0 : 1.0)) {
    std::error_code ignored;
    if (*status != 0 && !std::filesystem::is_directory(folder, ignored))
      say(text("there is no folder ", shown(folder), "; expected the run's output.directory"));
    return *status;
  }
  if (const auto step = step_of_all(watch::read_verdicts(folder), options.give_up)) {
    say(text("gives up, as the watchdog has ended the last ", options.give_up, " jobs in step ",
             *step, "; see watchdog.jsonl in ", shown(folder)));
    return 1;
  }
  return watch::status_hung;
}

int run(const Given& given, const Options& options) {
  const std::string folder = given.operands[0];
  require(!folder.empty(), "OUTPUT = \"\": expected the run's output.directory");
  Words command(given.operands.begin() + 1, given.operands.end());
  if (options.named) {
    require(command.empty(), "don't know ", shown(command.empty() ? "" : command[0]),
            "; with --named only OUTPUT is expected");
    require(std::filesystem::is_directory(folder), "there is no folder ", shown(folder));
    for (const std::string& host : named_hosts(watch::read_verdicts(folder), *options.named))
      std::cout << host << '\n';
    return 0;
  }
  require(!command.empty(), "after ", shown(folder), " expected a launcher, such as mpiexec");
  require(command[0].empty() || command[0][0] != '-', "the launcher ", shown(command[0]),
          ": expected OUTPUT, the run's output.directory, before a launcher such as mpiexec");
  return launch(folder, command, options);
}

/// Ends options where OUTPUT begins: what follows are those of the launcher.
Words with_end_of_options(Words words) {
  std::size_t w = 0;
  while (w < words.size() && words[w].rfind("--", 0) == 0 && words[w] != "--help" &&
         words[w] != "--version")
    w += 2;
  if (w < words.size() && words[w].rfind("--", 0) != 0)
    words.insert(words.begin() + static_cast<std::ptrdiff_t>(w), "--");
  return words;
}

Program program(Options& options) {
  return {"ostrakon-launch",
          "",
          {{"",
            "OUTPUT [LAUNCHER...]",
            "Runs a launcher of ranks, such as mpiexec, for a run whose output.directory is "
            "OUTPUT, and ends with "
            "status 76 where the watchdog has ended the run, whatever the status of the launcher "
            "is: that of a "
            "rank that was killed, for example. Otherwise the status is that of the launcher. A "
            "launcher that does "
            "not end then, as mpiexec of Open MPI 4.1 where a host is lost, is ended, with all "
            "that it has started. "
            "Signals are passed on to it. Options come before OUTPUT.",
            {{"--patience", "SECONDS", integer(options.patience, 1, 86400),
              "how long a launcher may take to end after the watchdog has ended its ranks (10)"},
             {"--give-up", "JOBS", integer(options.give_up, 0, 1000),
              "end with status 1 where the watchdog has ended the last JOBS jobs of the run in the "
              "same step (3); 0: "
              "never"},
             {"--named", "TIMES", integer(options.named, 1, 1000000),
              "run nothing, and print the hosts that the watchdog has named in TIMES jobs of the "
              "run or more, one a "
              "line"}},
            [&options](const Given& given) { return run(given, options); }}},
          {},
          "  ostrakon-launch output/mine mpiexec -n 64 ostrakon-train my.yaml --resume auto"};
}

}  // namespace
}  // namespace ostrakon::apps::launch_program

int main(int argc, char** argv) {
  using namespace ostrakon::apps;
  launch_program::Options options;
  Words words(argv + 1, argv + argc);
  words = launch_program::with_end_of_options(std::move(words));
  words.insert(words.begin(), argv[0]);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return run_serial_program(launch_program::program(options), static_cast<int>(words.size()),
                            arguments.data());
}
