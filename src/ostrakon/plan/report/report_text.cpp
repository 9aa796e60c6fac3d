// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/report/report_text.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <tuple>

namespace ostrakon::plan {
namespace {

std::string row(const std::string& what, const std::string& value) {
  return print("  %-28s %12s", what.c_str(), value.c_str());
}

/// Returns a row for a value of any length.
std::string text_row(const std::string& what, const std::string& value) {
  return print("  %-28s ", what.c_str()) + value + "\n";
}

double percent(double part, double whole) { return whole > 0.0 ? 100.0 * part / whole : 0.0; }

std::string model_text(const StepPlan& plan, const Report& report) {
  const std::vector<StageSummary>& stages = report.stages;
  std::string rows;
  for (const auto& [what, value] : report.model) rows += text_row(what, value);
  const Elements elements = count_elements(plan);
  const std::int64_t parameters = elements.parameters, frozen = plan.frozen_count;
  const std::int64_t padded = elements.padded, padding = padded - parameters;
  const std::size_t units = plan.units.size();
  std::int64_t all = 0;
  for (const StageSummary& stage : stages) all += stage.parameters;
  const std::string of_all = stages.empty() ? ""
                                            : row("parameters", format_count(all)) + "  in " +
                                                  std::to_string(stages.size()) +
                                                  text(" stages\nof stage ", plan.stage) + "\n";
  return "model\n" + of_all + row("parameters", format_count(parameters)) + "  in " +
         std::to_string(units) + (units == 1 ? " unit\n" : " units\n") +
         row("padded", format_count(padded)) + "  " + format_count(padding) +
         (padding == 1 ? " element" : " elements") + " of padding" +
         print(", %.3g %%\n",
               percent(static_cast<double>(padding), static_cast<double>(parameters))) +
         (frozen > 0 ? row("frozen", format_count(frozen)) + "  of them, never updated\n" : "") +
         rows;
}

std::string strategy_text(const std::vector<Setting>& strategy) {
  if (strategy.empty()) return "";
  std::string text = "strategy\n";
  for (const Setting& setting : strategy)
    text += text_row(setting.key, setting.value.empty() ? "none" : setting.value);
  std::string idle;
  for (const std::string& key : without_effect(strategy)) idle += (idle.empty() ? "" : ", ") + key;
  if (!idle.empty()) text += text_row("no effect with this sharding", idle);
  return text + "\n";
}

std::string sums_text(const StepPlan& plan) {
  const Layouts& layouts = plan.layouts;
  std::string text = text_row("sums over leaves", describe_sums(plan));
  const std::string cut = describe_cut_products(plan);
  if (!cut.empty()) text += text_row("", cut);
  const std::string why = why_grain_differs(plan);
  if (!why.empty()) text += text_row("", why);
  if (layouts.sum_grain > 0) text += text_row("order of sums", describe_grain(layouts.sum_grain));
  return text;
}

std::string units_table(const std::vector<UnitBytes>& units) {
  std::vector<int> columns;
  for (int c = 0; c < categories; ++c)
    if (std::any_of(units.begin(), units.end(),
                    [c](const UnitBytes& unit) { return unit.by_category[c] > 0; }))
      columns.push_back(c);
  // Heads of columns are single words.
  const char* const heads[categories] = {"parameters",  "optimizer", "gathered", "gradients",
                                         "activations", "workspace", "staging",  "other"};
  std::string table = print("  %-34s", "");
  for (int c : columns) table += print(" %12s", heads[c]);
  table += print(" %12s\n", "all");
  for (std::size_t first = 0, next = 0; first < units.size(); first = next) {
    for (next = first + 1;
         next < units.size() && units[next].by_category == units[first].by_category;)
      ++next;
    if (units[first].bytes == 0) continue;
    const std::string name = next - first == 1
                                 ? units[first].unit
                                 : units[first].unit + " ... " + units[next - 1].unit +
                                       ", each of " + std::to_string(next - first);
    table += print("  %-34s", name.c_str());
    for (int c : columns) {
      const std::int64_t bytes = units[first].by_category[c];
      table += print(" %12s", bytes > 0 ? format_bytes(bytes).c_str() : "");
    }
    table += print(" %12s\n", format_bytes(units[first].bytes).c_str());
  }
  return table;
}

std::string gradients_text(const GradientBytes& gradients) {
  std::string text;
  for (const auto& [what, bytes] :
       {std::pair("  of units in flight", gradients.in_flight),
        std::pair("  partial sums", gradients.partial_sums), std::pair("  sums", gradients.sums)})
    if (bytes > 0) text += row(what, format_bytes(bytes)) + "\n";
  return text;
}

std::string memory_text(const char* where, const MemoryUse& use) {
  std::string text = where + (" of a rank, most at " + use.peak_action) + "\n";
  for (int c = 0; c < categories; ++c) {
    const auto category = static_cast<Category>(c);
    if (use.peak_by_category[c] > 0)
      text += row(name(category), format_bytes(use.peak_by_category[c])) + "\n";
    if (category == Category::gradients) text += gradients_text(use.peak_gradients);
  }
  text += row("peak live bytes", format_bytes(use.lower_bound_bytes)) +
          "  lower bound of any placement\n";
  const double above = static_cast<double>(use.arena_bytes) /
                           static_cast<double>(std::max<std::int64_t>(use.lower_bound_bytes, 1)) -
                       1.0;
  text += row("arena", format_bytes(use.arena_bytes)) + print("  %.2f %% above\n", 100.0 * above);
  text += row("of it persistent", format_bytes(use.persistent_bytes)) + "\n";
  if (use.state_bytes > 0)
    text += row("state", format_bytes(use.state_bytes)) +
            "  parameters, moments and summed gradients\n";
  return text;
}

std::string peak_text(const MemoryUse& use) {
  return "\nlive bytes at the peak, by unit\n" + units_table(use.peak_by_unit);
}

std::string memory_text(const Report& report) {
  std::string text = memory_text("memory", report.device);
  const MemoryUse& host = report.host;
  // If units have nothing on the host, one line is enough.
  const bool is_plain = host.peak_by_unit.back().bytes == host.lower_bound_bytes;
  if (host.arena_bytes > 0 && is_plain)
    text +=
        row("arena on the host", format_bytes(host.arena_bytes)) +
        (report.checkpoint_bytes > 0 ? "  what is read from files, summed over ranks and saved\n"
                                     : "  what is read from files and summed over ranks\n");
  if (report.checkpoint_bytes > 0)
    text += row("copy for checkpoints", format_bytes(report.checkpoint_bytes)) +
            "  in host memory, written while training continues\n";
  text += peak_text(report.device);
  if (!is_plain) text += "\n" + memory_text("host memory", host) + peak_text(host);
  return text;
}

std::string sizes_row(const char* what, std::int64_t number, const Sizes& sizes) {
  return print("    %-26s %12s %12s %12s %12s\n", what, format_count(number).c_str(),
               format_bytes(sizes.smallest).c_str(), format_bytes(sizes.median).c_str(),
               format_bytes(sizes.largest).c_str());
}

std::string traffic_text(const Grid& grid, const Report& report) {
  std::string text = "traffic of a rank in a step";
  if (report.tensor.collectives + report.shard.collectives + report.replicate.collectives +
          report.kept.collectives ==
      0)
    return text + ": none\n";
  text += print("\n    %-26s %12s %12s %12s %12s\n", "", "number", "smallest", "median", "largest");
  for (const auto& [label, traffic] :
       {std::pair<const char*, const Traffic&>{"tensor group", report.tensor},
        {"shard group", report.shard},
        {"replicate group", report.replicate},
        {"groups kept after forward", report.kept}}) {
    if (traffic.collectives == 0) continue;
    text += print("  %s, %s ranks %s\n", label, format_count(traffic.ranks).c_str(),
                  traffic.spans_nodes ? "on several nodes" : "inside a node");
    text += sizes_row("collectives, whole arrays", traffic.collectives, traffic.array);
    text += sizes_row("messages, one rank's part", traffic.messages, traffic.message);
    text +=
        print("    %-26s %12s  %s across nodes\n", "sent", format_bytes(traffic.bytes_sent).c_str(),
              format_bytes(traffic.bytes_across_nodes).c_str());
    for (const TrafficOfSpan& level : traffic.levels)
      text += print("      %-24s %12s  over %s ranks%s\n",
                    level.spans_nodes ? "across nodes" : "inside nodes",
                    format_bytes(level.bytes_sent).c_str(), format_count(level.span.ranks).c_str(),
                    level.span.axis == Axis::tensor_shard ? ", tensor ranks among them"
                    : is_across_nodes(level.span) && grid.node == report.ranks_per_node
                        ? ", one of each node"
                        : "");
  }
  return text + row("sent inside a node", format_bytes(report.bytes_inside_nodes)) + "\n" +
         row("sent across nodes", format_bytes(report.bytes_across_nodes)) + "\n" +
         (report.bytes_left_out_if_even > 0
              ? row("of it in further rounds", format_bytes(report.bytes_left_out_if_even)) +
                    "  of experts: sent only where routing is uneven; in no time below\n"
              : "");
}

/// Returns "  1 copy" or "  1,200 copies".
std::string number_text(std::int64_t number, const char* one, const char* many) {
  return "  " + format_count(number) + " " + (number == 1 ? one : many);
}

std::string copies_text(const Report& report) {
  std::string text;
  for (const auto& [label, kind, bytes] :
       {std::tuple("copied to the device", Kind::copy_to_device, report.bytes_to_device),
        std::tuple("copied to the host", Kind::copy_to_host, report.bytes_to_host)})
    if (bytes > 0)
      text += row(label, format_bytes(bytes)) +
              number_text(report.actions[static_cast<int>(kind)], "copy", "copies") + "\n";
  if (report.bytes_on_host > 0)
    text += row("updated on the host", format_bytes(report.bytes_on_host)) +
            "  of masters, moments and gradients, read or written\n";
  return text.empty() ? "" : "between host and device in a step\n" + text + "\n";
}

std::string overlap_text(const OverlapBytes& overlap) {
  std::string text = "overlap that the waits allow";
  const bool sends = overlap.bytes_while_computing + overlap.bytes_while_nothing_computes > 0;
  const bool copies = overlap.copied_while_computing + overlap.copied_while_nothing_computes > 0;
  if (!sends && !copies) return text + ": nothing is sent\n";
  text += "\n";
  if (sends)
    text += row("sent while computing", format_bytes(overlap.bytes_while_computing)) +
            number_text(overlap.collectives_while_computing, "collective", "collectives") +
            print(", %.1f %% of the bytes", while_computing_percent(overlap)) +
            ": may overlap with a forward, a backward or an update\n" +
            row("sent while nothing computes", format_bytes(overlap.bytes_while_nothing_computes)) +
            number_text(overlap.collectives_while_nothing_computes, "collective", "collectives") +
            "\n";
  if (copies)
    text +=
        row("copied while computing", format_bytes(overlap.copied_while_computing)) +
        number_text(overlap.copies_while_computing, "copy", "copies") +
        print(", %.1f %% of the bytes\n", copied_while_computing_percent(overlap)) +
        row("copied while nothing computes", format_bytes(overlap.copied_while_nothing_computes)) +
        number_text(overlap.copies_while_nothing_computes, "copy", "copies") + "\n";
  if (overlap.most_units_gathered > 0)
    text += row("gathers in flight", format_bytes(overlap.most_bytes_in_flight)) +
            number_text(overlap.most_units_in_flight, "unit", "units") +
            " at most, not yet used or in first use\n" +
            row("gathered", format_bytes(overlap.most_bytes_gathered)) +
            number_text(overlap.most_units_gathered, "unit", "units") +
            " at most, with what stays after forward\n";
  return text;
}

struct FlopUnit {
  const char* name;
  double flops;
};

/// Returns the unit in which to show `flops`.
FlopUnit flop_unit(double flops) {
  constexpr FlopUnit units[] = {
      {"GFLOP", 1e9}, {"TFLOP", 1e12}, {"PFLOP", 1e15}, {"EFLOP", 1e18}, {"ZFLOP", 1e21}};
  const FlopUnit* unit = units;
  while (flops >= 1e5 * unit->flops && unit + 1 != std::end(units)) ++unit;
  return *unit;
}

std::string estimate_text(const std::optional<Estimate>& estimate, bool copies, bool on_host) {
  if (!estimate) return "";
  const Timing& timing = estimate->timing;
  const auto seconds = [](double value) { return print("%.4g s", value); };
  std::string text =
      "estimate, from streams and waits, " + rates_text(estimate->rates, copies, on_host) + "\n" +
      row("step", seconds(timing.seconds)) +
      print("  %s tokens/s, MFU %.1f %%\n",
            format_count(std::llround(estimate->tokens_per_second)).c_str(), 100.0 * estimate->mfu);
  for (const auto& [what, value] :
       {std::pair("computing", timing.computing),
        std::pair("exposed communication", timing.exposed_communication),
        std::pair("exposed work of the host", timing.exposed_host),
        std::pair("exposed copies", timing.exposed_copies),
        std::pair("waiting for stages", timing.waiting)})
    if (value > 0.0)
      text += row(what, seconds(value)) + print("  %.1f %%\n", percent(value, timing.seconds));
  return text + "\n";
}

std::string actions_text(const Report& report) {
  const double flops = std::accumulate(report.flops.begin(), report.flops.end(), 0.0);
  const FlopUnit unit = flop_unit(flops);
  std::string text = print("actions of a step\n  %-28s %12s %12s\n", "", "number", unit.name);
  for (int k = 0; k < kinds; ++k) {
    if (report.actions[k] == 0) continue;
    text += row(name(static_cast<Kind>(k)), format_count(report.actions[k]));
    if (report.flops[k] > 0.0) text += print(" %12.6g", report.flops[k] / unit.flops);
    text += "\n";
  }
  const std::int64_t actions =
      std::accumulate(report.actions.begin(), report.actions.end(), std::int64_t{0});
  return text + row("all", format_count(actions)) + print(" %12.6g\n", flops / unit.flops);
}

}  // namespace

std::string rates_text(const Rates& rates, bool with_copies, bool with_host) {
  const auto giga = [](double rate) { return print("%.6g", rate / 1e9); };
  std::string text = "at " + giga(rates.flops_per_second) + " GFLOP/s, " +
                     giga(rates.inside_node_bytes_per_second) + " GB/s inside a node, " +
                     giga(rates.across_node_bytes_per_second) + " GB/s across nodes";
  if (with_copies)
    text += ", " + giga(rates.copy_bytes_per_second) + " GB/s between host and device";
  if (with_host) text += ", " + giga(rates.host_bytes_per_second) + " GB/s where the host updates";
  return text;
}

std::string format_flops(double flops) {
  const FlopUnit unit = flop_unit(flops);
  return print("%.6g %s", flops / unit.flops, unit.name);
}

std::string collectives_text(const Grid& grid, int ranks_per_node) {
  if (!grid.has_levels()) return "";
  const std::string ranks = format_count(grid.node);
  return grid.node == ranks_per_node
             ? "inside nodes of " + ranks + " ranks, and across nodes"
             : "inside groups of " + ranks +
                   " ranks of a node, as training.sum_grain allows, and across them";
}

std::string stages_text(const std::vector<StageSummary>& stages, bool is_estimated,
                        const StepPlan& shown) {
  if (stages.empty()) return "";
  std::string text = "stages          arena      on host  to other stages          compute" +
                     std::string(is_estimated ? "  waiting" : "") + "  units\n";
  double waiting = 0.0;
  std::int64_t deferred = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageSummary& stage = stages[s];
    waiting += stage.waiting / static_cast<double>(stages.size());
    text += print("  %-6zu %12s %12s %16s %16s", s, format_bytes(stage.arena_bytes).c_str(),
                  format_bytes(stage.host_arena_bytes).c_str(),
                  format_bytes(stage.bytes_sent).c_str(), format_flops(stage.flops).c_str());
    if (is_estimated) text += print("  %5.1f %%", 100.0 * stage.waiting);
    text += "  " + stage.units;
    if (stage.stay_gathered > 0)
      text += print("; %d %s gathered", stage.stay_gathered,
                    stage.stay_gathered == 1 ? "stays" : "stay");
    if (stage.deferred > 0)
      text += print("; %s of %s backwards deferred", format_count(stage.deferred).c_str(),
                    format_count(stage.backwards).c_str());
    deferred += stage.deferred;
    text += "\n";
  }
  if (is_estimated)
    text += print(
        "  stages wait %.1f %% of the step for each other: the bubble, and what one has more to "
        "do\n",
        100.0 * waiting);
  if (shown.schedule == ScheduleKind::zero_bubble && deferred == 0)
    text +=
        "  zero_bubble defers nothing, and is 1f1b here: no unit can, or there is no memory for "
        "it\n";
  return text + print("  the following is of a rank of stage %d\n\n", shown.stage);
}

