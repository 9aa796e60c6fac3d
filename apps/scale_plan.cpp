// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/new_file.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/wall_time.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/scaling/job_script.hpp>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <vector>

#include "output_file.hpp"
#include "plan_ranks.hpp"
#include "program.hpp"
#include "scale_commands.hpp"
#include "scale_predict.hpp"
#include "stage_plans.hpp"

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
  std::optional<std::int64_t> trace_steps;
  std::optional<Machine> machine;
  double time = 0.0;  ///< limit of a job, in seconds
  std::string job_template, template_name;
  std::string output;
};

/// What would be between two steps, or end a run early, is no part of a study.
constexpr const char* switched_off[] = {"training.validate_every", "training.time_limit_minutes",
                                        "checkpoint.every", "output.digest_every",
                                        "runtime.wall_time"};

config::Override read_override(const std::string& setting) {
  const config::Override override = config::parse_override(setting);
  const std::string& key = override.first;
  for (const auto& [given, option] :
       {std::pair{"training.steps", "--steps"}, std::pair{"output.trace", "--trace-steps"}})
    require(key != given, "--set ", setting, ": the study sets ", key, "; expected ", option, " N");
  require(key != "output.directory", "--set ", setting,
          ": each run of the study has its own; expected --output DIR");
  for (const char* off : switched_off)
    require(key != off, "--set ", setting, ": the study sets ", key, " = 0; expected no other");
  return override;
}

template <class Enum, std::size_t count>
Enum choice(const CommandLine& arguments, const std::string& option, Enum otherwise,
            const Named<Enum> (&names)[count]) {
  const std::optional<std::string> given = arguments.text_option(option);
  if (!given) return otherwise;
  const std::optional<Enum> found = find_named(names, *given);
  std::string expected;
  for (const Named<Enum>& one : names) expected += text(expected.empty() ? "" : ", ", one.name);
  require(found.has_value(), option, " is ", shown(*given), "; expected one of ", expected);
  return *found;
}

std::int64_t at_least(const CommandLine& arguments, const std::string& option,
                      std::int64_t otherwise, std::int64_t least, std::int64_t most = 1000000) {
  const std::int64_t value = arguments.integer_option<std::int64_t>(option).value_or(otherwise);
  require(value >= least && value <= most, option, " is ", value, "; expected a whole number from ",
          least, " to ", most);
  return value;
}

