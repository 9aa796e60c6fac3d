// SPDX-License-Identifier: Apache-2.0
// ostrakon-train: trains the model of a deck.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/run/run.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/saving/signals.hpp>
#include <ostrakon/tune/choose.hpp>

#include "common/program.hpp"
#include "text_model/questions.hpp"

namespace {

using namespace ostrakon;

/// Exit status of a run that was stopped early and can be resumed: EX_TEMPFAIL, on which batch
/// systems can be configured to requeue.
constexpr int status_requeue = 75;

struct Line {
  std::vector<config::Override> overrides;
  bool print_defaults = false;
  std::string products;
  train::RunOptions options;
};

apps::Value resume(train::RunOptions& to) {
  return {[&to](const std::string& from) {
    to.resume = from == "auto"   ? train::Resume::automatic
                : from == "none" ? train::Resume::none
                                 : train::Resume::path;
    to.checkpoint = to.resume == train::Resume::path ? from : "";
    return from.empty() ? "auto, none or a path" : "";
  }};
}

apps::Value changes(train::AllowedChanges& to) {
  apps::Value value{[&to](const std::string& list) {
    train::allow_changes(list, to);
    return "";
  }};
  value.may_repeat = true;
  return value;
}

apps::Program program_of(Line& line) {
  return {
      "ostrakon-train",
      "",
      {{"",
        "[DECK]",
        R"(Trains a transformer as DECK (YAML, or XML) says, its parameters, gradients and optimizer state
sharded over the ranks as parallel.sharding says. Writes deck.yaml, plan.json, metrics.jsonl,
checkpoints, weights.h5, on NVIDIA's GPUs products.json and, where output.trace asks for it,
trace.json, and with training.ema weights-ema.h5 into output.directory. A weights.h5 that is there is
renamed to weights.previous.h5, or weights.previous-2.h5 and so on.)",
        {{"--resume", "auto|none|PATH", resume(line.options),
          "auto: resume from the newest checkpoint in output.directory that is not damaged; if "
          "there is none, begin at step 1. PATH: resume from this checkpoint, or the newest in "
          "this folder of them, or of this run. none: begin at step 1, and rename existing "
          "checkpoints (default)"},
         {"--allow-changes", "LIST", changes(line.options.allowed),
          "resume from a checkpoint, or begin from weights, although one of these has changed: "
          "data (training data), tokenizer (of the data, also for validation), program (the "
          "checkpoint is of a later version of Ostrakon); a list has commas"},
         {"--break-lock", "", apps::flag(line.options.break_lock),
          "take output.directory although another run has it, which then ends before it saves "
          "again"},
         {"--products", "FILE", apps::word(line.products),
          "on a device: multiply by the algorithms of this products.json of a run's folder, of the "
          "same library and kind of device; kinds of products that it lacks are timed"},
         apps::set_option(line.overrides),
         {"--dry-run", "", apps::flag(line.options.dry_run),
          "show ranks, settings, plan and planned memory, then stop"},
         {"--print-defaults", "", apps::flag(line.print_defaults),
          "print a deck with every key, its default and what it means"}}}},
      {},
      R"(SIGUSR1 to any rank, or a file checkpoint_now in output.directory, saves a checkpoint at the end of
the step. SIGUSR2 or SIGTERM to any rank does too, and then stops the run with status 75. If that
comes before step 1, the run stops after it has read data and checkpoint, and saves nothing.

Exit status: 0 done, 1 bad input or failure, 75 stopped early, 76 ended by the watchdog: after these
two the same command with --resume auto continues.)",
      apps::Runs::on_ranks};
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
  Line line;
  const auto run = [&](comm::Communicator& world, const apps::Given& given) {
    runtime::start_counting_memory();
    if (line.print_defaults) {
      if (world.rank() == 0) std::cout << config::default_deck();
      return 0;
    }
    world.run_collectively(
        [&] { require(!given.operands.empty(), "no DECK given; see ostrakon-train --help"); });
    config::Settings settings = apps::read_deck(world, given.operands[0], line.overrides);
    settings.runtime.products_file = line.products;
    line.options.terminal = output_is_terminal();
    line.options.open_questions = apps::open_questions;
    const train::RunEnd end =
        train::run(tune::choose_for_run(settings, MPI_COMM_WORLD), MPI_COMM_WORLD, line.options);
    return end == train::RunEnd::stopped ? status_requeue : 0;
  };
  return apps::run_program(program_of(line), argc, argv, run);
}
