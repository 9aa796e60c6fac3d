// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/machine_checks.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/wall_time.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/scaling/job_script.hpp>
#include <ostrakon/scaling/study.hpp>
#include <ostrakon/trainer/resolve.hpp>

#include "../common/neighbour.hpp"
#include "../common/output_file.hpp"
#include "../common/planned_step.hpp"
#include "../common/program.hpp"
#include "plan.hpp"

namespace ostrakon::apps::scale_program {
namespace {

namespace fs = std::filesystem;
using scaling::Study;
using scaling::StudySize;

/// All that the command line says.
struct Request {
  Study study;
  std::vector<int> ranks;
  std::vector<config::Override> overrides;
  std::optional<std::int64_t> steps, trace_steps;
  std::string machine_file;
  std::optional<simulate::Machine> machine;
  double time = 3600.0;  ///< limit of a job, in seconds
  std::string job_template, template_name;
  std::string output;
};

constexpr std::int64_t most_steps = 1000000;
/// What would be between two steps, or end a run early, is no part of a study.
constexpr const char* switched_off[] = {"training.validate_every", "training.time_limit_minutes",
                                        "checkpoint.every", "output.digest_every",
                                        "runtime.wall_time"};

void require_free(const config::Override& override) {
  const auto& [key, value] = override;
  const std::string setting = text("--set ", key, "=", value);
  for (const auto& [given, option] :
       {std::pair{"training.steps", "--steps"}, std::pair{"output.trace", "--trace-steps"}})
    require(key != given, setting, ": the study sets ", key, "; expected ", option, " N");
  require(key != "output.directory", setting,
          ": each run of the study has its own; expected --output DIR");
  for (const char* off : switched_off)
    require(key != off, setting, ": the study sets ", key, " = 0; expected no other");
}

Value wall_time(double& to) {
  return {[&to](const std::string& value) {
    const std::optional<double> seconds = config::parse_wall_time(value);
    to = seconds.value_or(0.0);
    return to > 0.0 ? "" : "minutes, hours:minutes:seconds or days-hours, such as 02:00:00";
  }};
}

Value ranks(std::vector<int>& to) {
  return {[&to](const std::string& value) {
    to = scaling::parse_ranks("--ranks", value);
    return "";
  }};
}

/// What follows from what was given.
Request completed(Request request, const std::string& deck) {
  Study& study = request.study;
  study.deck = deck;
  study.version = version();
  study.build = build();
  study.steps = request.steps.value_or(study.warmup + 20);
  const auto within = [](const char* option, std::int64_t value, std::int64_t least,
                         std::int64_t most) {
    require(value >= least && value <= most, option, " ", value, ": expected an integer from ",
            least, " to ", most);
  };
  within("--steps", study.steps, study.warmup + 2, most_steps);
  if (request.trace_steps)
    within("--trace-steps", *request.trace_steps, study.warmup, study.steps - 1);
  for (const config::Override& override : request.overrides) require_free(override);
  if (!request.machine_file.empty()) {
    request.machine = config::read_machine(read_file(request.machine_file), request.machine_file);
    config::require_own_steps(*request.machine, "a study measures Ostrakon's own steps");
  }
  request.job_template = request.template_name.empty() ? scaling::job_template(study.launcher)
                                                       : read_file(request.template_name);
  return request;
}

/// Writes a time as the launcher's scripts take it.
std::string time_text(scaling::Launcher launcher, double seconds) {
  const auto all = static_cast<std::int64_t>(std::ceil(seconds));
  if (launcher == scaling::Launcher::slurm) return config::format_wall_time(seconds);
  if (launcher == scaling::Launcher::flux) return text((all + 59) / 60, "m");
  char written[48];
  std::snprintf(written, sizeof written, "%02lld:%02lld:%02lld", static_cast<long long>(all / 3600),
                static_cast<long long>(all / 60 % 60), static_cast<long long>(all % 60));
  return written;
}

/// The deck as a run of the study takes it, of a step with this many sequences; 0: as it is.
config::Settings read_study_deck(const Request& request, std::int64_t global_batch_size) {
  std::vector<config::Override> overrides = request.overrides;
  overrides.emplace_back("training.steps", text(request.study.steps));
  for (const char* off : switched_off) overrides.emplace_back(off, "0");
  if (global_batch_size > 0)
    overrides.emplace_back("training.global_batch_size", text(global_batch_size));
  return config::read_settings(read_file(request.study.deck), request.study.deck, overrides);
}

/// Ranks of a node, where there are `ranks` of them.
int ranks_of_node(const Request& request, const config::Settings& settings, int ranks) {
  const char* origin = "--ranks-per-node";
  std::int64_t node = request.study.ranks_per_node;
  if (node == 0) {
    origin = "parallel.ranks_per_node";
    node = settings.ranks_per_node;
  }
  if (node == 0 && request.machine) {
    origin = "--machine: ranks_per_node";
    node = request.machine->ranks_per_node;
  }
  if (node == 0 || node > ranks) node = ranks;
  require(ranks % node == 0, origin, " = ", node, " does not divide the ", ranks, " ranks");
  return static_cast<int>(node);
}

/// Exact figures of a step. `settings` are not placed on ranks yet.
void measure_plans(StudySize& size, const config::Settings& settings, int node) {
  const DeckPlans plans(settings, size.ranks, node);
  const auto stages = static_cast<std::size_t>(settings.pipeline);
  std::vector<std::int64_t> device(stages), host(stages);
  std::vector<plan::Purpose> purposes = {plan::Purpose::train, plan::Purpose::evaluate,
                                         plan::Purpose::export_parameters};
  if (settings.runtime.audit > 0) purposes.push_back(plan::Purpose::audit);
  for (const plan::Purpose purpose : purposes) {
    const std::vector<plan::StepPlan> of_stages = plans.of(purpose);
    for (std::size_t s = 0; s < of_stages.size(); ++s) {
      const plan::MemoryPlan memory = plan::plan_memory(of_stages[s]);
      const plan::MemoryPlan host_memory = plan::plan_memory(of_stages[s], plan::Space::host);
      device[s] = std::max(device[s], memory.arena_bytes);
      host[s] = std::max(host[s], host_memory.arena_bytes);
      if (purpose != plan::Purpose::train) continue;
      const plan::Report report = plan::make_report(of_stages[s], memory, host_memory, node);
      size.bytes_inside_nodes = std::max(size.bytes_inside_nodes, report.bytes_inside_nodes);
      size.bytes_across_nodes = std::max(size.bytes_across_nodes, report.bytes_across_nodes);
      size.actions = std::max(size.actions, static_cast<std::int64_t>(of_stages[s].actions.size()));
    }
  }
  for (std::size_t s = 0; s < stages; ++s)
    size.memory_bytes = std::max(size.memory_bytes, device[s] + host[s]);
}

/// How long a step of `settings`, which are not placed on ranks yet, takes. Throws Error where they
/// do not fit these ranks.
scaling::PredictedStep predict(const config::Settings& settings, int ranks, int ranks_per_node,
                               const simulate::Machine& machine) {
  const simulate::Prediction found = plan_step(settings, ranks, ranks_per_node, {}).on(machine);
  // Factors are those of the ranks that compute longest, as where they are measured.
  const plan::Timing& longest = found.timings[static_cast<std::size_t>(found.busiest)];
  const double host = longest.exposed_host + machine.step_seconds;
  // What all wait for the slowest rank shows in collectives. Where none is slower, rounding may
  // leave a difference below 0.
  const double late = std::max(0.0, found.step_seconds - longest.seconds - machine.step_seconds);
  return {found.step_seconds,
          longest.computing,
          longest.exposed_communication + late,
          host,
          longest.exposed_copies,
          longest.waiting,
          machine.name};
}

/// A size of the study and its deck, less the steps to trace.
struct PlannedSize {
  StudySize size;
  config::Settings settings;
  int node = 1;  ///< ranks of one
};

PlannedSize plan_size(const Request& request, std::int64_t global_batch_size, int ranks) {
  PlannedSize planned;
  planned.settings = read_study_deck(request, global_batch_size);
  StudySize& size = planned.size;
  size.ranks = ranks;
  size.folder = text("ranks-", ranks);
  try {
    planned.node = ranks_of_node(request, planned.settings, ranks);
    size.nodes = ranks / planned.node;
    const config::TrainingSettings& training = planned.settings.training;
    size.global_batch_size = training.global_batch_size;
    size.tokens_per_step = training.global_batch_size * training.sequence_length;
    // Where this build runs; its time is the machine's.
    measure_plans(size, planned.settings, planned.node);
    if (request.machine) {
      config::Settings expected = planned.settings;
      expected.processor = config::processor_of(*request.machine);
      config::require_rates(expected, *request.machine);
      size.prediction = predict(expected, ranks, planned.node, *request.machine);
    }
  } catch (const Error& error) {
    throw Error(text("on ", counted(ranks, "rank"), ": ", error.what()));
  }
  return planned;
}

/// All steps, but no more events than tools read quickly; three steps that count in any case.
std::int64_t steps_to_trace(const Study& study, const std::vector<PlannedSize>& sizes) {
  constexpr std::int64_t most_events = 200000;
  std::int64_t events = 1;  // of a step
  for (const PlannedSize& planned : sizes)
    events = std::max(events, planned.size.actions * planned.size.ranks);
  // The first step is in no trace.
  return std::min(study.steps - 1, std::max(most_events / events, study.warmup + 2));
}

/// The deck in the folder of its runs. What it reads is found from anywhere, what it writes is next
/// to it, so that a study may be moved before it is run.
std::string deck_of_run(const PlannedSize& planned, std::int64_t trace_steps) {
  config::Settings settings = config::with_absolute_paths(planned.settings);
  settings.output.directory = "run-1";
  settings.output.trace_steps = trace_steps;
  settings.runtime.paths_from = config::PathsFrom::deck;
  if (settings.ranks_per_node > 0) settings.ranks_per_node = planned.node;
  return text("# Written by ostrakon-scale plan, for ", counted(planned.size.ranks, "rank"), ".\n",
              config::write_deck(settings));
}

void write_script(const fs::path& path, const std::string& script) {
  replace_file(path.string(), script);
  std::error_code failure;
  fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add, failure);
  require(!failure, "can't make '", path.string(), "' executable: ", failure.message());
}

void write_all(const Request& request, const Study& study, const std::vector<PlannedSize>& sizes) {
  std::vector<std::string> scripts;  // all of them before anything is written
  for (const PlannedSize& planned : sizes) {
    scaling::Job job;
    job.name = text("ostrakon-", planned.size.ranks);
    job.ranks = planned.size.ranks;
    job.nodes = planned.size.nodes;
    job.ranks_of_node = planned.node;
    job.repeat = study.repeat;
    job.time = time_text(study.launcher, request.time);
    job.program = neighbour("ostrakon-train");
    scripts.push_back(scaling::render_template(request.job_template, job, request.template_name));
  }
  const fs::path folder = request.output;
  make_folder(request.output);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const fs::path own = folder / sizes[i].size.folder;
    make_folder(own.string());
    replace_file((own / "deck.yaml").string(), deck_of_run(sizes[i], study.trace_steps));
    write_script(own / "job.sh", scripts[i]);
  }
  write_script(folder / "run-all.sh", scaling::run_all_script(study));
  // Last: a folder with it has all the rest.
  scaling::write_study(folder.string(), study);
}

