// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --time, --sweep: step times on a machine that is described by a file.
#include "show.hpp"

#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/machine_checks.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/stack_file.hpp>
#include <ostrakon/plan/report/json_row.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/trainer/resolve.hpp>

#include "../common/draw.hpp"
#include "../common/program.hpp"

namespace ostrakon::apps::plan_program {
namespace {

using Json = nlohmann::ordered_json;
using simulate::Prediction;

double tokens_per_second(const PlannedStep& step, const Prediction& prediction) {
  return step.tokens / prediction.step_seconds;
}

/// Operations of a rank per second that count for MFU.
double flops_of_rank(const PlannedStep& step, const Prediction& prediction) {
  return step.model_flops / step.ranks / prediction.step_seconds;
}

/// The machine's name, and that of other software than Ostrakon.
std::string with_software(const simulate::Machine& machine) {
  return is_ostrakon(machine.stack) ? machine.name : text(machine.name, ", ", machine.stack.name);
}

std::vector<simulate::Improvement> improvements(const PlannedStep& step,
                                                const simulate::Machine& machine) {
  return simulate::find_improvements(
      step.plans(), machine, step.ranks_per_node,
      train::streams_of(step.settings, machine, step.ranks_per_node));
}

void show_streams(const PlannedStep& step, const Prediction& prediction, std::ostream& out) {
  const plan::StepPlan& plan = step.stages[static_cast<std::size_t>(prediction.busiest)];
  const plan::Timing& timing = prediction.timings[static_cast<std::size_t>(prediction.busiest)];
  std::array<double, plan::streams> busy{};
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    busy[static_cast<std::size_t>(plan.actions[a].stream)] += timing.ends[a] - timing.begins[a];
  out << "\nstreams           busy\n";
  for (int s = 0; s < plan::streams; ++s) {
    const double seconds = busy[static_cast<std::size_t>(s)];
    if (seconds > 0.0)
      out << print("  %-10s %10s  %5.1f %%\n", name(static_cast<plan::Stream>(s)),
                   seconds_text(seconds).c_str(), 100.0 * seconds / timing.seconds);
  }
  out << "\nnothing computes   " << seconds_text(timing.seconds - timing.computing) << ", while\n";
  for (const auto& [what, seconds] : {std::pair{"collectives run", timing.exposed_communication},
                                      std::pair{"the host works", timing.exposed_host},
                                      std::pair{"copies run", timing.exposed_copies},
                                      std::pair{"other stages are waited for", timing.waiting}})
    if (seconds > 0.0)
      out << print("  %-28s %10s  %5.1f %%\n", what, seconds_text(seconds).c_str(),
                   100.0 * seconds / timing.seconds);
}

/// What a step's JSON says of the actions on its chain, and of what would shorten it.
Json chain_and_remedies(const PlannedStep& step, const simulate::Machine& machine,
                        const Prediction& prediction) {
  Json critical = Json::array(), remedies = Json::array();
  for (const simulate::CriticalPart& part : prediction.critical)
    critical.push_back(
        {{"action", part.action}, {"seconds", part.seconds}, {"actions", part.actions}});
  for (const simulate::Improvement& remedy : improvements(step, machine))
    remedies.push_back({{"what", remedy.what}, {"step_seconds", remedy.step_seconds}});
  return {{"critical_path", critical}, {"twice_as_good", remedies}};
}

void show_as_json(const PlannedStep& step, const simulate::Machine& machine,
                  const Prediction& prediction, bool brief, std::ostream& out) {
  const plan::Timing& timing = prediction.timings[static_cast<std::size_t>(prediction.busiest)];
  Json json = {{"machine", machine.name},
               {"stack", step.stack.name},
               {"ranks", step.ranks},
               {"ranks_per_node", step.ranks_per_node},
               {"step_seconds", prediction.step_seconds},
               {"fastest_step_seconds", prediction.fastest},
               {"slowest_step_seconds", prediction.slowest},
               {"by_runs", prediction.by_runs},
               {"model_faster", prediction.by_model.faster},
               {"model_slower", prediction.by_model.slower},
               {"tokens_per_second", tokens_per_second(step, prediction)},
               {"flops_per_second_of_rank", flops_of_rank(step, prediction)},
               {"mfu", prediction.mfu},
               {"computed_on", name_in(math::kernel_form_names, step.settings.processor.kernels)},
               {"computing_seconds", timing.computing},
               {"exposed_communication_seconds", timing.exposed_communication},
               {"exposed_host_seconds", timing.exposed_host},
               {"exposed_copies_seconds", timing.exposed_copies},
               {"waiting_seconds", timing.waiting},
               {"factors", factors_json(prediction.factors)},
               {"stage", prediction.busiest}};
  json["arena_bytes"] = step.arena_bytes;
  if (!step.audited.empty()) json["audited_step_seconds"] = step.audited_seconds(machine);
  if (brief) {
    out << json.dump(2) << "\n";
    return;
  }
  json.update(chain_and_remedies(step, machine, prediction));
  out << plan::without_end(json);
  plan::write_timelines(out, {step.plans(), prediction.timings});
  out << "\n}\n";
}

/// Warns of an MFU or a factor above 1 that follows from the machine's rates.
void warn_of_mfu(const config::Settings& settings, const simulate::Machine& machine,
                 const std::string& path, const Prediction& prediction) {
  const auto warn_above_1 = [&](const char* what, double value) {
    constexpr double rounding = 1e-9;
    if (value <= 1.0 + rounding) return;
    const std::string keys = config::join(
        config::keys_above_peak(machine, bytes_of(settings.precision.gather)), ", ", " and ");
    warn(program_name, path,
         {text(what, " is ", print("%.3g", value), keys.empty() ? "" : ": ", keys)});
  };
  warn_above_1("MFU", prediction.mfu);
  warn_above_1("the factor of kernels", prediction.factors.kernels);
}

void show_audited(const PlannedStep& step, const simulate::Machine& machine,
                  const Prediction& prediction, std::ostream& out) {
  const double seconds = step.audited_seconds(machine);
  const double longer = seconds / prediction.step_seconds - 1.0;
  out << "\naudited step       " << seconds_text(seconds)
      << print(", %.1f %% longer; one in %lld: %.2f %% of all", 100.0 * longer,
               static_cast<long long>(step.settings.runtime.audit),
               100.0 * longer / static_cast<double>(step.settings.runtime.audit));
}

void show_step(const PlannedStep& step, const simulate::Machine& machine,
               const Prediction& prediction, bool json, bool brief, std::ostream& out) {
  if (json) return show_as_json(step, machine, prediction, brief, out);
  const int nodes = (step.ranks + step.ranks_per_node - 1) / step.ranks_per_node;
  out << machine.name << ": " << counted(step.ranks, "rank") << " on " << counted(nodes, "node")
      << "\n";
  out << "computed on        " << name_in(math::kernel_form_names, step.settings.processor.kernels);
  if (!is_ostrakon(step.stack)) out << "\nsoftware           " << step.stack.name;
  const std::int64_t arena = step.arena_bytes;
  out << (is_ostrakon(step.stack) ? "\narena of a rank    " : "\nOstrakon's arena   ")
      << format_bytes(arena);
  if (machine.memory_bytes > 0 && arena > machine.memory_bytes)
    out << ", more than the " << format_bytes(machine.memory_bytes) << " that a device has";
  out << "\nstep               " << seconds_text(prediction.step_seconds);
  if (prediction.slowest > prediction.fastest)
    out << print(", in 19 of 20 cases %s to %s\n  runs differ by   +- %.1f %%\n",
                 seconds_text(prediction.fastest).c_str(), seconds_text(prediction.slowest).c_str(),
                 100.0 * prediction.by_runs)
        << print("  simulation off   -%.1f to +%.1f %%", 100.0 * prediction.by_model.faster,
                 100.0 * prediction.by_model.slower);
  if (!step.audited.empty()) show_audited(step, machine, prediction, out);
  const double tokens = tokens_per_second(step, prediction);
  out << print("\ntokens/s           %.6g, %.6g a rank\nTFLOP/s            %.6g a rank\n", tokens,
               tokens / step.ranks, 1e-12 * flops_of_rank(step, prediction))
      << print("MFU                %.1f %%\n", 100.0 * prediction.mfu);
  if (brief) return;
  if (step.stages.size() > 1)
    out << "\nof stage " << prediction.busiest << ", which computes longest:\n";
  show_streams(step, prediction, out);
  out << "\nwhere the step's time goes: factors of MFU\n";
  for (const auto& [name, factor] : list(prediction.factors))
    out << print("  %-15s %6.3f\n", name, factor);
  out << print("  %-15s %6.3f\n", "product", prediction.factors.product());
  out << "\nthe chain of actions that decides how long the step takes\n";
  for (const simulate::CriticalPart& part : prediction.critical)
    if (part.seconds >= 0.005 * prediction.step_seconds)
      out << print("  %-28s %10s  %5.1f %%  %d actions\n", part.action.c_str(),
                   seconds_text(part.seconds).c_str(),
                   100.0 * part.seconds / prediction.step_seconds, part.actions);
  const auto remedies = improvements(step, machine);
  if (remedies.empty()) return;
  out << "\nwhat would help\n";
  for (const simulate::Improvement& remedy : remedies)
    out << print("  %-46s %10s  %4.1f %% less\n", remedy.what.c_str(),
                 seconds_text(remedy.step_seconds).c_str(),
                 100.0 * (1.0 - remedy.step_seconds / prediction.step_seconds));
}

/// What --sweep shows.
enum class SweepFormat { table, csv, json };

struct SweepRow {
  int ranks = 1;
  std::int64_t batch = 0;
  std::int64_t arena = 0;
  Prediction prediction;
  double tokens_per_second = 0.0;
  double efficiency = 1.0;  ///< tokens/s of a rank, of those on the fewest ranks
};

/// The deck's step on several numbers of ranks, the fewest first. The deck's global batch is that
/// of the fewest ranks.
std::vector<SweepRow> run_sweep(const config::Settings& settings, const std::vector<int>& ranks,
                                int ranks_per_node, scaling::Scaling scaling,
                                const simulate::Machine& machine) {
  const int fewest = *std::min_element(ranks.begin(), ranks.end());
  std::vector<SweepRow> rows;
  for (const int count : ranks) {
    config::Settings on_ranks = settings;
    std::int64_t& batch = on_ranks.training.global_batch_size;
    if (scaling == scaling::Scaling::weak) {
      require(batch * count % fewest == 0, "--sweep ranks: weak scaling to ", count,
              " ranks multiplies training.global_batch_size = ", batch, " by ", count, " / ",
              fewest, ", which is no whole number");
      batch = batch * count / fewest;
    }
    const PlannedStep step =
        plan_step(on_ranks, count, std::min(count, ranks_per_node > 0 ? ranks_per_node : count),
                  machine.stack);
    SweepRow row;
    row.ranks = count;
    row.batch = batch;
    row.arena = step.arena_bytes;
    row.prediction = step.on(machine);
    row.tokens_per_second = tokens_per_second(step, row.prediction);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const SweepRow& a, const SweepRow& b) { return a.ranks < b.ranks; });
  for (SweepRow& row : rows)
    row.efficiency =
        row.tokens_per_second / row.ranks / (rows.front().tokens_per_second / rows.front().ranks);
  return rows;
}

Json row_json(const SweepRow& row) {
  return {{"ranks", row.ranks},
          {"global_batch_size", row.batch},
          {"step_seconds", row.prediction.step_seconds},
          {"fastest_step_seconds", row.prediction.fastest},
          {"slowest_step_seconds", row.prediction.slowest},
          {"tokens_per_second", row.tokens_per_second},
          {"efficiency", row.efficiency},
          {"mfu", row.prediction.mfu},
          {"arena_bytes", row.arena},
          {"factors", factors_json(row.prediction.factors)}};
}

/// A row of CSV, or with `names` the heading above it.
std::string csv_row(Json row, bool names) {
  const Json factors = row["factors"];
  row.erase("factors");
  row.update(factors);
  std::string line;
  for (const auto& [name, value] : row.items()) {
    const char* const format = name.find("second") == std::string::npos ? "%.4f" : "%.6g";
    line += (line.empty() ? "" : ",") + (names ? name
                                         : value.is_number_integer()
                                             ? value.dump()
                                             : print(format, value.get<double>()));
  }
  return line + "\n";
}

void show_rows(const std::vector<SweepRow>& rows, const simulate::Machine& machine,
               scaling::Scaling scaling_of_rows, SweepFormat format, std::ostream& out) {
  const char* const scaling = scaling::name(scaling_of_rows);
  if (format == SweepFormat::json) {
    Json json = Json::array();
    for (const SweepRow& row : rows) json.push_back(row_json(row));
    out << Json{{"machine", machine.name},
                {"stack", machine.stack.name},
                {"scaling", scaling},
                {"rows", json}}
               .dump(2)
        << "\n";
    return;
  }
  if (format == SweepFormat::csv) {
    out << csv_row(row_json(rows.front()), true);
    for (const SweepRow& row : rows) out << csv_row(row_json(row), false);
    return;
  }
  out << with_software(machine) << ", " << scaling << " scaling\n\n"
      << print("%8s %8s %11s %12s %11s %7s", "ranks", "batch", "step", "tokens/s", "efficiency",
               "MFU");
  for (const auto& [name, factor] : list(rows.front().prediction.factors))
    out << print(" %13s", name);
  out << "     arena\n";
  for (const SweepRow& row : rows) {
    out << print("%8d %8lld %11s %12.6g %9.1f %% %5.1f %%", row.ranks,
                 static_cast<long long>(row.batch),
                 seconds_text(row.prediction.step_seconds).c_str(), row.tokens_per_second,
                 100.0 * row.efficiency, 100.0 * row.prediction.mfu);
    for (const auto& [name, factor] : list(row.prediction.factors)) out << print(" %13.3f", factor);
    out << "  " << format_bytes(row.arena) << "\n";
  }
}

void show_sweep(const config::Settings& settings, const Line& line, int ranks_per_node,
                const simulate::Machine& machine) {
  const std::vector<SweepRow> rows =
      run_sweep(settings, line.sweep, ranks_per_node, line.scaling, machine);
  show_rows(rows, machine, line.scaling,
            line.json  ? SweepFormat::json
            : line.csv ? SweepFormat::csv
                       : SweepFormat::table,
            std::cout);
  std::cout << std::flush;
  const auto highest = std::max_element(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.prediction.mfu < b.prediction.mfu;
  });
  warn_of_mfu(settings, machine, line.machine, highest->prediction);
  if (line.svg.empty()) return;
  TextWriter data;
  show_rows(rows, machine, line.scaling, SweepFormat::json, data);
  draw({"study", file_name(line.deck), data.str()}, line.svg, "svg");
}

}  // namespace

