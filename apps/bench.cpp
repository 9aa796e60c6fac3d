// SPDX-License-Identifier: Apache-2.0
// ostrakon-bench: how fast kernels, collectives and training steps are on this machine.
#include "bench.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <iostream>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/runtime/memory_counter.hpp>

#include "output_file.hpp"
#include "program.hpp"

namespace ostrakon::bench {

Seconds summarize(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values.front()};
}

std::vector<Seconds> measure(comm::Communicator& world, double budget,
                             const std::vector<std::function<void()>>& works) {
  const auto seconds_of = [&](const std::function<void()>& work, int calls) {
    world.barrier();
    const Stopwatch timer;
    for (int call = 0; call < calls; ++call) work();
    return timer.seconds() / calls;
  };
  // A sample is so long that the clock's resolution and the barrier before it do not matter.
  constexpr double shortest_sample = 2e-4;
  std::vector<double> estimates;
  for (const auto& work : works) {
    seconds_of(work, 1);
    estimates.push_back(std::max(seconds_of(work, 1), 1e-9));
  }
  world.maximum(estimates.data(), static_cast<int>(estimates.size()));
  const double longest = *std::max_element(estimates.begin(), estimates.end());
  const double sample_seconds = std::max(longest, shortest_sample);
  const int samples = static_cast<int>(std::clamp(budget / sample_seconds, 3.0, 1000.0));
  std::vector<std::vector<double>> taken(works.size());
  for (int sample = 0; sample < samples; ++sample)
    for (std::size_t w = 0; w < works.size(); ++w) {
      const int calls = static_cast<int>(std::ceil(shortest_sample / estimates[w]));
      taken[w].push_back(seconds_of(works[w], std::max(1, calls)));
    }
  std::vector<Seconds> results;
  for (std::vector<double>& samples_of_work : taken) {
    world.maximum(samples_of_work.data(), samples);
    results.push_back(summarize(samples_of_work));
  }
  return results;
}

namespace {

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return print("%.1f us", seconds * 1e6);
  return seconds < 1.0 ? print("%.2f ms", seconds * 1e3) : print("%.3f s", seconds);
}

std::string shown(const nlohmann::ordered_json& value, Format format) {
  if (value.is_null()) return "-";
  switch (format) {
    case Format::text:
      return value.get<std::string>();
    case Format::count:
      return format_count(value.get<std::int64_t>());
    case Format::seconds:
      return seconds_text(value.get<double>());
    case Format::bytes:
      return format_bytes(value.get<std::int64_t>());
    case Format::number:
      return print("%.1f", value.get<double>());
    case Format::ratio:
      return print("%.2f", value.get<double>());
    case Format::percent:
      return print("%.1f %%", 100.0 * value.get<double>());
  }
  return "";
}

std::string in_columns(const std::vector<Column>& columns, const std::vector<std::string>& cells) {
  TextWriter line;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const bool last = c + 1 == columns.size();
    if (columns[c].format == Format::text)
      line << std::left << std::setw(last ? 0 : columns[c].width) << cells[c];
    else
      line << std::right << std::setw(columns[c].width) << cells[c];
    line << (last ? "\n" : "  ");
  }
  return line.str();
}

}  // namespace

Table::Table(std::string name, std::vector<Column> columns, bool json, bool is_root)
    : name_(std::move(name)), columns_(std::move(columns)), json_(json), is_root_(is_root) {
  if (!is_root_ || json_) return;
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::cout << in_columns(columns_, titles) << std::flush;
}

void Table::row(const Row& values) {
  if (!is_root_) return;
  if (json_) {
    nlohmann::ordered_json object = {{"bench", name_}};
    for (std::size_t c = 0; c < columns_.size(); ++c) object[columns_[c].key] = values[c];
    std::cout << object.dump() << std::endl;
    return;
  }
  std::vector<std::string> cells;
  for (std::size_t c = 0; c < columns_.size(); ++c)
    cells.push_back(shown(values[c], columns_[c].format));
  std::cout << in_columns(columns_, cells) << std::flush;
}