Request read_request(int argc, char** argv) {
  std::vector<std::string> known = {"--ranks",    "--output",      "--scaling",  "--ranks-per-node",
                                    "--launcher", "--time",        "--template", "--steps",
                                    "--warmup",   "--trace-steps", "--repeat",   "--set"};
  known.insert(known.end(), machine_options().begin(), machine_options().end());
  const CommandLine arguments(program, argc, argv, known, {}, {"--set"});
  Request request;
  Study& study = request.study;
  study.deck = arguments.one_file("plan", "deck");
  study.version = version();
  study.build = build();
  const std::optional<std::string> ranks = arguments.text_option("--ranks");
  require(ranks.has_value(),
          "--ranks is missing; expected numbers of ranks, such as --ranks 1,2,4");
  request.ranks = scaling::parse_ranks("--ranks", *ranks);
  study.scaling = choice(arguments, "--scaling", scaling::Scaling::strong, scaling::scaling_names);
  study.launcher =
      choice(arguments, "--launcher", scaling::Launcher::mpiexec, scaling::launcher_names);
  study.ranks_per_node = static_cast<int>(at_least(arguments, "--ranks-per-node", 0, 0));
  study.warmup = at_least(arguments, "--warmup", 2, 1);
  study.steps = at_least(arguments, "--steps", study.warmup + 20, study.warmup + 2);
  study.repeat = static_cast<int>(at_least(arguments, "--repeat", 1, 1, 1000));
  if (arguments.text_option("--trace-steps"))
    request.trace_steps = at_least(arguments, "--trace-steps", 0, study.warmup, study.steps - 1);
  for (const std::string& setting : arguments.text_options("--set"))
    request.overrides.push_back(read_override(setting));
  request.machine = read_machine(arguments);
  const std::string time = arguments.text_option("--time").value_or("01:00:00");
  const std::optional<double> seconds = config::parse_wall_time(time);
  require(seconds && *seconds > 0.0, "--time is ", shown(time),
          "; expected minutes, hours:minutes:seconds or days-hours, such as 02:00:00");
  request.time = *seconds;
  request.template_name = arguments.text_option("--template").value_or("");
  request.job_template = request.template_name.empty() ? scaling::job_template(study.launcher)
                                                       : read_file(request.template_name);
  request.output = arguments.text_option("--output").value_or("");
  require(!request.output.empty(), "--output DIR is missing; expected where to write the study");
  require_output("--output", request.output);
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
  for (const plan::Purpose purpose :
       {plan::Purpose::train, plan::Purpose::evaluate, plan::Purpose::export_parameters}) {
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
      size.prediction = predict(expected, ranks, planned.node, *request.machine);
    }
  } catch (const Error& error) {
    throw Error(text("on ", ranks, ranks == 1 ? " rank: " : " ranks: ", error.what()));
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

/// ostrakon-train of the same installation or build; else what PATH has.
std::string train_program() {
  std::error_code failure;
  const fs::path own = fs::read_symlink("/proc/self/exe", failure);
  if (failure) return "ostrakon-train";
  const fs::path found = own.parent_path() / "ostrakon-train";
  return fs::exists(found, failure) ? found.string() : "ostrakon-train";
}

/// The deck in the folder of its runs. What it reads is found from anywhere, what it writes is next
/// to it, so that a study may be moved before it is run.
std::string deck_of_run(const PlannedSize& planned, std::int64_t trace_steps) {
  config::Settings settings = config::with_absolute_paths(planned.settings);
  settings.output.directory = "run-1";
  settings.output.trace_steps = trace_steps;
  settings.runtime.paths_from = config::PathsFrom::deck;
  if (settings.ranks_per_node > 0) settings.ranks_per_node = planned.node;
  return text("# Written by ostrakon-scale plan, for ", planned.size.ranks,
              planned.size.ranks == 1 ? " rank.\n" : " ranks.\n", config::write_deck(settings));
}

void make_folder(const fs::path& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  require(!failure, "can't make folder '", path.string(), "': ", failure.message());
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
    job.program = train_program();
    scripts.push_back(scaling::render_template(request.job_template, job, request.template_name));
  }
  const fs::path folder = request.output;
  make_folder(folder);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const fs::path own = folder / sizes[i].size.folder;
    make_folder(own);
    replace_file((own / "deck.yaml").string(), deck_of_run(sizes[i], study.trace_steps));
    write_script(own / "job.sh", scripts[i]);
  }
  write_script(folder / "run-all.sh", scaling::run_all_script(study));
  // Last: a folder with it has all the rest.
  scaling::write_study(folder.string(), study);
}

void print_table(const Study& study) {
  const StudySize& base = study.sizes[0];
  std::cout << std::left << std::setw(8) << "ranks" << std::right << std::setw(6) << "nodes"
            << std::setw(8) << "batch" << std::setw(15) << "memory a rank" << std::setw(15)
            << "sent in node" << std::setw(15) << "across nodes" << std::setw(10) << "actions"
            << std::setw(16) << "predicted step" << std::setw(12) << "efficiency"
            << "\n";
  for (const StudySize& size : study.sizes) {
    std::cout << std::left << std::setw(8) << size.ranks << std::right << std::setw(6) << size.nodes
              << std::setw(8) << size.global_batch_size << std::setw(15)
              << format_bytes(size.memory_bytes) << std::setw(15)
              << format_bytes(size.bytes_inside_nodes) << std::setw(15)
              << format_bytes(size.bytes_across_nodes) << std::setw(10)
              << format_count(size.actions);
    if (!size.prediction) {
      std::cout << std::setw(16) << "no prediction" << std::setw(12) << "-"
                << "\n";
      continue;
    }
    const auto rate_of_rank = [](const StudySize& of) {
      return static_cast<double>(of.tokens_per_step) / of.ranks / of.prediction->seconds;
    };
    std::cout << std::setw(16) << print("%.4g s", size.prediction->seconds) << std::setw(12)
              << print("%.1f %%", 100.0 * rate_of_rank(size) / rate_of_rank(base)) << "\n";
  }
}

}  // namespace

void plan_study(int argc, char** argv) {
  const Request request = read_request(argc, argv);
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
  std::cout << scaling::name(study.scaling) << " scaling of " << printable(study.deck) << ", "
            << study.repeat << (study.repeat == 1 ? " run" : " runs") << " of " << study.steps
            << " steps on each number of ranks, steps 2 to " << study.trace_steps + 1
            << " traced\n\n";
  print_table(study);
  if (!request.machine) std::cout << "\nno prediction: give a machine file, --machine\n";
  const std::string folder = printable(shell_word(request.output));
  std::cout << "\nwritten into " << printable(request.output) << "; next:\n  bash " << folder
            << "/run-all.sh\n  ostrakon-scale collect " << folder << "\n  ostrakon-scale report "
            << folder << "\n";
}

}  // namespace ostrakon::apps::scale_program