void print_table(const Study& study) {
  std::vector<Words> rows = {{"ranks", "nodes", "batch", "memory a rank", "sent in node",
                              "across nodes", "actions", "predicted step", "efficiency"}};
  const auto rate_of_rank = [](const StudySize& of) {
    return static_cast<double>(of.tokens_per_step) / of.ranks / of.prediction->seconds;
  };
  for (const StudySize& size : study.sizes) {
    rows.push_back({text(size.ranks), text(size.nodes), text(size.global_batch_size),
                    format_bytes(size.memory_bytes), format_bytes(size.bytes_inside_nodes),
                    format_bytes(size.bytes_across_nodes), format_count(size.actions),
                    "no prediction", "-"});
    if (!size.prediction) continue;
    rows.back()[7] = print("%.4g s", size.prediction->seconds);
    rows.back()[8] = print("%.1f %%", 100.0 * rate_of_rank(size) / rate_of_rank(study.sizes[0]));
  }
  constexpr int widths[] = {-8, 6, 8, 15, 15, 15, 10, 16, 12};
  for (const Words& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      std::cout << print("%*s", widths[c], row[c].c_str());
    std::cout << "\n";
  }
}

int plan_study(const Request& request) {
  const std::string existing = (fs::path(request.output) / "study.json").string();
  require(is_missing(existing), "'", existing,
          "' exists: the folder has a study already; expected another --output");
  const std::int64_t batch = read_study_deck(request, 0).training.global_batch_size;
  std::vector<std::int64_t> batches;  // of all sizes, before any is planned
  for (const int ranks : request.ranks)
    batches.push_back(scaling::global_batch(request.study.scaling, batch, request.ranks[0], ranks));
  std::vector<PlannedSize> sizes;
  for (std::size_t i = 0; i < batches.size(); ++i)
    sizes.push_back(plan_size(request, batches[i], request.ranks[i]));
  Study study = request.study;
  study.trace_steps = request.trace_steps.value_or(steps_to_trace(study, sizes));
  for (const PlannedSize& planned : sizes) study.sizes.push_back(planned.size);
  write_all(request, study, sizes);
  if (request.machine)
    warn("ostrakon-scale", request.machine_file, config::keys_without_effect(*request.machine));
  std::cout << scaling::name(study.scaling) << " scaling of " << printable(study.deck) << ", "
            << counted(study.repeat, "run") << " of " << study.steps
            << " steps on each number of ranks, steps 2 to " << study.trace_steps + 1
            << " traced\n\n";
  print_table(study);
  if (!request.machine) std::cout << "\nno prediction: give a machine file, --machine\n";
  const std::string folder = printable(shell_word(request.output));
  std::cout << "\nwritten into " << printable(request.output) << "; next:\n  bash " << folder
            << "/run-all.sh\n  ostrakon-scale collect " << folder << "\n  ostrakon-scale report "
            << folder << "\n";
  return 0;
}

}  // namespace

