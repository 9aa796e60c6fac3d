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
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/trainer/handlers/submissions.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "draw.hpp"
#include "output_file.hpp"
#include "plan_choose.hpp"
#include "plan_ranks.hpp"
#include "plan_time.hpp"
#include "program.hpp"
#include "serial_program.hpp"

namespace {

using namespace ostrakon;

constexpr const char* usage =
    R"(usage: ostrakon-plan DECK [options]

Shows what a training step of DECK needs of each rank: the strategy and whether its sums are
bitwise equal to 1 rank; memory by category and by unit at the peak; collectives and messages, their
number and sizes, and what is sent inside a node and across nodes; what is copied between host and
device memory; how much of it the plan lets overlap with computing; an estimate of the step's time,
tokens/s and MFU; actions and floating-point operations. Memory, traffic and operations are exact.
Starts no ranks, opens no data and takes none of the memory that it plans, so any number of ranks
can be planned anywhere.

  --ranks N                ranks to plan for (1)
  --ranks-per-node N       consecutive ranks of a node; default: parallel.ranks_per_node of the
                           deck; where it is 0 as many as the machine of --time has, or all ranks
  --device cpu|nvidia|gpu  what ranks compute on: CPUs; NVIDIA's GPUs from sm_80 on; others, where
                           attention goes through matrix products. They need workspaces of different
                           sizes. Default: what this build computes on; with --time what its file
                           says
  --set SECTION.KEY=VALUE  change a setting of the deck; may be given many times; of a key
                           that is given twice the last value counts
  --json                   write the whole plan as JSON instead: every buffer with its offset in
                           memory, every action with what it uses and waits for
  --svg FILE               draw the plan too: streams, actions and their waits, memory over the
                           step; of a pipeline also what each stage computes when, and its waits.
                           Writes FILE.json, which the Python package ostrakon_report draws
  --help, --version

  --time MACHINE.yaml      show, instead, how long a step takes on the machine that a file
                           describes, such as machines/h100-infiniband.yaml: with a range, what
                           each stream does, where the time goes, what would help
  --sweep ranks=8,64,512   with --time: on each of these numbers of ranks
  --scaling weak|strong    with --sweep: weak, the global batch grows with the ranks, from the
                           deck's on the fewest (default), or strong, it stays
  --csv                    with --sweep: as CSV. --json also goes with --time; --svg draws the
                           step true in time, with --sweep the efficiency
  --html FILE              with --time: what it shows and --svg draws, as a page
  --trace FILE             with --time and --svg or --html: the trace.json of a run, drawn beside

  --choose                 show, instead, the settings with which a step is fastest on the machine of
                           --time, or at the rates below, and how much faster than the deck as it
                           stands; commands with them; the next of other kinds. No bit of results is
                           changed by them
  --memory BYTES           with --choose: most that the arena of a rank may take, for training,
                           validation and writing weights, such as 72GiB; default: the machine's
                           memory but for a sixteenth, if its file says how much it has
  --host-bytes BYTES       with --choose: most that its arena in host memory may take; default: any
  --any-precision          with --choose: other precision.gather and precision.reduce, and any
                           training.micro_batch_size, too: bits of results change
  --output FILE            with --choose: write the deck with these settings, too
  --exhaustive             with --choose: plan all settings instead of searching. It takes long

Rates for the estimate of time; the defaults are about a GPU's. For CPU cores give the rate of the
matrix product that ostrakon-bench kernels prints:
  --gflops N               rate at which a rank computes, in GFLOP/s (100000)
  --gigabytes-per-second N
                           rate at which a rank sends across nodes, in 10^9 bytes/s (25); inside a
                           node it is ten times that
  --copy-gigabytes-per-second N
                           rate at which a rank copies between host and device, each way (25)
  --host-gigabytes-per-second N
                           rate at which the host sums and updates arrays, each counted once
                           (12, about what one thread does)

The estimate simulates the plan: each action begins when its stream is free and all that it waits
for has ended, and takes its floating-point operations, or the bytes that it sends, copies or
processes on the host, over these rates. So it assumes that streams run concurrently, as with
runtime.streams: threads; inline, communication adds to the time. Concurrent collectives share a
link. All else takes no time, nor do latencies. MFU counts a step as three forwards, without
recomputation, relative to --gflops. --json has the estimate if one of the rates is given.

--choose varies
    parallel.sharding, shard_group, pipeline, schedule, pipeline_chunks, tensor, context, expert,
    accumulation, reshard_after_forward, hierarchical_collectives, forward_prefetch,
    backward_prefetch, in_flight_reductions, memory.activation_checkpointing;
    tensor, context and training.micro_batch_size only where that changes no bit (model.tensor_grain,
    training.context_grain, training.leaf);
    memory.offload and memory.activations only if nothing fits otherwise, on devices.
Keys that --set gives are kept, and so are those of a deck with parallel.choose. All that is shown
is of complete plans. docs/choosing.md.

Exit status: 0 done, 1 bad input or failure, also where nothing fits.
)";

