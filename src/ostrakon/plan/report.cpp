// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/order.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostream>
#include <sstream>
#include <tuple>
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
    case Role::target:
      return "target";
    case Role::packed:
      return "packed";
    case Role::staging:
      return "staging";
    case Role::sums:
      return "sums";
    case Role::ended:
      return "ended";
    case Role::host_batch:
      return "host_batch";
    case Role::host_sums:
      return "host_sums";
  }
  return "?";
}

const char* name(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "read_write";
}

const char* name(Part part) {
  return part == Part::whole ? "whole" : part == Part::group ? "group" : "rank";
}

const char* name(Segment segment) {
  return segment == Segment::frozen ? "frozen" : segment == Segment::trained ? "trained" : "both";
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

bool is_alive(const Buffer& buffer, Space space, int action) {
  return buffer.space == space &&
         (buffer.persistent || (buffer.first <= action && action <= buffer.last));
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

std::vector<UnitBytes> alive_by_unit(const StepPlan& plan, Space space, int action) {
  const Owners owners(plan);
  std::vector<UnitBytes> units;
  for (const std::string& unit : plan.unit_names) units.push_back({unit, {}, 0});
  units.push_back({"-", {}, 0});
  for (const Buffer& buffer : plan.buffers) {
    if (!is_alive(buffer, space, action)) continue;
    const int owner = owners.of(buffer);
    UnitBytes& unit = owner < 0 ? units.back() : units[owner];
    unit.by_category[static_cast<int>(buffer.category)] += arena_bytes(buffer);
    unit.bytes += arena_bytes(buffer);
  }
  return units;
}

std::int64_t state_bytes(const StepPlan& plan, Space space) {
  const auto clip = std::find_if(plan.actions.begin(), plan.actions.end(),
                                 [](const Action& action) { return action.kind == Kind::clip; });
  if (plan.purpose != Purpose::train || clip == plan.actions.end()) return 0;
  const int when = static_cast<int>(clip - plan.actions.begin());
  std::int64_t bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (is_alive(buffer, space, when) &&
        (buffer.category == Category::parameters || buffer.category == Category::optimizer ||
         buffer.category == Category::gradients))
      bytes += arena_bytes(buffer);
  return bytes;
}

MemoryUse use_of(const StepPlan& plan, const MemoryPlan& memory, Space space) {
  MemoryUse use;
  use.arena_bytes = memory.arena_bytes;
  use.lower_bound_bytes = memory.peak_live_bytes;
  use.persistent_bytes = memory.persistent_bytes;
  use.state_bytes = state_bytes(plan, space);
  if (memory.peak_action >= 0) use.peak_action = describe_at(plan, memory.peak_action);
  use.peak_by_category = memory.peak_by_category;
  if (memory.peak_action >= 0)
    use.peak_gradients = gradients_alive(plan, space, memory.peak_action);
  use.peak_by_unit = alive_by_unit(plan, space, memory.peak_action);
  return use;
}

// ---- traffic

Sizes sizes_of(std::vector<std::int64_t>& values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[(values.size() - 1) / 2], values.back()};
}

Traffic count_traffic(const StepPlan& plan, Group group) {
  Traffic traffic;
  traffic.bytes_sent = plan.bytes_sent(group);
  std::vector<std::int64_t> arrays, messages;
  for (const Action& action : plan.actions) {
    if (action.group != group || array_bytes(action) == 0) continue;
    arrays.push_back(array_bytes(action));
    messages.push_back(message_bytes(action));
    traffic.messages += action.group_ranks - 1;
  }
  traffic.collectives = static_cast<std::int64_t>(arrays.size());
  traffic.array = sizes_of(arrays);
  traffic.message = sizes_of(messages);
  return traffic;
}

void report_traffic(const StepPlan& plan, const Links& links, Report& report) {
  const std::array<Traffic*, groups> of_group = {&report.shard, &report.replicate, &report.kept};
  for (int g = 0; g < groups; ++g) {
    const auto group = static_cast<Group>(g);
    *of_group[g] = count_traffic(plan, group);
    of_group[g]->ranks = links.ranks(group);
    of_group[g]->spans_nodes = links.spans_nodes(group);
  }
  for (const Action& action : plan.actions) {
    const std::int64_t across = links.bytes_across_nodes(action);
    of_group[static_cast<int>(action.group)]->bytes_across_nodes += across;
    report.bytes_across_nodes += across;
  }
  report.bytes_inside_nodes = plan.bytes_sent() - report.bytes_across_nodes;
}

// ---- overlap

bool computes(const Action& action) {
  switch (action.kind) {
    case Kind::forward:
    case Kind::recompute:
    case Kind::backward:
    case Kind::direction:
    case Kind::orthogonalize:
    case Kind::optimize:
      return true;
    default:
      return false;
  }
}

/// What may run beside what, by binary search: along each stream, what happens before an action
/// comes first and what happens after it comes last.
class Beside {
 public:
  explicit Beside(const StepPlan& plan) : order_(plan) {
    for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
      if (computes(plan.actions[a]))
        computing_[static_cast<int>(plan.actions[a].stream)].push_back(a);
  }

  bool is_computed(int action) const {
    return std::any_of(computing_.begin(), computing_.end(), [&](const std::vector<int>& stream) {
      const auto first = std::partition_point(stream.begin(), stream.end(),
                                              [&](int c) { return order_.before(c, action); });
      return first != stream.end() && !order_.before(action, *first);
    });
  }

 private:
  const Order order_;
  std::array<std::vector<int>, streams> computing_;  // what each stream computes
};

/// What there is at most of things that come and go.
class Level {
 public:
  explicit Level(std::size_t actions) : changes_(actions + 1) {}

  /// Of `amount`, from action `first` to action `last`.
  void add(int first, int last, std::int64_t amount) {
    changes_[first] += amount;
    changes_[last + 1] -= amount;
  }

  std::int64_t most() const {
    std::int64_t now = 0, most = 0;
    for (std::int64_t change : changes_) most = std::max(most, now += change);
    return most;
  }

 private:
  std::vector<std::int64_t> changes_;
};

void report_gathered(const StepPlan& plan, Overlap& overlap) {
  const int actions = static_cast<int>(plan.actions.size());
  Level units_in_flight(actions), bytes_in_flight(actions), units(actions), bytes(actions);
  std::vector<int> gathered_at(plan.buffers.size(), -1);  // until it has been used
  for (int a = 0; a < actions; ++a) {
    const Action& action = plan.actions[a];
    for (const Use& use : action.uses) {
      const Buffer& buffer = plan.buffers[use.buffer];
      int& gathered = gathered_at[use.buffer];
      // What is in host memory whole is copied to where others are gathered.
      const bool begins = use.access == Access::write && action.stream != Stream::compute &&
                          buffer.category == Category::gathered;
      if (begins) {
        gathered = a;
        units.add(buffer.first, buffer.last, 1);
        bytes.add(buffer.first, buffer.last, buffer.bytes);
      } else if (gathered >= 0 && use.access == Access::read) {
        units_in_flight.add(gathered, a, 1);
        bytes_in_flight.add(gathered, a, buffer.bytes);
        gathered = -1;
      }
    }
  }
  overlap.most_units_in_flight = units_in_flight.most();
  overlap.most_bytes_in_flight = bytes_in_flight.most();
  overlap.most_units_gathered = units.most();
  overlap.most_bytes_gathered = bytes.most();
}

Overlap find_overlap(const StepPlan& plan) {
  Overlap overlap;
  report_gathered(plan, overlap);
  const Beside beside(plan);
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[a];
    const std::int64_t sent = plan.bytes_sent(action), copied = copied_bytes(action);
    if (sent == 0 && copied == 0) continue;
    const bool hidden = beside.is_computed(a);
    (hidden ? overlap.bytes_while_computing : overlap.bytes_while_nothing_computes) += sent;
    (hidden ? overlap.copied_while_computing : overlap.copied_while_nothing_computes) += copied;
    if (sent > 0)
      ++(hidden ? overlap.collectives_while_computing : overlap.collectives_while_nothing_computes);
    if (copied > 0)
      ++(hidden ? overlap.copies_while_computing : overlap.copies_while_nothing_computes);
  }
  return overlap;
}

