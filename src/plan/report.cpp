// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostream>
#include <sstream>
#include <unordered_map>

namespace ostrakon::plan {
namespace {

using Json = nlohmann::ordered_json;

const char* name(Role role) {
  switch (role) {
    case Role::batch:
      return "batch";
    case Role::parameters:
      return "parameters";
    case Role::lender_parameters:
      return "lender_parameters";
    case Role::shard:
      return "shard";
    case Role::first_moment:
      return "first_moment";
    case Role::second_moment:
      return "second_moment";
    case Role::input:
      return "input";
    case Role::output:
      return "output";
    case Role::saved:
      return "saved";
    case Role::workspace:
      return "workspace";
    case Role::gradient:
      return "gradient";
    case Role::parameter_gradients:
      return "parameter_gradients";
    case Role::lender_gradients:
      return "lender_gradients";
    case Role::gradient_shard:
      return "gradient_shard";
    case Role::source:
      return "source";
    case Role::staging:
      return "staging";
    case Role::sums:
      return "sums";
  }
  return "?";
}

const char* name(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "read_write";
}

const char* name(Group group) { return group == Group::shard ? "shard" : "replicate"; }

const char* name(Part part) {
  return part == Part::whole ? "whole" : part == Part::group ? "group" : "rank";
}

const char* name(Accumulation accumulation) {
  switch (accumulation) {
    case Accumulation::automatic:
      return "auto";
    case Accumulation::reduce_each:
      return "reduce_each";
    case Accumulation::shard_each:
      return "shard_each";
    case Accumulation::reduce_last:
      return "reduce_last";
  }
  return "?";
}

const char* name(Purpose purpose) {
  switch (purpose) {
    case Purpose::train:
      return "train";
    case Purpose::evaluate:
      return "evaluate";
    case Purpose::export_parameters:
      return "export_parameters";
    case Purpose::decode:
      return "decode";
  }
  return "?";
}

std::string key(Category category) {
  std::string text = name(category);
  std::replace(text.begin(), text.end(), ' ', '_');
  return text;
}

/// As the arena takes them.
std::int64_t arena_bytes(const Buffer& buffer) {
  return (buffer.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

bool is_alive(const Buffer& buffer, int action) {
  return buffer.persistent || (buffer.first <= action && action <= buffer.last);
}

/// Index of the unit that a buffer belongs to, or -1: names begin with that of the unit.
class Owners {
 public:
  explicit Owners(const StepPlan& plan) {
    for (int u = 0; u < static_cast<int>(plan.unit_names.size()); ++u)
      units_.emplace(plan.unit_names[u], u);
  }
  int of(const Buffer& buffer) const {
    for (std::size_t end = buffer.name.find(' '); end != std::string::npos;
         end = buffer.name.find(' ', end + 1)) {
      const auto found = units_.find(buffer.name.substr(0, end));
      if (found != units_.end()) return found->second;
    }
    return -1;
  }

 private:
  std::unordered_map<std::string, int> units_;
};

std::vector<UnitBytes> alive_by_unit(const StepPlan& plan, int action) {
  const Owners owners(plan);
  std::vector<UnitBytes> units;
  for (const std::string& unit : plan.unit_names) units.push_back({unit, {}, 0});
  units.push_back({"-", {}, 0});
  for (const Buffer& buffer : plan.buffers) {
    if (!is_alive(buffer, action)) continue;
    const int owner = owners.of(buffer);
    UnitBytes& unit = owner < 0 ? units.back() : units[owner];
    unit.by_category[static_cast<int>(buffer.category)] += arena_bytes(buffer);
    unit.bytes += arena_bytes(buffer);
  }
  return units;
}

std::int64_t state_bytes(const StepPlan& plan) {
  const auto clip = std::find_if(plan.actions.begin(), plan.actions.end(),
                                 [](const Action& action) { return action.kind == Kind::clip; });
  if (plan.purpose != Purpose::train || clip == plan.actions.end()) return 0;
  const int when = static_cast<int>(clip - plan.actions.begin());
  std::int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (is_alive(buffer, when) &&
        (buffer.category == Category::parameters || buffer.category == Category::optimizer ||
         buffer.category == Category::gradients))
      bytes += arena_bytes(buffer);
  return bytes;
}

Traffic traffic(const StepPlan& plan, Group group, int ranks_per_node) {
  Traffic traffic;
  traffic.ranks = plan.size(group);
  // Shard groups are neighbours, so that they may lie evenly in nodes; a replicate group has a rank
  // in every shard group, so that it reaches as far as all ranks do.
  traffic.spans_nodes = traffic.ranks > 1 && plan.ranks > ranks_per_node &&
                        (group == Group::replicate || ranks_per_node % traffic.ranks != 0);
  traffic.bytes_sent = plan.bytes_sent(group);
  std::vector<std::int64_t> sizes;
  for (const Action& action : plan.actions)
    if (action.group == group && message_bytes(plan, action) > 0)
      sizes.push_back(message_bytes(plan, action));
  if (sizes.empty()) return traffic;
  std::sort(sizes.begin(), sizes.end());
  traffic.messages = static_cast<std::int64_t>(sizes.size());
  traffic.smallest = sizes.front();
  traffic.median = sizes[(sizes.size() - 1) / 2];
  traffic.largest = sizes.back();
  return traffic;
}

// ---- text

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

std::string row(const std::string& what, const std::string& value) {
  return print("  %-22s %12s", what.c_str(), value.c_str());
}

std::string units_table(const std::vector<UnitBytes>& units) {
  std::vector<int> columns;
  for (int c = 0; c < categories; ++c)
    if (std::any_of(units.begin(), units.end(),
                    [c](const UnitBytes& unit) { return unit.by_category[c] > 0; }))
      columns.push_back(c);
  // One word has to do for the head of a column.
  const char* const heads[categories] = {"parameters",  "optimizer", "gathered", "gradients",
                                         "activations", "workspace", "staging",  "other"};
  std::string table = print("  %-32s", "");
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
    table += print("  %-32s", name.c_str());
    for (int c : columns) {
      const std::int64_t bytes = units[first].by_category[c];
      table += print(" %12s", bytes > 0 ? format_bytes(bytes).c_str() : "");
    }
    table += print(" %12s\n", format_bytes(units[first].bytes).c_str());
  }
  return table;
}

std::string memory_text(const Report& report) {
  std::string text = "memory of a rank, most at " + report.peak_action + "\n";
  for (int c = 0; c < categories; ++c)
    if (report.peak_by_category[c] > 0)
      text += row(name(static_cast<Category>(c)), format_bytes(report.peak_by_category[c])) + "\n";
  text +=
      row("alive together", format_bytes(report.lower_bound_bytes)) + "  no layout needs less\n";
  const double above =
      static_cast<double>(report.arena_bytes) /
          static_cast<double>(std::max<std::int64_t>(report.lower_bound_bytes, 1)) -
      1.0;
  text +=
      row("arena", format_bytes(report.arena_bytes)) + print("  %.2f %% above\n", 100.0 * above);
  text += row("of it persistent", format_bytes(report.persistent_bytes)) + "\n";
  if (report.state_bytes > 0)
    text += row("state", format_bytes(report.state_bytes)) +
            "  parameters, moments and summed gradients\n";
  return text + "\nalive at the peak, by unit\n" + units_table(report.peak_by_unit);
}

std::string traffic_text(const Report& report) {
  std::string text = "traffic of a rank in a step";
  if (report.shard.messages + report.replicate.messages == 0) return text + ": none\n";
  text += print("\n  %-22s %12s %12s %12s %12s %12s %12s\n", "", "ranks", "messages", "smallest",
                "median", "largest", "sent");
  for (const auto& [label, traffic] :
       {std::pair<const char*, const Traffic&>{"shard group", report.shard},
        {"replicate group", report.replicate}}) {
    if (traffic.messages == 0) continue;
    text += print("  %-22s %12d %12s %12s %12s %12s %12s  %s\n", label, traffic.ranks,
                  format_count(traffic.messages).c_str(), format_bytes(traffic.smallest).c_str(),
                  format_bytes(traffic.median).c_str(), format_bytes(traffic.largest).c_str(),
                  format_bytes(traffic.bytes_sent).c_str(),
                  traffic.spans_nodes ? "across nodes" : "inside a node");
  }
  return text + row("sent inside a node", format_bytes(report.bytes_inside_nodes)) + "\n" +
         row("sent across nodes", format_bytes(report.bytes_across_nodes)) + "\n";
}

std::string actions_text(const Report& report) {
  std::string text = print("actions of a step\n  %-22s %12s %12s\n", "", "number", "GFLOP");
  for (int k = 0; k < kinds; ++k) {
    if (report.actions[k] == 0) continue;
    text += row(name(static_cast<Kind>(k)), format_count(report.actions[k]));
    if (report.flops[k] > 0.0) text += print(" %12.6g", report.flops[k] * 1e-9);
    text += "\n";
  }
  const double flops = std::accumulate(report.flops.begin(), report.flops.end(), 0.0);
  const std::int64_t actions =
      std::accumulate(report.actions.begin(), report.actions.end(), std::int64_t{0});
  return text + row("all", format_count(actions)) + print(" %12.6g\n", flops * 1e-9);
}

// ---- JSON

Json to_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (int c = 0; c < categories; ++c) json[key(static_cast<Category>(c))] = bytes[c];
  return json;
}

Json to_json(const Traffic& traffic) {
  return {{"ranks", traffic.ranks},
          {"spans_nodes", traffic.spans_nodes},
          {"messages", traffic.messages},
          {"bytes_sent", traffic.bytes_sent},
          {"smallest_message_bytes", traffic.smallest},
          {"median_message_bytes", traffic.median},
          {"largest_message_bytes", traffic.largest}};
}

Json memory_json(const MemoryPlan& memory, const Report& report) {
  Json units = Json::array();
  for (const UnitBytes& unit : report.peak_by_unit)
    units.push_back({{"unit", unit.unit == "-" ? Json() : Json(unit.unit)},
                     {"bytes", unit.bytes},
                     {"by_category", to_json(unit.by_category)}});
  return {{"arena_bytes", report.arena_bytes},
          {"lower_bound_bytes", report.lower_bound_bytes},
          {"persistent_bytes", report.persistent_bytes},
          {"state_bytes", report.state_bytes},
          {"peak_action", memory.peak_action},
          {"peak_action_name", report.peak_action},
          {"peak_by_category", to_json(report.peak_by_category)},
          {"peak_by_unit", units}};
}

Json actions_json(const Report& report) {
  Json json = Json::object();
  for (int k = 0; k < kinds; ++k)
    if (report.actions[k] > 0)
      json[name(static_cast<Kind>(k))] = {{"actions", report.actions[k]},
                                          {"flops", report.flops[k]}};
  return json;
}

Json buffer_json(const Buffer& buffer, std::int64_t offset) {
  return {{"name", buffer.name},
          {"category", key(buffer.category)},
          {"offset", offset},
          {"bytes", buffer.bytes},
          {"persistent", buffer.persistent},
          {"first_action", buffer.first},
          {"last_action", buffer.last}};
}

Json action_json(const StepPlan& plan, const Action& action) {
  const std::int64_t message = message_bytes(plan, action);
  Json uses = Json::array();
  for (const Use& use : action.uses)
    uses.push_back(
        {{"buffer", use.buffer}, {"role", name(use.role)}, {"access", name(use.access)}});
  return {{"name", plan.describe(action)},
          {"kind", name(action.kind)},
          {"stream", name(action.stream)},
          {"group", message > 0 ? Json(name(action.group)) : Json()},
          {"unit", action.unit < 0 ? Json() : Json(plan.unit_names[action.unit])},
          {"micro_batch", action.micro_batch < 0 ? Json() : Json(action.micro_batch)},
          {"elements", action.elements},
          {"message_bytes", message},
          {"flops", action.flops},
          {"uses", uses}};
}

}  // namespace

std::int64_t message_bytes(const StepPlan& plan, const Action& action) {
  switch (action.kind) {
    case Kind::gather:
    case Kind::reduce_scatter:
    case Kind::gather_gradients:
    case Kind::gather_updates:
      return action.elements * plan.element_bytes;
    default:
      return 0;
  }
}

std::vector<CategoryBytes> live_bytes(const StepPlan& plan) {
  std::vector<CategoryBytes> live(plan.actions.size() + 1);
  for (const Buffer& buffer : plan.buffers) {
    if (!buffer.persistent && buffer.first < 0) continue;
    const int category = static_cast<int>(buffer.category);
    live[buffer.persistent ? 0 : buffer.first][category] += arena_bytes(buffer);
    if (!buffer.persistent) live[buffer.last + 1][category] -= arena_bytes(buffer);
  }
  live.pop_back();
  for (std::size_t a = 1; a < live.size(); ++a)
    for (int c = 0; c < categories; ++c) live[a][c] += live[a - 1][c];
  return live;
}

Report make_report(const StepPlan& plan, const MemoryPlan& memory, int ranks_per_node) {
  Report report;
  report.arena_bytes = memory.arena_bytes;
  report.lower_bound_bytes = memory.peak_live_bytes;
  report.persistent_bytes = memory.persistent_bytes;
  report.state_bytes = state_bytes(plan);
  if (memory.peak_action >= 0) report.peak_action = plan.describe(plan.actions[memory.peak_action]);
  report.peak_by_category = memory.peak_by_category;
  report.peak_by_unit = alive_by_unit(plan, memory.peak_action);

  report.ranks_per_node = ranks_per_node > 0 ? std::min(ranks_per_node, plan.ranks) : plan.ranks;
  report.nodes = (plan.ranks + report.ranks_per_node - 1) / report.ranks_per_node;
  report.shard = traffic(plan, Group::shard, report.ranks_per_node);
  report.replicate = traffic(plan, Group::replicate, report.ranks_per_node);
  for (const Traffic& traffic : {report.shard, report.replicate})
    (traffic.spans_nodes ? report.bytes_across_nodes : report.bytes_inside_nodes) +=
        traffic.bytes_sent;

  for (const Action& action : plan.actions) {
    ++report.actions[static_cast<int>(action.kind)];
    report.flops[static_cast<int>(action.kind)] += action.flops;
  }
  return report;
}

std::string report_text(const StepPlan& plan, const Report& report) {
  std::ostringstream text;
  text << "ranks\n"
       << row("ranks", format_count(plan.ranks)) << "  " << format_count(report.nodes)
       << (report.nodes == 1 ? " node of " : " nodes of ") << format_count(report.ranks_per_node)
       << "\n"
       << row("shard group", format_count(plan.group_ranks)) << "  "
       << format_count(plan.replicas()) << (plan.replicas() == 1 ? " copy" : " copies")
       << " of the model\n"
       << row("micro-batches", format_count(plan.micro_batches)) << "  of a rank, gradients "
       << name(plan.accumulation) << "\n"
       << row("hash of the plan", format_hex(plan.hash())) << "\n\n"
       << memory_text(report) << "\n"
       << traffic_text(report) << "\n"
       << actions_text(report);
  return text.str();
}

void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const Report& report) {
  const Json head = {{"format", 1},
                     {"purpose", name(plan.purpose)},
                     {"hash", format_hex(plan.hash())},
                     {"ranks", plan.ranks},
                     {"nodes", report.nodes},
                     {"ranks_per_node", report.ranks_per_node},
                     {"shard_group_ranks", plan.group_ranks},
                     {"replicas", plan.replicas()},
                     {"stored", name(plan.stored)},
                     {"optimized", name(plan.optimized)},
                     {"accumulation", name(plan.accumulation)},
                     {"micro_batches", plan.micro_batches},
                     {"element_bytes", plan.element_bytes},
                     {"memory", memory_json(memory, report)},
                     {"traffic",
                      {{"bytes_inside_nodes", report.bytes_inside_nodes},
                       {"bytes_across_nodes", report.bytes_across_nodes},
                       {"shard_group", to_json(report.shard)},
                       {"replicate_group", to_json(report.replicate)}}},
                     {"flops", plan.flops()},
                     {"actions_by_kind", actions_json(report)}};
  // The lists are written line by line: as one document, those of long plans would take gigabytes.
  std::string text = head.dump(2);
  text.resize(text.size() - 2);  // without "\n}"
  out << text;
  const auto list = [&](const char* what, std::size_t count, const auto& item) {
    out << ",\n  \"" << what << "\": [";
    for (std::size_t i = 0; i < count; ++i)
      out << (i == 0 ? "\n    " : ",\n    ") << item(i).dump();
    out << "\n  ]";
  };
  list("units", plan.unit_names.size(), [&](std::size_t u) {
    return Json{{"name", plan.unit_names[u]}, {"padded_elements", plan.padded_elements[u]}};
  });
  list("buffers", plan.buffers.size(),
       [&](std::size_t b) { return buffer_json(plan.buffers[b], memory.offsets[b]); });
  list("actions", plan.actions.size(),
       [&](std::size_t a) { return action_json(plan, plan.actions[a]); });
  out << "\n}\n";
}

}  // namespace ostrakon::plan