struct CommandLine {
  std::string deck;
  std::vector<config::Override> overrides;
  int ranks = 1;
  int ranks_per_node = 0;       // 0: as the deck says
  config::Processor processor;  // --device
  bool json = false;
  std::string svg;
  std::string machine;     // --time
  std::vector<int> sweep;  // --sweep ranks=
  apps::Scaling scaling = apps::Scaling::weak;
  bool csv = false;
  std::string html, trace;
  bool chooses = false;  // --choose
  tune::Memory room;     // --memory, --host-bytes; 0: not given
  bool any_precision = false;
  std::string output;              // --output
  std::vector<std::string> place;  // options that say what a step runs on
  bool exhaustive = false;
  bool has_rates = false;  // any of the following is given
  double gflops = 100000.0;
  double gigabytes_per_second = 25.0;
  double copy_gigabytes_per_second = 25.0;
  double host_gigabytes_per_second = 12.0;

  plan::Rates rates() const {
    return {1e9 * gflops, 1e10 * gigabytes_per_second, 1e9 * gigabytes_per_second,
            1e9 * copy_gigabytes_per_second, 1e9 * host_gigabytes_per_second};
  }
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

/// "ranks=8,64,512".
std::vector<int> swept_ranks(const std::string& value) {
  const std::string key = "ranks=";
  require(value.rfind(key, 0) == 0, "--sweep ", value, ": expected ranks=, then numbers of ranks");
  std::vector<int> ranks;
  std::size_t begin = key.size();
  while (begin <= value.size()) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    ranks.push_back(positive("--sweep ranks", value.substr(begin, end - begin)));
    begin = end + 1;
  }
  return ranks;
}

std::int64_t bytes(const std::string& option, const std::string& value) {
  const config::Value read = config::parse_scalar(value);
  if (const auto plain = read.integer(1, std::int64_t{1} << 53)) return *plain;
  const auto limit = config::read_gather_limit(read);
  require(limit && limit->bytes > 0, option, " ", value,
          ": expected bytes, such as 80GiB or \"1.5 TB\"");
  return limit->bytes;
}

/// Throws Error: what was two searches is one.
[[noreturn]] void refuse_fit(const std::string& argument) {
  const std::string bytes = argument.rfind("--fit=", 0) == 0 ? argument.substr(6) : "BYTES";
  throw Error(text("--fit is --choose now: write --choose --memory ", bytes,
                   ", with --time MACHINE.yaml for a described machine; see ostrakon-plan --help"));
}