// ---- text

template <class... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char line[256];
  std::snprintf(line, sizeof line, format, arguments...);
  return line;
}

std::string row(const std::string& what, const std::string& value) {
  return print("  %-28s %12s", what.c_str(), value.c_str());
}

/// For values as long as they like.
std::string text_row(const std::string& what, const std::string& value) {
  return print("  %-28s ", what.c_str()) + value + "\n";
}

double percent(double part, double whole) { return whole > 0.0 ? 100.0 * part / whole : 0.0; }

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

std::string model_text(const StepPlan& plan) {
  const std::int64_t parameters = sum(plan.parameter_elements), frozen = plan.frozen_count;
  const std::int64_t padded = sum(plan.padded_elements) + sum(plan.padded_frozen);
  const std::int64_t padding = padded - parameters;
  const std::size_t units = plan.unit_names.size();
  return "model\n" + row("parameters", format_count(parameters)) + "  in " + std::to_string(units) +
         (units == 1 ? " unit\n" : " units\n") + row("padded", format_count(padded)) + "  " +
         format_count(padding) + (padding == 1 ? " element" : " elements") + " of padding" +
         print(", %.3g %%\n",
               percent(static_cast<double>(padding), static_cast<double>(parameters))) +
         (frozen > 0 ? row("frozen", format_count(frozen)) + "  of them, never updated\n" : "");
}

