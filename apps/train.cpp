// SPDX-License-Identifier: Apache-2.0
// ostrakon-train: trains the model of a deck.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/run/run.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/saving/signals.hpp>
#include <ostrakon/tune/choose.hpp>
#include <string>

#include "command_line.hpp"
#include "program.hpp"

namespace {

using namespace ostrakon;

constexpr const char* usage =
    R"(usage: [mpiexec -n RANKS] ostrakon-train DECK [options]

Trains a transformer as DECK (YAML, or XML) says, its parameters, gradients and optimizer state
sharded over the ranks as parallel.sharding says. Writes deck.yaml, plan.json, metrics.jsonl,
checkpoints, weights.h5 and, where output.trace asks for it, trace.json into output.directory. A
weights.h5 that is there is renamed to weights.previous.h5, or
weights.previous-2.h5 and so on.

  --resume auto            resume from the newest checkpoint in output.directory that is not
                           damaged; if there is none, begin at step 1
  --resume PATH            resume from this checkpoint, or the newest in this folder of them, or of
                           this run
  --resume none            begin at step 1, and rename existing checkpoints (the default)
  --allow-changes LIST     resume from a checkpoint, or begin from weights, although one of these has
                           changed: data (training data), tokenizer (of the data, also for validation),
                           program (the checkpoint is of a later version of Ostrakon); a list has commas
  --break-lock             take output.directory although another run has it, which then ends before
                           it saves again
  --set SECTION.KEY=VALUE  change a setting of the deck; may be given many times; of a key
                           that is given twice the last value counts
  --dry-run                show ranks, settings, plan and planned memory, then stop
  --print-defaults         print a deck with every key, its default and what it means
  --help, --version
  --kokkos-...             flags of Kokkos

SIGUSR1 to any rank, or a file checkpoint_now in output.directory, saves a checkpoint at the end of
the step. SIGUSR2 or SIGTERM to any rank does too, and then stops the run with status 75. If that
comes before step 1, the run stops after it has read data and checkpoint, and saves nothing.

Exit status: 0 done, 1 bad input or failure, 75 stopped early: the same command with --resume auto
continues.
)";

struct CommandLine {
  std::string deck;
  std::vector<config::Override> overrides;
  bool print_defaults = false;
  train::RunOptions options;
};

void set_resume(const std::string& from, train::RunOptions& options) {
  require(!from.empty(), "--resume: nothing after it; expected auto, none or a path");
  options.resume = from == "auto"   ? train::Resume::automatic
                   : from == "none" ? train::Resume::none
                                    : train::Resume::path;
  options.checkpoint = options.resume == train::Resume::path ? from : "";
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  apps::GivenOnce once;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--dry-run") {
      line.options.dry_run = true;
    } else if (argument == "--break-lock") {
      line.options.break_lock = true;
    } else if (argument == "--allow-changes" || argument.rfind("--allow-changes=", 0) == 0) {
      require(argument != "--allow-changes" || i + 1 < arguments.size(),
              "--allow-changes needs a list of data, program, tokenizer after it");
      train::allow_changes(argument == "--allow-changes" ? arguments[++i] : argument.substr(16),
                           line.options.allowed);
    } else if (argument == "--print-defaults") {
      line.print_defaults = true;
    } else if (argument == "--resume" || argument.rfind("--resume=", 0) == 0) {
      require(argument != "--resume" || i + 1 < arguments.size(),
              "--resume needs auto, none or a path after it");
      const std::string from = argument == "--resume" ? arguments[++i] : argument.substr(9);
      once.add("--resume", from);
      set_resume(from, line.options);
    } else if (argument == "--set" || argument.rfind("--set=", 0) == 0) {
      require(argument != "--set" || i + 1 < arguments.size(),
              "--set needs SECTION.KEY=VALUE after it");
      line.overrides.push_back(
          config::parse_override(argument == "--set" ? arguments[++i] : argument.substr(6)));
    } else if (argument.rfind("-", 0) == 0) {
      throw Error("unknown option " + argument + "; see ostrakon-train --help");
    } else {
      require(line.deck.empty(), "two decks given, ", line.deck, " and ", argument,
              "; expected one");
      line.deck = argument;
    }
  }
  require(line.print_defaults || !line.deck.empty(), "no deck given; see ostrakon-train --help");
  return line;
}

/// Whether a person reads our output live. mpiexec may give each rank a terminal of its own,
/// whatever its own output is, so the parent's output must be a terminal, too.
bool output_is_terminal() {
  if (isatty(STDOUT_FILENO) == 0) return false;
  const std::string parents = "/proc/" + std::to_string(getppid()) + "/fd/1";
  const int descriptor = open(parents.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool terminal = isatty(descriptor) != 0;
  close(descriptor);
  return terminal;
}

}  // namespace

int main(int argc, char** argv) {
  // A batch system may send signals at any time, also while MPI starts or ends.
  train::note_signals();
  return apps::run_program(
      "ostrakon-train", usage, argc, argv, [](const apps::Arguments& arguments) {
        runtime::start_counting_memory();
        comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
        CommandLine line;
        world.run_collectively([&] { line = parse(arguments); });
        if (line.print_defaults) {
          if (world.rank() == 0) std::cout << config::default_deck();
          return 0;
        }
        const config::Settings settings = apps::read_deck(world, line.deck, line.overrides);
        line.options.terminal = output_is_terminal();
        const train::RunEnd end = train::run(tune::choose_for_run(settings, MPI_COMM_WORLD),
                                             MPI_COMM_WORLD, line.options);
        return end == train::RunEnd::stopped ? apps::status_requeue : 0;
      });
}