CommandLine parse(const apps::Arguments& arguments) {
  CommandLine line;
  std::set<std::string> given;
  apps::GivenOnce once;
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
    if (argument == "--csv") {
      line.csv = true;
      continue;
    }
    if (argument == "--choose") {
      line.chooses = true;
      continue;
    }
    if (argument == "--exhaustive") {
      line.exhaustive = true;
      continue;
    }
    if (argument == "--fit" && i + 1 < arguments.size()) refuse_fit("--fit=" + arguments[i + 1]);
    if (argument.rfind("--fit", 0) == 0) refuse_fit(argument);
    // "--ranks 8" or "--ranks=8"
    const std::size_t equals = argument.find('=');
    const std::string option = argument.substr(0, equals);
    require(option == "--set" || option == "--ranks" || option == "--ranks-per-node" ||
                option == "--device" || option == "--svg" || option == "--host-bytes" ||
                option == "--time" || option == "--html" || option == "--trace" ||
                option == "--sweep" || option == "--scaling" || option == "--memory" ||
                option == "--output" || option == "--gflops" ||
                option == "--gigabytes-per-second" || option == "--copy-gigabytes-per-second" ||
                option == "--host-gigabytes-per-second",
            "unknown option ", argument, "; see ostrakon-plan --help");
    require(equals != std::string::npos || i + 1 < arguments.size(), option,
            " needs a value after it");
    const std::string value =
        equals != std::string::npos ? argument.substr(equals + 1) : arguments[++i];
    if (option != "--set") once.add(option, value);
    given.insert(option);
    if (option == "--set") line.overrides.push_back(config::parse_override(value));
    // All but these say what a step runs on: ranks, a machine, rates.
    if (option != "--set" && option != "--memory" && option != "--host-bytes" &&
        option != "--output")
      line.place.insert(line.place.end(), {option, value});
    if (option == "--ranks") line.ranks = positive(option, value);
    if (option == "--ranks-per-node") line.ranks_per_node = positive(option, value);
    if (option == "--device") {
      const auto kernels = find_named(math::kernel_form_names, value);
      require(kernels.has_value(), "--device ", value, ": expected cpu, nvidia or gpu");
      line.processor = config::processor_with(*kernels);
    }
    if (option == "--svg" || option == "--html" || option == "--output")
      apps::require_output(option, value);
    if (option == "--svg") {
      require(!value.empty(), "--svg needs the name of a file");
      line.svg = value;
    }
    require(!value.empty() || (option != "--time" && option != "--html" && option != "--trace"),
            option, " needs the name of a file");
    if (option == "--time") line.machine = value;
    if (option == "--html") line.html = value;
    if (option == "--trace") line.trace = value;
    if (option == "--memory") line.room.device = bytes(option, value);
    if (option == "--host-bytes") line.room.host = bytes(option, value);
    if (option == "--output") {
      require(!value.empty(), "--output needs the name of a file");
      line.output = value;
    }
    if (option == "--sweep") line.sweep = swept_ranks(value);
    if (option == "--scaling") {
      require(value == "weak" || value == "strong", "--scaling ", value,
              ": expected weak or strong");
      line.scaling = value == "weak" ? apps::Scaling::weak : apps::Scaling::strong;
    }
    if (option == "--gflops") line.gflops = positive_number(option, value);
    if (option == "--gigabytes-per-second")
      line.gigabytes_per_second = positive_number(option, value);
    if (option == "--copy-gigabytes-per-second")
      line.copy_gigabytes_per_second = positive_number(option, value);
    if (option == "--host-gigabytes-per-second")
      line.host_gigabytes_per_second = positive_number(option, value);
  }
  for (const char* option : {"--gflops", "--gigabytes-per-second", "--copy-gigabytes-per-second",
                             "--host-gigabytes-per-second"})
    line.has_rates = line.has_rates || given.count(option) > 0;
  require(!line.machine.empty() || line.sweep.empty(), "--sweep goes with --time only");
  require(!line.sweep.empty() || (given.count("--scaling") == 0 && !line.csv),
          given.count("--scaling") > 0 ? "--scaling" : "--csv", " goes with --sweep only");
  require(line.sweep.empty() || given.count("--ranks") == 0,
          "--ranks and --sweep ranks= both say on how many ranks; expected one of them");
  require(line.machine.empty() || !line.has_rates,
          "--time takes rates from its file; leave out --gflops and the like");
  require(line.machine.empty() || given.count("--device") == 0,
          "--time's file says what ranks compute on; leave out --device");
  require(line.html.empty() || (!line.machine.empty() && line.sweep.empty()),
          "--html goes with --time, without --sweep");
  require(line.trace.empty() || (!line.machine.empty() && line.sweep.empty() &&
                                 !(line.svg.empty() && line.html.empty())),
          "--trace goes with --time and --svg or --html, without --sweep");
  require(!line.chooses || line.sweep.empty(), "--choose and --sweep don't go together");
  for (const char* option : {"--memory", "--host-bytes", "--output"})
    require(line.chooses || given.count(option) == 0, option, " goes with --choose only");
  require(line.chooses || !line.exhaustive, "--exhaustive goes with --choose only");
  require(!line.chooses || (line.svg.empty() && line.html.empty()),
          "--svg and --html draw one plan; --choose shows settings");
  require(!line.csv || !line.json, "--csv and --json: expected one of them");
  require(line.chooses || !line.any_precision, "--any-precision goes with --choose only");
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
  apps::require_reader(path);
  std::ofstream stream(path, std::ios::binary);
  require(stream.is_open(), path, ": can't be written: ", std::strerror(errno));
  stream << text;
  stream.close();
  require(stream.good(), path, ": can't be written to its end: ", std::strerror(errno));
}