std::vector<std::string> without_effect(const std::vector<Setting>& strategy) {
  std::vector<std::string> keys;
  for (const Setting& setting : strategy)
    if (!setting.has_effect) keys.push_back(setting.key);
  return keys;
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

std::string units_table(const std::vector<UnitBytes>& units) {
  std::vector<int> columns;
  for (int c = 0; c < categories; ++c)
    if (std::any_of(units.begin(), units.end(),
                    [c](const UnitBytes& unit) { return unit.by_category[c] > 0; }))
      columns.push_back(c);
  // One word has to do for the head of a column.
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
  text += row("alive together", format_bytes(use.lower_bound_bytes)) + "  no layout needs less\n";
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
  return "\nalive at the peak, by unit\n" + units_table(use.peak_by_unit);
}

std::string memory_text(const Report& report) {
  std::string text = memory_text("memory", report.device);
  const MemoryUse& host = report.host;
  // Where units have nothing on the host, one line will do.
  const bool is_plain = host.peak_by_unit.back().bytes == host.lower_bound_bytes;
  if (host.arena_bytes > 0 && is_plain)
    text +=
        row("arena on the host", format_bytes(host.arena_bytes)) +
        (report.checkpoint_bytes > 0 ? "  what is read from files, summed over ranks and saved\n"
                                     : "  what is read from files and summed over ranks\n");
  if (report.checkpoint_bytes > 0)
    text += row("copy for checkpoints", format_bytes(report.checkpoint_bytes)) +
            "  in host memory, written while training goes on\n";
  text += peak_text(report.device);
  if (!is_plain) text += "\n" + memory_text("host memory", host) + peak_text(host);
  return text;
}

std::string sizes_row(const char* what, std::int64_t number, const Sizes& sizes) {
  return print("    %-26s %12s %12s %12s %12s\n", what, format_count(number).c_str(),
               format_bytes(sizes.smallest).c_str(), format_bytes(sizes.median).c_str(),
               format_bytes(sizes.largest).c_str());
}

std::string traffic_text(const Report& report) {
  std::string text = "traffic of a rank in a step";
  if (report.shard.collectives + report.replicate.collectives + report.kept.collectives == 0)
    return text + ": none\n";
  text += print("\n    %-26s %12s %12s %12s %12s\n", "", "number", "smallest", "median", "largest");
  for (const auto& [label, traffic] :
       {std::pair<const char*, const Traffic&>{"shard group", report.shard},
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
  }
  return text + row("sent inside a node", format_bytes(report.bytes_inside_nodes)) + "\n" +
         row("sent across nodes", format_bytes(report.bytes_across_nodes)) + "\n";
}

/// "  1 copy", "  1,200 copies"
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

double part_percent(std::int64_t part, std::int64_t rest) {
  return percent(static_cast<double>(part), static_cast<double>(part + rest));
}

double while_computing_percent(const Overlap& overlap) {
  return part_percent(overlap.bytes_while_computing, overlap.bytes_while_nothing_computes);
}

double copied_while_computing_percent(const Overlap& overlap) {
  return part_percent(overlap.copied_while_computing, overlap.copied_while_nothing_computes);
}

std::string overlap_text(const Overlap& overlap) {
  std::string text = "overlap that the waits allow";
  const bool sends = overlap.bytes_while_computing + overlap.bytes_while_nothing_computes > 0;
  const bool copies = overlap.copied_while_computing + overlap.copied_while_nothing_computes > 0;
  if (!sends && !copies) return text + ": nothing is sent\n";
  text += "\n";
  if (sends)
    text += row("sent while computing", format_bytes(overlap.bytes_while_computing)) +
            number_text(overlap.collectives_while_computing, "collective", "collectives") +
            print(", %.1f %% of the bytes", while_computing_percent(overlap)) +
            ": a forward, a backward or an update may run beside it\n" +
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

/// The unit in which to show `flops`.
FlopUnit flop_unit(double flops) {
  constexpr FlopUnit units[] = {
      {"GFLOP", 1e9}, {"TFLOP", 1e12}, {"PFLOP", 1e15}, {"EFLOP", 1e18}, {"ZFLOP", 1e21}};
  const FlopUnit* unit = units;
  while (flops >= 1e5 * unit->flops && unit + 1 != std::end(units)) ++unit;
  return *unit;
}

std::string estimate_text(const std::optional<Estimate>& estimate, bool has_host) {
  if (!estimate) return "";
  const Timing& timing = estimate->timing;
  const auto seconds = [](double value) { return print("%.4g s", value); };
  std::string text =
      "estimate, from streams and waits, " + rates_text(estimate->rates, has_host) + "\n" +
      row("step", seconds(timing.seconds)) +
      print("  %s tokens/s, MFU %.1f %%\n",
            format_count(std::llround(estimate->tokens_per_second)).c_str(), 100.0 * estimate->mfu);
  for (const auto& [what, value] :
       {std::pair("computing", timing.computing),
        std::pair("exposed communication", timing.exposed_communication),
        std::pair("exposed work of the host", timing.exposed_host),
        std::pair("exposed copies", timing.exposed_copies)})
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

// ---- JSON

Json to_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (int c = 0; c < categories; ++c) json[key(static_cast<Category>(c))] = bytes[c];
  return json;
}

Json to_json(const Traffic& traffic) {
  return {{"ranks", traffic.ranks},
          {"spans_nodes", traffic.spans_nodes},
          {"collectives", traffic.collectives},
          {"messages", traffic.messages},
          {"bytes_sent", traffic.bytes_sent},
          {"bytes_across_nodes", traffic.bytes_across_nodes},
          {"smallest_array_bytes", traffic.array.smallest},
          {"median_array_bytes", traffic.array.median},
          {"largest_array_bytes", traffic.array.largest},
          {"smallest_message_bytes", traffic.message.smallest},
          {"median_message_bytes", traffic.message.median},
          {"largest_message_bytes", traffic.message.largest}};
}

Json to_json(const Overlap& overlap) {
  return {{"bytes_sent_while_computing", overlap.bytes_while_computing},
          {"collectives_while_computing", overlap.collectives_while_computing},
          {"percent_of_bytes_while_computing", while_computing_percent(overlap)},
          {"bytes_sent_while_nothing_computes", overlap.bytes_while_nothing_computes},
          {"collectives_while_nothing_computes", overlap.collectives_while_nothing_computes},
          {"bytes_copied_while_computing", overlap.copied_while_computing},
          {"copies_while_computing", overlap.copies_while_computing},
          {"percent_of_copied_bytes_while_computing", copied_while_computing_percent(overlap)},
          {"bytes_copied_while_nothing_computes", overlap.copied_while_nothing_computes},
          {"copies_while_nothing_computes", overlap.copies_while_nothing_computes},
          {"most_units_in_flight", overlap.most_units_in_flight},
          {"most_bytes_in_flight", overlap.most_bytes_in_flight},
          {"most_units_gathered", overlap.most_units_gathered},
          {"most_bytes_gathered", overlap.most_bytes_gathered}};
}

Json to_json(const std::vector<Setting>& strategy) {
  Json json = Json::object();
  for (const Setting& setting : strategy) json[setting.key] = setting.value;
  return json;
}

Json memory_json(const MemoryPlan& memory, const MemoryUse& use) {
  Json units = Json::array();
  for (const UnitBytes& unit : use.peak_by_unit)
    units.push_back({{"unit", unit.unit == "-" ? Json() : Json(unit.unit)},
                     {"bytes", unit.bytes},
                     {"by_category", to_json(unit.by_category)}});
  return {{"arena_bytes", use.arena_bytes},
          {"lower_bound_bytes", use.lower_bound_bytes},
          {"persistent_bytes", use.persistent_bytes},
          {"state_bytes", use.state_bytes},
          {"peak_action", memory.peak_action},
          {"peak_action_name", use.peak_action},
          {"peak_by_category", to_json(use.peak_by_category)},
          {"peak_gradients",
           {{"in_flight", use.peak_gradients.in_flight},
            {"partial_sums", use.peak_gradients.partial_sums},
            {"sums", use.peak_gradients.sums}}},
          {"peak_by_unit", units}};
}

Json to_json(const Estimate& estimate) {
  const Timing& timing = estimate.timing;
  return {{"flops_per_second", estimate.rates.flops},
          {"bytes_per_second_inside_nodes", estimate.rates.bytes_inside_nodes},
          {"bytes_per_second_across_nodes", estimate.rates.bytes_across_nodes},
          {"bytes_per_second_copied", estimate.rates.bytes_copied},
          {"bytes_per_second_on_host", estimate.rates.bytes_on_host},
          {"step_seconds", timing.seconds},
          {"computing_seconds", timing.computing},
          {"exposed_communication_seconds", timing.exposed_communication},
          {"exposed_host_seconds", timing.exposed_host},
          {"exposed_copies_seconds", timing.exposed_copies},
          {"tokens_per_second", estimate.tokens_per_second},
          {"mfu", estimate.mfu}};
}

Json actions_json(const Report& report) {
  Json json = Json::object();
  for (int k = 0; k < kinds; ++k)
    if (report.actions[k] > 0)
      json[name(static_cast<Kind>(k))] = {{"actions", report.actions[k]},
                                          {"flops", report.flops[k]}};
  return json;
}

/// One object on a line, for the lists that may be long: Json itself takes much longer.
class Line {
 public:
  Line& put(const char* field, std::int64_t value) {
    return put_text(field, std::to_string(value));
  }
  Line& put(const char* field, bool value) { return put_text(field, value ? "true" : "false"); }
  Line& put(const char* field, double value) {
    return put_text(field, value == 0.0 ? "0.0" : Json(value).dump());
  }
  Line& put(const char* field, const std::string& value) {
    return put_text(field, Json(value).dump());
  }
  /// A name without anything to escape.
  Line& put(const char* field, const char* value) {
    return put_text(field, '"' + std::string(value) + '"');
  }
  template <class Value>
  Line& put_or_null(const char* field, bool is_there, const Value& value) {
    return is_there ? put(field, value) : put_text(field, "null");
  }
  template <class Items, class Write>
  Line& put_list(const char* field, const Items& items, const Write& write) {
    begin(field);
    text_ += '[';
    for (const auto& item : items) {
      if (text_.back() != '[') text_ += ',';
      text_ += write(item);
    }
    text_ += ']';
    return *this;
  }

  std::string end() const { return text_ + '}'; }

 private:
  void begin(const char* field) {
    if (text_.size() > 1) text_ += ',';
    ((text_ += '"') += field) += "\":";
  }
  Line& put_text(const char* field, const std::string& value) {
    begin(field);
    text_ += value;
    return *this;
  }

  std::string text_ = "{";
};

/// Whether a buffer is laid out as a unit's flat parameter.
bool is_of_parameters(const Buffer& buffer) {
  return buffer.category == Category::parameters || buffer.category == Category::optimizer ||
         buffer.category == Category::gathered || buffer.category == Category::gradients;
}

std::string buffer_line(const Buffer& buffer, std::int64_t offset) {
  return Line()
      .put("name", buffer.name)
      .put("category", key(buffer.category))
      .put("space", name(buffer.space))
      .put("offset", offset)
      .put("bytes", buffer.bytes)
      .put("persistent", buffer.persistent)
      .put("first_action", std::int64_t{buffer.first})
      .put("last_action", std::int64_t{buffer.last})
      .put_or_null("part", is_of_parameters(buffer), name(buffer.part))
      .put_or_null("segment", is_of_parameters(buffer), name(buffer.segment))
      .end();
}

std::string action_line(const StepPlan& plan, const Action& action) {
  const bool in_group = array_bytes(action) > 0 || action.kind == Kind::keep;
  return Line()
      .put("name", plan.describe(action))
      .put("kind", name(action.kind))
      .put("stream", name(action.stream))
      .put_or_null("group", in_group, name(action.group))
      .put_or_null("group_ranks", in_group, std::int64_t{action.group_ranks})
      .put_or_null("unit", action.unit >= 0,
                   action.unit < 0 ? std::string() : plan.unit_names[action.unit])
      .put_or_null("micro_batch", action.micro_batch >= 0, std::int64_t{action.micro_batch})
      .put("elements", action.elements)
      .put("array_bytes", array_bytes(action))
      .put("message_bytes", message_bytes(action))
      .put("copied_bytes", copied_bytes(action))
      .put("flops", action.flops)
      .put_list("uses", action.uses,
                [](const Use& use) {
                  return Line()
                      .put("buffer", std::int64_t{use.buffer})
                      .put("role", name(use.role))
                      .put("access", name(use.access))
                      .end();
                })
      .put_list("waits", action.waits, [](int wait) { return std::to_string(wait); })
      .end();
}

}  // namespace

std::string rates_text(const Rates& rates, bool with_copies) {
  const auto giga = [](double rate) { return print("%.6g", rate / 1e9); };
  std::string text = "at " + giga(rates.flops) + " GFLOP/s, " + giga(rates.bytes_inside_nodes) +
                     " GB/s inside a node, " + giga(rates.bytes_across_nodes) +
                     " GB/s across nodes";
  if (with_copies)
    text += ", " + giga(rates.bytes_copied) + " GB/s between host and device, " +
            giga(rates.bytes_on_host) + " GB/s where the host updates";
  return text;
}

std::string format_flops(double flops) {
  const FlopUnit unit = flop_unit(flops);
  return print("%.6g %s", flops / unit.flops, unit.name);
}

bool updates_early(const StepPlan& plan) {
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::optimize) return true;
    if (action.kind == Kind::clip) return false;
  }
  return false;
}