Command plan_command() {
  const auto line = std::make_shared<Request>();
  Study& study = line->study;
  study.warmup = 2;
  return {
      "plan",
      "DECK",
      "writes a study into the new folder DIR: for each number of ranks a folder such as "
      "DIR/ranks-4 with deck.yaml and a job script, job.sh; DIR/run-all.sh, which runs or submits "
      "all of them; and DIR/study.json. Prints what a rank needs and sends in a step on each "
      "number of ranks (exact), and how long a step is predicted to take. Starts no ranks",
      {{"--ranks", "N,N,...", required(ranks(line->ranks)), "numbers of ranks, increasing"},
       {"--output", "DIR", required(output(line->output)),
        "where to write; folders on the way are made"},
       {"--scaling", "strong|weak", choice(study.scaling, scaling::scaling_names),
        "strong: the same global batch on all ranks (default). weak: the deck's global batch is "
        "that of the fewest ranks, and grows with their number"},
       {"--ranks-per-node", "N", integer(study.ranks_per_node, 0, most_steps),
        "ranks of a node; default: parallel.ranks_per_node of the deck; where it is 0 as many as "
        "the machine of --machine has, or all ranks"},
       {"--launcher", "mpiexec|slurm|pbs|flux", choice(study.launcher, scaling::launcher_names),
        "what starts the ranks (mpiexec)"},
       {"--time", "LIMIT", wall_time(line->time),
        "of each job, such as 30 (minutes), 02:00:00 or 1-12 (01:00:00)"},
       {"--template", "FILE", word(line->template_name),
        "a job script of your own, with @PROGRAM@ where ostrakon-train stands and, where needed, "
        "@NAME@, @RANKS@, @NODES@, @RANKS_OF_NODE@, @TIME@, @REPEATS@"},
       {"--steps", "N", integer(line->steps, 1, most_steps), "steps of a run (22)"},
       {"--warmup", "N", integer(study.warmup, 1, most_steps),
        "steps at its begin that do not count (2)"},
       {"--trace-steps", "N", integer(line->trace_steps, 1, most_steps),
        "steps to record in trace.json, which the factors come from; default: all, or as many as "
        "make 200,000 events, but three that count"},
       {"--repeat", "N", integer(study.repeat, 1, 1000),
        "runs of each size, one after the other in its job (1)"},
       set_option(line->overrides),
       {"--machine", "FILE", word(line->machine_file),
        "step times are predicted for the machine that a file describes, as ostrakon-plan --time "
        "does; else there is no prediction"}},
      [line](const Given& given) { return plan_study(completed(*line, given.operands[0])); }};
}

}  // namespace ostrakon::apps::scale_program