namespace {

constexpr const char* usage =
    R"(usage: [mpiexec -n RANKS] ostrakon-bench
           [kernels | comm | device | machine | step DECK | overlap DECK | pipeline DECK |
           checkpoint DECK] [options]

Measures how fast this machine runs what training is made of. Without a name: kernels and, on more
than one rank, comm.

  kernels    each kernel's rate, and its ratio to the best that this run sees of a large matrix
             product or a large copy; with several ranks, all at once
  comm       all-gather and reduce-scatter compared with MPI's own, on 2 ranks or more; where nodes
             have several ranks each also in two levels, inside nodes and across them, and the size
             from which that is faster, for parallel.hierarchical_collectives
  device     of a build for a device: its copies, launches, products and collectives, in a minute; on
             several ranks also between their devices. Also for a first run on a new machine
  machine    a machine file, for ostrakon-plan --time: rates of kernels, fitted to steps of small
             models, and on several ranks of collectives; with as many ranks as a node is to have
  step DECK  seconds of a training step, tokens a second, MFU, where the time goes, memory; on
             synthetic data where the deck's files are not there
  overlap DECK  how much of a slower network's delay is hidden behind compute, for streams inline
             and on threads and several depths of prefetch, compared with what the plan says; on 2
             ranks or more
  pipeline DECK  how long stages of parallel.pipeline wait for each other, for each parallel.schedule,
             compared with what the plan says: units sleep, for a tiny deck with few cores; also
             of layers whose gradients of weights need only what forward has saved
  checkpoint DECK  how fast state is saved and read in output.directory, compared with dd and cat
             with as many bytes; how long a step stalls for an asynchronous save, and what that
             costs the steps meanwhile

  --seconds S              how long to measure each row (0.3), all steps (10), or, of machine, each
                           small model in each of two rounds (0.7)
  --dtype D                of kernels: fp32, bf16 or fp16, in which models compute (fp32)
  --output FILE            of machine: the file to write; default: it is shown
  --machine FILE           of step: also what is predicted for the machine of this file
  --added-nanoseconds-per-byte T
                           of step: collectives take so much longer for each byte that a rank sends
  --ranks-per-node N       of comm: N consecutive ranks count as a node; default: as they are
  --json                   one JSON object a line
  --set SECTION.KEY=VALUE  change a setting of the deck; may be given many times; of a key
                           that is given twice the last value counts
  --help, --version
  --kokkos-...             flags of Kokkos

Exit status: 0 done, 1 bad input or failure.
)";

struct CommandLine {
  std::string what;
  std::string deck;
  std::vector<config::Override> overrides;
  Options options;
  std::optional<DType> dtype;
};

bool takes_deck(const CommandLine& line) {
  return line.what == "step" || line.what == "overlap" || line.what == "pipeline" ||
         line.what == "checkpoint";
}

double parse_seconds(const std::string& value, const std::string& option = "--seconds") {
  TextReader stream(value);
  double seconds = 0.0;
  stream >> seconds;
  require(!stream.fail() && stream.eof() && seconds > 0.0 && std::isfinite(seconds), option, " ",
          value, ": expected a number greater than 0");
  return seconds;
}

DType parse_dtype(const std::string& value) {
  for (const auto& dtype : dtype_names)
    if (value == dtype.name) return dtype.value;
  throw Error("--dtype " + value + ": expected fp32, bf16 or fp16");
}

int parse_ranks_per_node(const std::string& value) {
  TextReader stream(value);
  int ranks = 0;
  stream >> ranks;
  require(!stream.fail() && stream.eof() && ranks > 0, "--ranks-per-node ", value,
          ": expected an integer greater than 0");
  return ranks;
}