std::string describe_at(const StepPlan& plan, int action) {
  const auto says_when = [&](int a) {
    switch (plan.actions[a].kind) {
      case Kind::gather:
      case Kind::keep:
      case Kind::release:
      case Kind::reduce_scatter:
      case Kind::accumulate:
      case Kind::norm:
      case Kind::copy_to_device:
      case Kind::copy_to_host:
        return false;
      default:
        return true;
    }
  };
  int when = action;
  while (when >= 0 && !says_when(when)) --when;
  const std::string text = plan.describe(plan.actions[action]);
  if (when < 0 || when == action) return text;
  return text + " after " + plan.describe(plan.actions[when]);
}

std::vector<CategoryBytes> live_bytes(const StepPlan& plan, Space space) {
  std::vector<CategoryBytes> live(plan.actions.size() + 1);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != space || (!buffer.persistent && buffer.first < 0)) continue;
    const int category = static_cast<int>(buffer.category);
    live[buffer.persistent ? 0 : buffer.first][category] += arena_bytes(buffer);
    if (!buffer.persistent) live[buffer.last + 1][category] -= arena_bytes(buffer);
  }
  live.pop_back();
  for (std::size_t a = 1; a < live.size(); ++a)
    for (int c = 0; c < categories; ++c) live[a][c] += live[a - 1][c];
  return live;
}