simulate::Machine machine_of(const Line& line) {
  simulate::Machine machine = config::read_machine(read_file(line.machine), line.machine);
  if (!line.stack.empty()) machine.stack = config::read_stack(read_file(line.stack), line.stack);
  return machine;
}

void show_time(config::Settings settings, const Line& line) {
  const simulate::Machine machine = machine_of(line);
  warn(program_name, line.machine, config::keys_without_effect(machine));
  const int node = ranks_of_machine(settings, line, machine);
  if (machine.ranks_per_node > 0 && node > machine.ranks_per_node)
    warn(program_name, line.machine,
         {text("machine.ranks_per_node = ", machine.ranks_per_node, ", and this step has ", node,
               " ranks on a node, by the rates of a rank")});
  settings.ranks_per_node = 0;
  settings.processor = config::processor_of(machine);
  config::require_rates(settings, machine);
  if (!line.sweep.empty()) return show_sweep(settings, line, node, machine);
  const PlannedStep step =
      plan_step(std::move(settings), line.ranks, node > 0 ? std::min(node, line.ranks) : line.ranks,
                machine.stack);
  const Prediction prediction = step.on(machine);
  show_step(step, machine, prediction, line.json, line.brief, std::cout);
  std::cout << std::flush;
  warn_of_mfu(step.settings, machine, line.machine, prediction);
  if (line.svg.empty() && line.html.empty()) return;
  TextWriter data;
  show_step(step, machine, prediction, true, false, data);
  const std::string title =
      text(file_name(line.deck), " on ", counted(line.ranks, "rank"), ", ", with_software(machine));
  const Picture picture{"step", title, data.str(), line.trace};
  if (!line.svg.empty()) draw(picture, line.svg, "svg");
  if (!line.html.empty()) draw(picture, line.html, "html");
}

}  // namespace ostrakon::apps::plan_program