void parse_operand(CommandLine& line, const std::string& argument) {
  if (line.what.empty()) {
    require(argument == "kernels" || argument == "comm" || argument == "device" ||
                argument == "machine" || argument == "step" || argument == "overlap" ||
                argument == "pipeline" || argument == "checkpoint",
            "don't know how to measure ", argument,
            "; expected kernels, comm, device, machine, step DECK, overlap DECK, pipeline DECK or "
            "checkpoint DECK");
    line.what = argument;
    return;
  }
  require(takes_deck(line), line.what, " takes no further argument, found ", argument);
  require(line.deck.empty(), "two decks given, ", line.deck, " and ", argument, "; expected one");
  line.deck = argument;
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    if (argument == "--json") {
      line.options.json = true;
    } else if (option == "--seconds" || option == "--set" || option == "--ranks-per-node" ||
               option == "--output" || option == "--machine" || option == "--dtype" ||
               option == "--added-nanoseconds-per-byte") {
      const bool apart = equals == std::string::npos;
      require(!apart || i + 1 < arguments.size(), option, " needs a value after it");
      const std::string value = apart ? arguments[++i] : argument.substr(equals + 1);
      if (option == "--seconds")
        line.options.seconds = parse_seconds(value);
      else if (option == "--output")
        apps::require_output(option, line.options.output = value);
      else if (option == "--machine")
        line.options.machine = value;
      else if (option == "--dtype")
        line.dtype = parse_dtype(value);
      else if (option == "--added-nanoseconds-per-byte")
        line.options.added_seconds_per_byte = 1e-9 * parse_seconds(value, option);
      else if (option == "--ranks-per-node")
        line.options.ranks_per_node = parse_ranks_per_node(value);
      else
        line.overrides.push_back(config::parse_override(value));
    } else if (argument.rfind("-", 0) == 0) {
      throw Error("unknown option " + argument + "; see ostrakon-bench --help");
    } else {
      parse_operand(line, argument);
    }
  }
  require(!takes_deck(line) || !line.deck.empty(), line.what, " needs a deck after it");
  require(line.options.output.empty() || line.what == "machine", "--output is for machine only");
  require((line.options.machine.empty() && line.options.added_seconds_per_byte == 0.0) ||
              line.what == "step",
          "--machine and --added-nanoseconds-per-byte are for step DECK only");
  require(!line.dtype || line.what.empty() || line.what == "kernels",
          "--dtype is for kernels only");
  if (line.dtype) line.options.dtype = *line.dtype;
  require(line.options.ranks_per_node == 0 || line.what == "comm",
          "--ranks-per-node is for comm only");
  require(takes_deck(line) || line.overrides.empty(),
          "--set is for step DECK, overlap DECK, pipeline DECK and checkpoint DECK only");
  return line;
}

void run(const apps::Arguments& arguments) {
  runtime::start_counting_memory();
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  CommandLine line;
  world.run_collectively([&] {
    line = parse(arguments);
    require((line.what != "comm" && line.what != "overlap") || world.size() > 1, line.what,
            " measures communication, found 1 rank; expected mpiexec -n 2 or more");
    const int node = line.options.ranks_per_node;
    require(node == 0 || world.size() % node == 0, "--ranks-per-node ", node,
            " does not divide the ", world.size(), " ranks");
  });
  if (takes_deck(line)) {
    config::Settings settings = apps::read_deck(world, line.deck, line.overrides);
    const auto measure = line.what == "step"       ? run_step
                         : line.what == "overlap"  ? run_overlap
                         : line.what == "pipeline" ? run_pipeline
                                                   : run_checkpoint;
    measure(world, std::move(settings), line.options);
    return;
  }
  if (line.what == "device") return run_device(world, line.options);
  if (line.what == "machine") return run_machine(world, line.options);
  if (line.what != "comm") run_kernels(world, line.options);
  if (line.what.empty() && world.size() > 1 && world.rank() == 0 && !line.options.json)
    std::cout << "\n";
  if (line.what == "comm" || (line.what.empty() && world.size() > 1)) run_comm(world, line.options);
}

}  // namespace
}  // namespace ostrakon::bench

int main(int argc, char** argv) {
  return ostrakon::apps::run_program("ostrakon-bench", ostrakon::bench::usage, argc, argv,
                                     [](const ostrakon::apps::Arguments& arguments) {
                                       ostrakon::bench::run(arguments);
                                       return 0;
                                     });
}