Report make_report(const StepPlan& plan, const MemoryPlan& memory, const MemoryPlan& host_memory,
                   int ranks_per_node) {
  Report report;
  report.device = use_of(plan, memory, Space::device);
  report.host = use_of(plan, host_memory, Space::host);

  const Links links(plan, ranks_per_node);
  report.ranks_per_node = links.ranks_per_node();
  report.nodes = (plan.ranks - 1) / report.ranks_per_node + 1;
  report_traffic(plan, links, report);
  report.bytes_to_device = copied_bytes(plan, Kind::copy_to_device);
  report.bytes_to_host = copied_bytes(plan, Kind::copy_to_host);
  report.bytes_on_host = bytes_on_host(plan);
  if (plan.checkpoint >= 0) report.checkpoint_bytes = plan.buffers[plan.checkpoint].bytes;
  report.overlap = find_overlap(plan);

  for (const Action& action : plan.actions) {
    ++report.actions[static_cast<int>(action.kind)];
    report.flops[static_cast<int>(action.kind)] += action.flops;
  }
  return report;
}

std::string report_text(const StepPlan& plan, const Report& report) {
  std::ostringstream text;
  text << model_text(plan) << "\n"
       << strategy_text(report.strategy) << "ranks\n"
       << row("ranks", format_count(plan.ranks)) << "  " << format_count(report.nodes)
       << (report.nodes == 1 ? " node of " : " nodes of ") << format_count(report.ranks_per_node)
       << "\n"
       << row("shard group", format_count(plan.group_ranks)) << "  "
       << format_count(plan.replicas()) << (plan.replicas() == 1 ? " copy" : " copies")
       << " of the model\n"
       << row("micro-batches", format_count(plan.micro_batches)) << "  of a rank, gradients "
       << name(plan.accumulation) << "\n"
       << text_row("sums over leaves", plan.has_the_bits_of_one_rank()
                                           ? "bit for bit those of one rank"
                                           : "those of one rank but for rounding")
       << (updates_early(plan) ? text_row("updates", early_updates) : "")
       << row("hash of the plan", format_hex(plan.hash())) << "\n\n"
       << memory_text(report) << "\n"
       << traffic_text(report) << "\n"
       << copies_text(report) << overlap_text(report.overlap) << "\n"
       << estimate_text(report.estimate, report.bytes_to_device + report.bytes_to_host > 0)
       << actions_text(report);
  return text.str();
}