std::string experts_text(const StepPlan& plan, int ranks_per_node) {
  const ExpertCapacity capacity = expert_capacity(plan);
  if (capacity.rows == 0 || capacity.ranks == 1) return "";
  const int tensor = plan.grid.tensor();
  const bool on_one_node = ranks_per_node > 0 && ranks_per_node % capacity.ranks == 0;
  return text(format_count(capacity.ranks), " neighbours",
              tensor > 1 ? text(", ", tensor, " tensor ranks among them") : "",
              on_one_node ? "" : " on several nodes", ", room for ", format_count(capacity.rows),
              " rows from each to each; rounds: ", format_count(capacity.rounds_if_even),
              " if routing is even, ", format_count(capacity.most_rounds), " at most");
}

std::string updates_text(const StepPlan& plan) {
  if (plan.layouts.updates_optimistically) return optimistic_updates;
  return updates_early(plan) ? early_updates : "";
}

std::string report_text(const StepPlan& plan, const Report& report) {
  TextWriter text;
  text << model_text(plan, report) << "\n"
       << strategy_text(report.strategy) << "ranks\n"
       << row("ranks", format_count(plan.grid.ranks())) << "  " << format_count(report.nodes)
       << (report.nodes == 1 ? " node of " : " nodes of ") << format_count(report.ranks_per_node)
       << "\n"
       << (report.computed_on.empty() ? "" : text_row("computed on", report.computed_on))
       << text_row("order of ranks", describe_ranks(plan.grid))
       << row("shard group", format_count(plan.grid.shard())) << "  "
       << format_count(plan.grid.replicas())
       << (plan.grid.replicas() == 1 ? " replica" : " replicas") << " of the model\n"
       << (plan.grid.has_levels()
               ? text_row("collectives", collectives_text(plan.grid, report.ranks_per_node))
               : "")
       << (plan.grid.window > 0 ? text_row("inside nodes", "ranks read each other's memory") : "")
       << row("micro-batches", format_count(plan.grid.micro_batches())) << "  of a rank, gradients "
       << name(plan.layouts.accumulation) << "\n"
       << sums_text(plan)
       << (expert_capacity(plan).rows == 0
               ? ""
               : text_row("experts over ranks", experts_text(plan, report.ranks_per_node)))
       << (updates_text(plan).empty() ? "" : text_row("updates", updates_text(plan)))
       << row("hash of the plan", format_hex(plan.hash())) << "\n\n"
       << stages_text(report.stages, report.estimate.has_value(), plan) << memory_text(report)
       << "\n"
       << traffic_text(plan.grid, report) << "\n"
       << copies_text(report) << overlap_text(report.overlap) << "\n"
       << estimate_text(report.estimate, report.bytes_to_device + report.bytes_to_host > 0,
                        report.bytes_on_host > 0)
       << actions_text(report);
  return text.str();
}

}  // namespace ostrakon::plan