std::vector<const plan::StepPlan*> plans_of(const std::vector<runtime::Program>& stages) {
  std::vector<const plan::StepPlan*> plans;
  for (const runtime::Program& stage : stages) plans.push_back(&stage.plan);
  return plans;
}

/// The programs of all stages, proven together.
std::vector<runtime::Program> prove(std::vector<plan::StepPlan> plans) {
  std::vector<runtime::Program> stages;
  for (plan::StepPlan& plan : plans) stages.push_back(runtime::make_program(std::move(plan)));
  if (stages.size() > 1) plan::prove_stages(plans_of(stages));
  return stages;
}

/// What the first rank of the stage that is shown submits to a device, where this build has the
/// form of its kernels: a host's says nothing about it.
void show_submissions(const config::Settings& settings, const model::Model& model,
                      const std::vector<runtime::Program>& stages, const runtime::Program& shown) {
  if (!on_device || settings.processor.kernels != math::kernel_form) return;
  std::vector<plan::StepPlan> plans;
  for (const runtime::Program& stage : stages) plans.push_back(stage.plan);
  const train::ShardLayout layout(plans, model, settings.optimizer,
                                  shown.plan.stage * shown.plan.grid.ranks_of_stage());
  const auto submitted = train::count_submissions(
      shown, layout, train::StepSettings(train::trainer_settings(settings), model));
  if (!submitted) {
    std::cout << "\nsubmitted in a step: not known before, as routing decides it\n";
    return;
  }
  std::cout << "\nsubmitted in a step: " << format_count(submitted->kernels) << " kernels, "
            << format_count(submitted->copies) << " copies, "
            << format_count(submitted->collectives) << " collectives, "
            << format_count(submitted->messages) << " messages, " << format_count(submitted->waits)
            << " waits of a stream for another\n";
}

/// Ranks of a node of the machine: as given, as the deck says, or as the machine has.
int ranks_of_machine(const config::Settings& settings, const CommandLine& line,
                     const simulate::Machine& machine) {
  if (line.ranks_per_node > 0) return line.ranks_per_node;
  return static_cast<int>(settings.ranks_per_node > 0 ? settings.ranks_per_node
                                                      : machine.ranks_per_node);
}

void show_time(config::Settings settings, CommandLine line) {
  const simulate::Machine machine =
      config::read_machine(apps::read_file(line.machine), line.machine);
  line.ranks_per_node = ranks_of_machine(settings, line, machine);
  settings.ranks_per_node = 0;
  settings.processor = config::processor_of(machine);
  if (line.sweep.empty()) {
    const int on_node =
        line.ranks_per_node > 0 ? std::min(line.ranks_per_node, line.ranks) : line.ranks;
    const apps::PlannedStep step = apps::plan_step(std::move(settings), line.ranks, on_node);
    apps::show_time(step, machine, line.json, std::cout);
    const std::string title =
        text(std::filesystem::path(line.deck).filename().string(), " on ", format_count(line.ranks),
             line.ranks == 1 ? " rank, " : " ranks, ", machine.name);
    std::cout << std::flush;
    if (line.svg.empty() && line.html.empty()) return;
    TextWriter data;
    apps::show_time(step, machine, true, data);
    const apps::Picture picture{"step", title, data.str(), line.trace};
    if (!line.svg.empty()) apps::draw(picture, line.svg, "svg");
    if (!line.html.empty()) apps::draw(picture, line.html, "html");
  } else {
    const apps::SweepFormat format = line.json  ? apps::SweepFormat::json
                                     : line.csv ? apps::SweepFormat::csv
                                                : apps::SweepFormat::table;
    const apps::Sweep sweep =
        apps::run_sweep(settings, line.sweep, line.ranks_per_node, line.scaling, machine);
    apps::show_sweep(sweep, format, std::cout);
    std::cout << std::flush;
    if (line.svg.empty()) return;
    TextWriter data;
    apps::show_sweep(sweep, apps::SweepFormat::json, data);
    apps::draw({"study", std::filesystem::path(line.deck).filename().string(), data.str()},
               line.svg, "svg");
  }
  std::cout << std::flush;
  require(std::cout.good(), "the output can't be written");
}