void write_report_json(std::ostream& out, const StepPlan& plan, const MemoryPlan& memory,
                       const MemoryPlan& host_memory, const Report& report) {
  Json head = {
      {"format", 2},
      {"purpose", name(plan.purpose)},
      {"hash", format_hex(plan.hash())},
      {"ranks", plan.ranks},
      {"nodes", report.nodes},
      {"ranks_per_node", report.ranks_per_node},
      {"shard_group_ranks", plan.group_ranks},
      {"replicas", plan.replicas()},
      {"stored", name(plan.stored)},
      {"optimized", name(plan.optimized)},
      {"updates", name(plan.updates)},
      {"updates_early", updates_early(plan)},
      {"accumulation", name(plan.accumulation)},
      {"strategy", to_json(report.strategy)},
      {"without_effect", without_effect(report.strategy)},
      {"has_the_bits_of_one_rank", plan.has_the_bits_of_one_rank()},
      {"parameter_elements", sum(plan.parameter_elements)},
      {"padded_elements", sum(plan.padded_elements) + sum(plan.padded_frozen)},
      {"padded_frozen_elements", sum(plan.padded_frozen)},
      {"frozen_parameters", plan.frozen_count},
      {"micro_batches", plan.micro_batches},
      {"element_bytes", plan.element_bytes},
      {"memory", memory_json(memory, report.device)},
      {"host_memory", memory_json(host_memory, report.host)},
      {"traffic",
       {{"bytes_inside_nodes", report.bytes_inside_nodes},
        {"bytes_across_nodes", report.bytes_across_nodes},
        {"shard_group", to_json(report.shard)},
        {"replicate_group", to_json(report.replicate)},
        {"kept_groups", to_json(report.kept)}}},
      {"copies",
       {{"bytes_to_device", report.bytes_to_device}, {"bytes_to_host", report.bytes_to_host}}},
      {"bytes_on_host", report.bytes_on_host},
      {"overlap", to_json(report.overlap)},
      {"flops", plan.flops()},
      {"actions_by_kind", actions_json(report)}};
  if (report.estimate) head["estimate"] = to_json(*report.estimate);
  // The lists are written line by line: as one document, those of long plans would take gigabytes.
  std::string text = head.dump(2);
  text.resize(text.size() - 2);  // without "\n}"
  out << text;
  const auto list = [&](const char* what, std::size_t count, const auto& item) {
    out << ",\n  \"" << what << "\": [";
    for (std::size_t i = 0; i < count; ++i) out << (i == 0 ? "\n    " : ",\n    ") << item(i);
    out << "\n  ]";
  };
  list("units", plan.unit_names.size(), [&](std::size_t u) {
    return Line()
        .put("name", plan.unit_names[u])
        .put("parameter_elements", plan.parameter_elements[u])
        .put("padded_elements", plan.padded_elements[u] + plan.padded_frozen[u])
        .put("padded_frozen_elements", plan.padded_frozen[u])
        .end();
  });
  list("buffers", plan.buffers.size(), [&](std::size_t b) {
    const Buffer& buffer = plan.buffers[b];
    return buffer_line(buffer, (buffer.space == Space::host ? host_memory : memory).offsets[b]);
  });
  list("actions", plan.actions.size(),
       [&](std::size_t a) { return action_line(plan, plan.actions[a]); });
  out << "\n}\n";
}

}  // namespace ostrakon::plan
