// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan: what a deck needs and sends on any number of ranks, without starting them.
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/plan/picture.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/trainer.hpp>
#include <set>
#include <string>

#include "plan_fit.hpp"
#include "program.hpp"

namespace {

using namespace ostrakon;

constexpr const char* usage =
    R"(usage: ostrakon-plan DECK [options]

Shows what a training step of DECK needs of each rank: the strategy and whether its sums are those
of one rank bit for bit; memory by category and by unit at the peak; collectives and messages, their
number and sizes, and what is sent inside a node and across nodes; how much of it the plan lets run
beside computing; actions and floating-point operations. Starts no ranks, opens no data and takes
none of the memory that it plans, so any number of ranks can be planned anywhere.

  --ranks N                ranks to plan for (1)
  --ranks-per-node N       neighbouring ranks of a node; default: parallel.ranks_per_node of the
                           deck, or all ranks on one node where it is 0
  --set SECTION.KEY=VALUE  change a setting of the deck; may be given many times
  --json                   write the whole plan as JSON instead: every buffer with its place in
                           memory, every action with what it uses and waits for
  --svg FILE               draw the plan too: streams, actions and their waits, memory over the step
  --help, --version

  --fit BYTES              show, instead, the ten cheapest settings with which the arena of a rank,
                           for training, validation and writing weights, is at most BYTES, such as
                           80GiB; each as the --set options that make the deck so
  --any-precision          with --fit: other precision.gather and precision.reduce, too
  --gflops N               with --fit: rate at which a rank computes, in GFLOP/s (100000)
  --gigabytes-per-second N
                           with --fit: rate at which a rank sends across nodes, in 10^9 bytes/s
                           (25); inside a node it is ten times that

--fit sorts by an estimate of a step's seconds, in which nothing overlaps,
    flops / gflops / 10^9 + (across nodes + inside a node / 10) / gigabytes-per-second / 10^9
with a rank's floating-point operations, those of computing again included, and the bytes that it
sends; of the same estimate, smaller arenas first. It varies, beside what the deck says,
    parallel.sharding               none, optimizer, gradients, full
    parallel.shard_group            world, node
    parallel.reshard_after_forward  default, always, never
    parallel.accumulation           auto, reduce_last
    parallel.forward_prefetch, backward_prefetch, in_flight_reductions
                                    all 1 or all 0: less only where more does not fit or costs more
    memory.activation_checkpointing none, selective attention mlp norms, every 2, full
    training.micro_batch_size       powers of two that leave every rank as many leaves
    with --any-precision: precision.gather, precision.reduce
                                    fp32 both, bf16 both, bf16 and fp32
Figures are those of plans, never guessed. Settings are left out unplanned only where what they
must keep does not fit, or where their operations alone take longer than the tenth.

Exit status: 0 done, 1 bad input or failure, also where nothing fits.
)";

struct CommandLine {
  std::string deck;
  std::vector<config::Override> overrides;
  int ranks = 1;
  int ranks_per_node = 0;  // 0: as the deck says
  bool json = false;
  std::string svg;
  std::int64_t fit_bytes = 0;  // 0: no --fit
  bool any_precision = false;
  double gflops = 100000.0;
  double gigabytes_per_second = 25.0;
};

int positive(const std::string& option, const std::string& value) {
  int number = 0;
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, number);
  require(error == std::errc() && stopped == end && number >= 1, option, " ", value,
          ": expected an integer >= 1");
  return number;
}

double positive_number(const std::string& option, const std::string& value) {
  const config::Value read = config::parse_scalar(value);
  require(read.kind == config::Value::Kind::number && read.number > 0.0 && read.number <= 1e15,
          option, " ", value, ": expected a number above 0, at most 1e15");
  return read.number;
}

std::int64_t bytes(const std::string& option, const std::string& value) {
  const config::Value read = config::parse_scalar(value);
  if (const auto plain = read.integer(1, std::int64_t{1} << 53)) return *plain;
  const auto limit = config::read_gather_limit(read);
  require(limit && limit->bytes > 0, option, " ", value,
          ": expected bytes, such as 80GiB or \"1.5 TB\"");
  return limit->bytes;
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  std::set<std::string> given;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.rfind("-", 0) != 0) {
      require(line.deck.empty(), "two decks given, ", line.deck, " and ", argument,
              "; expected one");
      line.deck = argument;
      continue;
    }
    if (argument.rfind("--kokkos-", 0) == 0) continue;  // as for the other programs
    if (argument == "--json") {
      line.json = true;
      continue;
    }
    if (argument == "--any-precision") {
      line.any_precision = true;
      continue;
    }
    // "--ranks 8" or "--ranks=8"
    const std::size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    require(option == "--set" || option == "--ranks" || option == "--ranks-per-node" ||
                option == "--svg" || option == "--fit" || option == "--gflops" ||
                option == "--gigabytes-per-second",
            "unknown option ", argument, "; see ostrakon-plan --help");
    require(equals != std::string::npos || i + 1 < arguments.size(), option,
            " needs a value after it");
    const std::string value =
        equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i];
    require(option == "--set" || given.insert(option).second, option, " is given twice");
    if (option == "--set") line.overrides.push_back(config::parse_override(value));
    if (option == "--ranks") line.ranks = positive(option, value);
    if (option == "--ranks-per-node") line.ranks_per_node = positive(option, value);
    if (option == "--svg") {
      require(!value.empty(), "--svg needs the name of a file");
      line.svg = value;
    }
    if (option == "--fit") line.fit_bytes = bytes(option, value);
    if (option == "--gflops") line.gflops = positive_number(option, value);
    if (option == "--gigabytes-per-second")
      line.gigabytes_per_second = positive_number(option, value);
  }
  for (const char* option : {"--gflops", "--gigabytes-per-second"})
    require(line.fit_bytes > 0 || given.count(option) == 0, option, " goes with --fit only");
  require(line.fit_bytes > 0 || !line.any_precision, "--any-precision goes with --fit only");
  require(line.fit_bytes == 0 || line.svg.empty(), "--svg draws one plan; --fit shows many");
  require(!line.deck.empty(), "no deck given; see ostrakon-plan --help");
  return line;
}