/// `machine`: the file of one; empty: the rates of the command line. Of a deck that says what to
/// choose for, its own keys are kept.
tune::Request choose_request(const config::Settings& settings, const CommandLine& line,
                             const std::string& machine) {
  tune::Request request;
  request.on.machine = machine.empty() ? simulate::machine_with(line.rates())
                                       : config::read_machine(apps::read_file(machine), machine);
  request.on.ranks = line.ranks;
  const int of_node = ranks_of_machine(settings, line, request.on.machine);
  request.on.ranks_per_node = of_node > 0 ? std::min(of_node, line.ranks) : line.ranks;
  request.room = line.room;
  request.any_precision = line.any_precision;
  request.is_exhaustive = line.exhaustive;
  request.threads = static_cast<int>(allowed_cores().size());
  for (const config::Override& setting : line.overrides) request.kept.insert(setting.first);
  if (!settings.choose.empty()) request.kept.insert(settings.given.begin(), settings.given.end());
  return request;
}

apps::ChooseLine choose_line(const CommandLine& line) {
  apps::ChooseLine said;
  said.deck = line.deck;
  said.output = line.output;
  said.place = line.place;
  for (const auto& [key, value] : line.overrides) said.settings.push_back(key + "=" + value);
  return said;
}

void show_choice(config::Settings settings, const CommandLine& line) {
  const tune::Request request = choose_request(settings, line, line.machine);
  if (!line.machine.empty()) settings.processor = config::processor_of(request.on.machine);
  const tune::Result choice = tune::choose(settings, request);
  apps::show_choice(choice, request, choose_line(line), line.json, std::cout);
  std::cout << std::flush;
  require(std::cout.good(), "the output can't be written");
  if (!line.output.empty())
    write_file(line.output, apps::chosen_deck(choice, request, choose_line(line)));
}

/// With what a run would choose.
config::Settings with_choice(const config::Settings& settings, const CommandLine& line) {
  if (settings.choose.empty()) return settings;
  require(line.sweep.empty(), "parallel.choose = ", settings.choose,
          ": --sweep takes settings as they are; add --set parallel.choose=");
  const tune::Request request = choose_request(settings, line, settings.choose);
  config::Settings best = tune::choose(settings, request).best.front().settings;
  best.choose.clear();
  return best;
}

