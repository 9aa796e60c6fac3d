// SPDX-License-Identifier: Apache-2.0
// ostrakon-bench: how fast kernels, collectives and training steps are on this machine.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <ostrakon/tune/recompute.hpp>

#include "../common/program.hpp"
#include "bench.hpp"

namespace ostrakon::bench {
namespace {

struct Line {
  std::vector<config::Override> overrides;
  std::string products;
  Options options;
};

apps::Program program_of(Line& line) {
  Options& options = line.options;
  const apps::Option set = apps::set_option(line.overrides);
  const apps::Option dtype = {"--dtype", "fp32|bf16|fp16", apps::choice(options.dtype, dtype_names),
                              "in which models compute (fp32)"};
  return {
      "ostrakon-bench",
      "Measures how fast this machine runs what training is made of. Without a name: kernels and, "
      "on "
      "more than one rank, comm.",
      {{"", "", "", {dtype}},
       {"kernels",
        "",
        "each kernel's rate, and its ratio to the best that this run sees of a large matrix "
        "product "
        "or a large copy; with several ranks, all at once",
        {dtype}},
       {"comm",
        "",
        "all-gather and reduce-scatter compared with MPI's own, on 2 ranks or more; where nodes "
        "have "
        "several ranks each also in two levels, inside nodes and across them, and the size from "
        "which that is faster, for parallel.hierarchical_collectives",
        {{"--ranks-per-node", "N", apps::integer(options.ranks_per_node, 1),
          "N consecutive ranks count as a node; default: as they are"}}},
       {"device", "",
        "of a build for a device: its copies, launches, products and collectives, in a minute; on "
        "several ranks also between their devices. Also for a first run on a new machine"},
       {"machine",
        "",
        "a machine file, for ostrakon-plan --time: rates of kernels, fitted to steps of small "
        "models, and on several ranks of collectives; with as many ranks as a node is to have",
        {{"--output", "FILE", apps::output(options.output),
          "the file to write; default: it is shown"}}},
       {"preflight",
        "[DECK]",
        "checks ranks before a run, in less than a minute: whether all compute the same bits and "
        "are equally fast, whether links, memory, disks and clocks are as those of other ranks, "
        "whether programs, libraries and files are the same, and which network is used; with DECK "
        "for the messages of its plan and its folders. See docs/operations.md. Exit status 3: a "
        "fault was found",
        {{"--machine", "FILE", apps::word(options.machine),
          "also compare with this machine file: finds what is slow on all ranks"},
         {"--hostfile", "FILE", apps::output(options.hostfile),
          "write the hosts without a fault, one line each"},
         set}},
       {"step",
        "DECK",
        "seconds of a training step, tokens a second, MFU, where the time goes, memory; on "
        "synthetic "
        "data where the deck's files are not there",
        {{"--machine", "FILE", apps::word(options.machine),
          "also what is predicted for the machine of this file"},
         {"--kernels", "", apps::flag(options.kernels),
          "also how long each kernel of rank 0 takes, in steps of their own; on NVIDIA's GPUs by "
          "CUPTI's activity records, with those of libraries"},
         {"--added-nanoseconds-per-byte", "T", apps::above_zero(options.added_nanoseconds_per_byte),
          "collectives take so much longer for each byte that a rank sends"},
         {"--products", "FILE", apps::word(line.products),
          "multiply by the algorithms of this products.json of a run's folder"},
         set}},
       {"overlap",
        "DECK",
        "how much of a slower network's delay is hidden behind compute, for streams inline and on "
        "threads and several depths of prefetch, compared with what the plan says; on 2 ranks or "
        "more",
        {set}},
       {"pipeline",
        "DECK",
        "how long stages of parallel.pipeline wait for each other, for each parallel.schedule, "
        "compared with what the plan says: units sleep, for a tiny deck with few cores; also of "
        "layers whose gradients of weights need only what forward has saved",
        {set}},
       {"watch",
        "DECK",
        "what the watchdog and the times of ranks cost a step, in time of the processor: of steps "
        "with and without them, alternating, and of their calls alone",
        {set}},
       {"checkpoint",
        "DECK",
        "how fast state is saved and read in output.directory, compared with dd and cat with as "
        "many bytes; how long a step stalls for an asynchronous save, and what that costs the "
        "steps "
        "meanwhile",
        {set}}},
      {{"--seconds", "S", apps::above_zero(options.seconds),
        "how long to measure each row (0.3), all steps (10), or, of machine, each small model in "
        "each of two rounds (0.7)"},
       {"--json", "", apps::flag(options.json), "one JSON object a line"}},
      "Exit status: 0 done, 1 bad input or failure; of preflight 3: a fault was found.",
      apps::Runs::on_ranks};
}

/// Synthetic data if the deck's files do not exist on rank 0, and no end; with what the deck leaves
/// to the memory that there is.
config::Settings settings_of(comm::Communicator& world, const std::string& deck, const Line& line) {
  config::Settings settings = apps::read_deck(world, deck, line.overrides);
  const std::vector<data::WeightedFile> files = data::read_files(settings.data.path);
  bool is_there = !files.empty() && std::all_of(files.begin(), files.end(), [](const auto& file) {
    return std::filesystem::exists(file.path);
  });
  world.broadcast(&is_there, sizeof is_there, 0);
  world.run_collectively([&] {
    require(is_there || settings.data.objective != data::Objective::dpo, "data.path = '",
            settings.data.path, "' is not there, and training.objective = dpo takes pairs of ",
            "answers, which synthetic data have none of; expected a file of them");
  });
  if (!is_there) settings.data.dataset = data::DatasetKind::synthetic;
  settings.training.steps = std::max<std::int64_t>(settings.training.steps, 1000000);
  world.run_collectively([&] { config::check_ranks(settings, world.size()); });
  train::set_matrix_threads(settings, world);
  std::ostream nowhere(nullptr);
  return tune::choose_recompute_for_run(std::move(settings), world.mpi(),
                                        line.options.json ? nowhere : std::cout);
}

int run(comm::Communicator& world, const apps::Given& given, const Line& line) {
  runtime::start_counting_memory();
  const std::string& what = given.command;
  const Options& options = line.options;
  world.run_collectively([&] {
    require((what != "comm" && what != "overlap") || world.size() > 1, what,
            " measures communication, found 1 rank; expected mpiexec -n 2 or more");
    const int node = options.ranks_per_node;
    require(node == 0 || world.size() % node == 0, "--ranks-per-node ", node,
            " does not divide the ", world.size(), " ranks");
  });
  if (what == "preflight") {
    const std::string deck = given.operands.empty() ? "" : given.operands[0];
    return run_preflight(world, deck, line.overrides, options);
  }
  if (!given.operands.empty()) {
    const auto measure = what == "step"       ? run_step
                         : what == "overlap"  ? run_overlap
                         : what == "pipeline" ? run_pipeline
                         : what == "watch"    ? run_watch
                                              : run_checkpoint;
    config::Settings settings = settings_of(world, given.operands[0], line);
    settings.runtime.products_file = line.products;
    measure(world, settings, options);
  } else if (what == "device" || what == "machine") {
    (what == "device" ? run_device : run_machine)(world, options);
  } else {
    const bool has_comm = what == "comm" || (what.empty() && world.size() > 1);
    if (what != "comm") run_kernels(world, options);
    if (what.empty() && has_comm) say(world, options, "\n");
    if (has_comm) run_comm(world, options);
  }
  return 0;
}

}  // namespace
}  // namespace ostrakon::bench

int main(int argc, char** argv) {
  using namespace ostrakon;
  bench::Line line;
  return apps::run_program(bench::program_of(line), argc, argv,
                           [&](comm::Communicator& world, const apps::Given& given) {
                             return bench::run(world, given, line);
                           });
}
