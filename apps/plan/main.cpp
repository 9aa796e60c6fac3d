// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan: what a deck needs and sends on any number of ranks, without starting them.
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/report/lifetimes.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/resolve.hpp>

#include "../common/draw.hpp"
#include "../common/program.hpp"
#include "show.hpp"

namespace ostrakon::apps::plan_program {
namespace {

/// Ranks of a node.
int place_ranks(const config::Settings& settings, const Line& line) {
  const bool given = line.ranks_per_node > 0;
  const std::int64_t of_deck = settings.ranks_per_node > 0 ? settings.ranks_per_node : line.ranks;
  const std::int64_t node = given ? line.ranks_per_node : of_deck;
  const char* const advice =
      given ? ""
            : ", and training refuses that; set parallel.ranks_per_node=0 to take nodes as they "
              "are, or plan for another machine with --ranks-per-node";
  require(line.ranks % node == 0 || (given && line.ranks < node),
          given ? "--ranks-per-node " : "parallel.ranks_per_node = ", node, " does not divide the ",
          counted(line.ranks, "rank"), advice);
  return static_cast<int>(std::min<std::int64_t>(node, line.ranks));
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

void show_submissions(const std::optional<train::Submissions>& submitted) {
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

/// A deck's training step, proven, and what is said of it.
struct Shown {
  config::Settings settings;
  int ranks_per_node;
  DeckPlans plans;
  std::vector<runtime::Program> stages;
  std::size_t stage = 0;  ///< the one that is shown
  plan::Report report = {};
  plan::TimedStages timed = {};

  const runtime::Program& program() const { return stages[stage]; }
  /// Only for ranks that compute on what this program counts kernels of.
  std::optional<train::Submissions> submissions() const {
    std::vector<plan::StepPlan> all;
    for (const runtime::Program& one : stages) all.push_back(one.plan);
    return submissions_of(settings, plans.model(), all, program());
  }
};

plan::Report report_of(const Shown& shown) {
  const runtime::Program& program = shown.program();
  plan::Report report =
      plan::make_report(program.plan, program.memory, program.host_memory, shown.ranks_per_node);
  report.model = config::model_rows(shown.settings);
  report.strategy = config::strategy(
      shown.settings, program.plan.layouts.accumulation,
      {program.plan.grid.shard(), plan::may_have_levels(program.plan.grid, shown.ranks_per_node)});
  report.computed_on = name_in(math::kernel_form_names, shown.settings.processor.kernels);
  if (shown.stages.size() > 1)
    for (const runtime::Program& stage : shown.stages)
      report.stages.push_back(plan::summarize_stage(stage.plan, stage.memory.arena_bytes,
                                                    stage.host_memory.arena_bytes));
  return report;
}

void add_times(Shown& shown, const Line& line) {
  plan::Estimate estimate;
  estimate.rates = line.rates();
  shown.timed.plans = plans_of(shown.stages);
  const std::vector<plan::Timing> timings = shown.timed.timings =
      plan::estimate_times(shown.timed.plans, shown.ranks_per_node, estimate.rates);
  estimate.timing = timings[shown.stage];
  for (std::size_t s = 0; s < shown.report.stages.size(); ++s)
    shown.report.stages[s].waiting = timings[s].waiting / timings[s].seconds;
  estimate.tokens_per_second = shown.plans.tokens() / estimate.timing.seconds;
  estimate.mfu =
      shown.plans.flops() / line.ranks / estimate.timing.seconds / estimate.rates.flops_per_second;
  shown.report.estimate = std::move(estimate);
}

/// Bytes of arenas: on the device, on the host.
struct Arenas : std::array<std::int64_t, 2> {
  void fit(std::int64_t on_device, std::int64_t on_host) {
    front() = std::max(front(), on_device);
    back() = std::max(back(), on_host);
  }
};

/// What the other steps of a run, validation and writing weights, need on each stage. Nothing of
/// these is run or shown: they need no proof.
std::vector<Arenas> other_arenas(const Shown& shown) {
  std::vector<Arenas> of_stages(shown.stages.size());
  std::vector<plan::Purpose> purposes = {plan::Purpose::evaluate, plan::Purpose::export_parameters};
  if (shown.settings.runtime.audit > 0) purposes.push_back(plan::Purpose::audit);
  for (const plan::Purpose purpose : purposes) {
    const std::vector<plan::StepPlan> others = shown.plans.of(purpose);
    for (std::size_t s = 0; s < of_stages.size(); ++s)
      of_stages[s].fit(plan::plan_memory(others.at(s)).arena_bytes,
                       plan::plan_memory(others.at(s), plan::Space::host).arena_bytes);
  }
  return of_stages;
}

/// Throws Error where a run would refuse the arenas of a rank.
void require_within_limit(const Shown& shown, std::vector<Arenas> of_stages) {
  const std::int64_t limit = shown.settings.memory_limit;
  if (limit == 0) return;
  const bool has_device = math::is_of_device(shown.settings.processor.kernels);
  std::int64_t most = 0;
  for (std::size_t s = 0; s < of_stages.size(); ++s) {
    Arenas& arenas = of_stages[s];
    arenas.fit(shown.stages[s].memory.arena_bytes, shown.stages[s].host_memory.arena_bytes);
    most = std::max(most, has_device ? arenas.front() : arenas.front() + arenas.back());
  }
  require(most <= limit, "memory.limit = ", format_bytes(limit), ": the ",
          has_device ? "arena of a rank takes " : "arenas of a rank, also on the host, take ",
          format_bytes(most),
          "; expected settings that take less: ostrakon-plan --choose --memory BYTES finds some");
}

/// Where other steps of a run need larger arenas than training.
void show_larger_arenas(const Shown& shown, const std::vector<Arenas>& of_stages) {
  const bool audited = shown.settings.runtime.audit > 0;
  Arenas trained{}, others{};
  for (const runtime::Program& stage : shown.stages)
    trained.fit(stage.memory.arena_bytes, stage.host_memory.arena_bytes);
  for (const Arenas& stage : of_stages) others.fit(stage.front(), stage.back());
  for (const std::size_t space : {0, 1})
    if (others[space] > trained[space])
      std::cout << "\nvalidation or writing weights" << (audited ? " or an audit" : "")
                << " needs more: an arena " << (space == 0 ? "of " : "on the host of ")
                << format_bytes(others[space]) << "\n";
}

/// What an audited step takes, by its plan.
void show_audits(const Shown& shown, const Line& line) {
  const std::int64_t every = shown.settings.runtime.audit;
  if (every == 0) return;
  const runtime::Program audited =
      runtime::make_program(std::move(shown.plans.of(plan::Purpose::audit).front()));
  const runtime::Program& step = shown.program();
  const auto seconds = [&](const plan::StepPlan& plan) {
    return plan::estimate_times({&plan}, shown.ranks_per_node, line.rates()).front().seconds;
  };
  const double longer = seconds(audited.plan) / seconds(step.plan) - 1.0;
  std::cout << "\naudits, one step in " << every << ": an audited step takes "
            << print("%.1f %% longer (%.2f %% of all)", 100.0 * longer,
                     100.0 * longer / static_cast<double>(every))
            << ", computes " << plan::format_flops(audited.plan.flops() - step.plan.flops())
            << " and sends " << format_bytes(audited.plan.bytes_sent() - step.plan.bytes_sent())
            << " more; its arena has " << format_bytes(audited.memory.arena_bytes) << ", after "
            << format_bytes(step.memory.arena_bytes) << "\n";
}

void write_json(const Shown& shown, bool with_times, std::ostream& out) {
  plan::Report report = shown.report;
  if (!with_times) report.estimate.reset();
  const runtime::Program& program = shown.program();
  plan::write_report_json(out, program.plan, program.memory, program.host_memory, report,
                          with_times ? shown.timed : plan::TimedStages{});
}

void draw_plan(const Shown& shown, const Line& line) {
  const plan::StepPlan& plan = shown.program().plan;
  const int ranks = plan.grid.ranks_of_stage();
  TextWriter data;
  write_json(shown, true, data);
  draw({"plan",
        text(file_name(line.deck), shown.stages.size() > 1 ? text(", stage ", plan.stage) : "",
             ", each of ", counted(ranks, "rank")),
        data.str()},
       line.svg, "svg");
}

void show_lifetimes(const Shown& shown, const Line& line) {
  const runtime::Program& program = shown.program();
  const std::vector<plan::Lifetime> lifetimes =
      plan::find_lifetimes(program.plan, program.memory, program.host_memory, line.why);
  if (line.json) {
    std::cout << plan::lifetimes_json(program.plan, lifetimes).dump(2) << "\n";
  } else {
    constexpr std::size_t most = 20;
    std::cout << plan::lifetimes_text(program.plan, program.memory, program.host_memory, lifetimes,
                                      most);
  }
  std::cout << std::flush;
}

void show_plan(config::Settings settings, const Line& line) {
  const int ranks_per_node = place_ranks(settings, line);
  DeckPlans plans(settings, line.ranks, ranks_per_node);
  std::vector<runtime::Program> stages = prove(plans.of(plan::Purpose::train));
  Shown shown{std::move(settings), ranks_per_node, std::move(plans), std::move(stages)};
  // The JSON is that of a run, whose rank 0 writes the plan of its stage.
  if (!line.json)
    shown.stage = static_cast<std::size_t>(
        std::max_element(shown.stages.begin(), shown.stages.end(),
                         [](const runtime::Program& one, const runtime::Program& other) {
                           return one.memory.arena_bytes < other.memory.arena_bytes;
                         }) -
        shown.stages.begin());
  if (line.kernels) {
    require_counted(shown.settings);
    const std::optional<train::Submissions> submitted = shown.submissions();
    require(submitted.has_value(),
            "--kernels: the kernels of a model with experts are not known before, as routing "
            "decides how many there are");
    show_kernels(shown.program().plan, *submitted, line.json, std::cout);
    std::cout << std::flush;
    return;
  }
  if (!line.why.empty()) return show_lifetimes(shown, line);
  const bool takes_others = !line.json || shown.settings.memory_limit > 0;
  const std::vector<Arenas> others = takes_others ? other_arenas(shown) : std::vector<Arenas>();
  shown.report = report_of(shown);
  // The JSON without rates is what training writes as plan.json, which has none.
  const bool shows_times = !line.json || line.has_rates;
  if (shows_times || !line.svg.empty()) add_times(shown, line);
  if (line.json) {
    write_json(shown, shows_times, std::cout);
  } else {
    std::cout << plan::report_text(shown.program().plan, shown.report);
    // A host cuts its work into other kernels, whose number says nothing.
    if (counts(shown.settings)) show_submissions(shown.submissions());
    show_audits(shown, line);
    show_larger_arenas(shown, others);
  }
  std::cout << std::flush;
  require_within_limit(shown, others);
  if (!line.svg.empty()) draw_plan(shown, line);
}

void plan_deck(const Line& line) {
  config::Settings settings =
      config::read_settings(read_file(line.deck), line.deck, line.overrides);
  settings.processor = line.device ? config::processor_with(*line.device) : config::Processor{};
  require(!math::is_8bit(settings.precision.products.dtype) ||
              settings.processor.kernels != math::KernelForm::device,
          "precision.products = ", math::name(settings.precision.products.dtype),
          ": found ranks that compute on gpu; expected auto, or --device nvidia or cpu");
  if (line.chooses) return show_choice(std::move(settings), line);
  settings = with_choice(settings, line);
  if (!line.machine.empty()) return show_time(std::move(settings), line);
  show_plan(std::move(settings), line);
}

}  // namespace
}  // namespace ostrakon::apps::plan_program

int main(int argc, char** argv) {
  using namespace ostrakon::apps;
  plan_program::Line line;
  return run_serial_program(plan_program::program_of(line, plan_program::plan_deck), argc, argv);
}