void plan_deck(const CommandLine& line) {
  config::Settings settings =
      config::read_settings(apps::read_file(line.deck), line.deck, line.overrides);
  settings.processor = line.processor;
  if (line.chooses) return show_choice(std::move(settings), line);
  settings = with_choice(settings, line);
  if (!line.machine.empty()) return show_time(std::move(settings), line);
  const int ranks_per_node = place_ranks(settings, line);
  const plan::Policy policy = train::resolve(settings, line.ranks, ranks_per_node);
  const std::unique_ptr<model::Model> model = train::make_decoder(settings);
  const plan::ModelDescription description = train::describe(*model, settings.optimizer);
  const std::vector<plan::UnitRange> chunks =
      plan::find_chunks(description, line.ranks / policy.stages, policy);
  const auto write_plans = [&](plan::Purpose purpose) {
    return plan::build_stage_plans(description, chunks, line.ranks / policy.stages, policy,
                                   purpose);
  };
  const std::vector<runtime::Program> stages = prove(write_plans(plan::Purpose::train));
  // The JSON is that of a run, whose rank 0 writes the plan of its stage.
  const auto shown =
      line.json ? stages.begin()
                : std::max_element(stages.begin(), stages.end(),
                                   [](const runtime::Program& one, const runtime::Program& other) {
                                     return one.memory.arena_bytes < other.memory.arena_bytes;
                                   });
  const runtime::Program& program = *shown;
  plan::Report report =
      plan::make_report(program.plan, program.memory, program.host_memory, ranks_per_node);
  report.strategy = config::strategy(
      settings, program.plan.layouts.accumulation,
      {program.plan.grid.shard(), plan::may_have_levels(program.plan.grid, ranks_per_node)});
  report.computed_on = name_in(math::kernel_form_names, settings.processor.kernels);
  if (stages.size() > 1)
    for (const runtime::Program& stage : stages)
      report.stages.push_back(plan::summarize_stage(stage.plan, stage.memory.arena_bytes,
                                                    stage.host_memory.arena_bytes));
  plan::TimedStages timed;
  // The JSON without rates is what training writes as plan.json, which has none.
  const bool shows_times = !line.json || line.has_rates;
  if (shows_times || !line.svg.empty()) {
    plan::Estimate estimate;
    estimate.rates = line.rates();
    timed.plans = plans_of(stages);
    timed.timings = plan::estimate_times(timed.plans, ranks_per_node, estimate.rates);
    const std::vector<plan::Timing>& timings = timed.timings;
    estimate.timing = timings[static_cast<std::size_t>(shown - stages.begin())];
    for (std::size_t s = 0; s < report.stages.size(); ++s)
      report.stages[s].waiting = timings[s].waiting / timings[s].seconds;
    const apps::Throughput made = apps::throughput(settings, description, line.ranks,
                                                   estimate.timing.seconds, estimate.rates.flops);
    estimate.tokens_per_second = made.tokens_per_second;
    estimate.mfu = made.mfu;
    report.estimate = std::move(estimate);
  }
  const auto write_json = [&](std::ostream& out, bool with_times) {
    plan::Report written = report;
    if (!with_times) written.estimate.reset();
    plan::write_report_json(out, program.plan, program.memory, program.host_memory, written,
                            with_times ? timed : plan::TimedStages{});
  };
  if (line.json) {
    write_json(std::cout, shows_times);
  } else {
    // Nothing of these is run or shown: they need no proof.
    std::int64_t others = 0, others_on_host = 0;
    for (plan::Purpose purpose : {plan::Purpose::evaluate, plan::Purpose::export_parameters}) {
      for (const plan::StepPlan& other : write_plans(purpose)) {
        others = std::max(others, plan::plan_memory(other).arena_bytes);
        others_on_host =
            std::max(others_on_host, plan::plan_memory(other, plan::Space::host).arena_bytes);
      }
    }
    std::cout << plan::report_text(program.plan, report);
    show_submissions(settings, *model, stages, program);
    const auto show_more = [](const char* what, std::int64_t bytes, std::int64_t training_bytes) {
      if (bytes > training_bytes)
        std::cout << "\nvalidation or writing weights needs more: an arena " << what
                  << format_bytes(bytes) << "\n";
    };
    std::int64_t most = 0, most_on_host = 0;
    for (const runtime::Program& stage : stages) {
      most = std::max(most, stage.memory.arena_bytes);
      most_on_host = std::max(most_on_host, stage.host_memory.arena_bytes);
    }
    show_more("of ", others, most);
    show_more("on the host of ", others_on_host, most_on_host);
  }
  std::cout << std::flush;
  require(std::cout.good(), "the output can't be written");
  if (line.svg.empty()) return;
  const int ranks = program.plan.grid.ranks_of_stage();
  TextWriter data;
  write_json(data, true);
  apps::draw({"plan",
              text(std::filesystem::path(line.deck).filename().string(),
                   stages.size() > 1 ? text(", stage ", program.plan.stage) : "", ", each of ",
                   format_count(ranks), ranks == 1 ? " rank" : " ranks"),
              data.str()},
             line.svg, "svg");
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0) {
      std::cout << usage;
      return 0;
    }
    if (std::strcmp(argv[i], "--version") == 0) {
      std::cout << "ostrakon-plan " << version() << "\n";
      return 0;
    }
  }
  return apps::run_serial_program("ostrakon-plan", [&] {
    plan_deck(parse(apps::Arguments(argv + 1, argv + argc)));
    return 0;
  });
}