/// Ranks of a node.
int place_ranks(const config::Settings& settings, const CommandLine& line) {
  const bool given = line.ranks_per_node > 0;
  const std::int64_t of_deck = settings.ranks_per_node > 0 ? settings.ranks_per_node : line.ranks;
  const std::int64_t node = given ? line.ranks_per_node : of_deck;
  const char* const advice =
      given ? ""
            : ", and training refuses that; set parallel.ranks_per_node=0 to take nodes as they "
              "are, or plan for another machine with --ranks-per-node";
  require(line.ranks % node == 0 || (given && line.ranks < node),
          given ? "--ranks-per-node " : "parallel.ranks_per_node = ", node, " does not divide the ",
          line.ranks, line.ranks == 1 ? " rank" : " ranks", advice);
  return static_cast<int>(std::min<std::int64_t>(node, line.ranks));
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  require(stream.is_open(), path, ": can't be written: ", std::strerror(errno));
  stream << text;
  stream.close();
  require(stream.good(), path, ": can't be written to its end");
}

void plan_deck(const CommandLine& line) {
  config::Settings settings =
      config::read_settings(apps::read_file(line.deck), line.deck, line.overrides);
  const int ranks_per_node = place_ranks(settings, line);
  if (line.fit_bytes > 0) {
    apps::FitRequest request;
    request.bytes = line.fit_bytes;
    request.ranks = line.ranks;
    request.ranks_per_node = ranks_per_node;
    request.any_precision = line.any_precision;
    request.rates = {1e9 * line.gflops, 1e10 * line.gigabytes_per_second,
                     1e9 * line.gigabytes_per_second};
    apps::show_fits(settings, request, line.json, std::cout);
    std::cout << std::flush;
    require(std::cout.good(), "the output can't be written");
    return;
  }
  apps::place_on_ranks(settings, line.ranks, ranks_per_node);
  const std::unique_ptr<model::AnyDecoder> decoder = model::make_decoder(
      settings.precision.gather, settings.model,
      {settings.training.micro_batch_size, settings.training.sequence_length}, settings.recompute);
  const plan::ModelDescription description = train::describe(*decoder);
  const auto write_plan = [&](plan::Purpose purpose) {
    return plan::build_step_plan(description, line.ranks, settings.parallel, purpose);
  };
  const runtime::Program program = runtime::make_program(write_plan(plan::Purpose::train));
  plan::Report report =
      plan::make_report(program.plan, program.memory, program.host_memory, ranks_per_node);
  report.strategy = config::strategy(settings, program.plan.accumulation);
  if (!line.svg.empty()) {
    const std::string deck = std::filesystem::path(line.deck).filename().string();
    write_file(line.svg, plan::picture_svg(program.plan, program.memory,
                                           text(deck, ", each of ", format_count(line.ranks),
                                                line.ranks == 1 ? " rank" : " ranks")));
  }
  if (line.json) {
    plan::write_report_json(std::cout, program.plan, program.memory, program.host_memory, report);
  } else {
    // Nothing of these is run or shown: they need no proof.
    std::int64_t others = 0;
    for (plan::Purpose purpose : {plan::Purpose::evaluate, plan::Purpose::export_parameters})
      others = std::max(others, plan::plan_memory(write_plan(purpose)).arena_bytes);
    std::cout << plan::report_text(program.plan, report);
    if (others > report.arena_bytes)
      std::cout << "\nvalidation or writing weights needs more: an arena of "
                << format_bytes(others) << "\n";
  }
  std::cout << std::flush;
  require(std::cout.good(), "the output can't be written");
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) {
      std::cout << usage;
      return 0;
    }
    if (std::strcmp(argv[i], "--version") == 0) {
      std::cout << "ostrakon-plan " << OSTRAKON_VERSION << "\n";
      return 0;
    }
  }
  try {
    plan_deck(parse(apps::Arguments(argv + 1, argv + argc)));
  } catch (const std::exception& error) {
    std::cerr << "ostrakon-plan: error: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
