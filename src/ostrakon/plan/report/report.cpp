// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/report/report.hpp>

#include <algorithm>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <unordered_map>

namespace ostrakon::plan {
namespace {

/// The bytes that a buffer takes in the arena, with alignment.
std::int64_t arena_bytes(const Buffer& buffer) {
  return (buffer.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

bool is_alive(const Buffer& buffer, Space space, int action) {
  return buffer.space == space &&
         (buffer.persistent || (buffer.first <= action && action <= buffer.last));
}

/// Finds the unit that a buffer belongs to, or -1: a buffer's name begins with its unit's.
class Owners {
 public:
  explicit Owners(const StepPlan& plan) {
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u)
      units_.emplace(plan.units[u].name, u);
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
  for (const PlannedUnit& unit : plan.units) units.push_back({unit.name, {}, 0});
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
  if (!trains(plan.purpose) || clip == plan.actions.end()) return 0;
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

TrafficOfSpan& find_span(std::vector<TrafficOfSpan>& spans, const Span& span) {
  auto found = std::find_if(spans.begin(), spans.end(),
                            [&](const TrafficOfSpan& one) { return one.span == span; });
  if (found == spans.end()) found = spans.insert(spans.end(), TrafficOfSpan{span, false, 0, 0});
  return *found;
}

/// Lists all ranks of an axis, whether they send anything or not.
void add_axis(const StepPlan& plan, const Links& links, Axis axis, Traffic& traffic) {
  for (const Span& span : plan.grid.levels(axis)) find_span(traffic.levels, span);
  traffic.ranks = static_cast<int>(plan.grid.size(axis));
  traffic.spans_nodes = links.spans_nodes(plan.grid.span(axis));
}

void report_traffic(const StepPlan& plan, const Links& links, Report& report) {
  const std::array<Traffic*, groups> of_group = {&report.shard, &report.replicate, &report.kept,
                                                 &report.tensor};
  add_axis(plan, links, Axis::tensor, report.tensor);
  add_axis(plan, links, Axis::shard, report.shard);
  add_axis(plan, links, Axis::replicate, report.replicate);
  std::array<std::vector<std::int64_t>, groups> arrays, messages;
  const std::vector<Group> group_of_action = find_groups(plan);
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    const auto g = static_cast<std::size_t>(group_of_action[a]);
    Traffic& traffic = *of_group[g];
    if (action.kind == Kind::keep) traffic.ranks = std::max(traffic.ranks, action.span.ranks);
    if (action.kind == Kind::send) report.bytes_across_nodes += links.bytes_across_nodes(action);
    if (array_bytes(action) == 0) continue;
    TrafficOfSpan& of_span = find_span(traffic.levels, action.span);
    const std::int64_t sent = plan.bytes_sent(action), across = links.bytes_across_nodes(action);
    for (std::int64_t* bytes : {&traffic.bytes_sent, &of_span.bytes_sent}) *bytes += sent;
    for (std::int64_t* bytes :
         {&traffic.bytes_across_nodes, &of_span.bytes_across_nodes, &report.bytes_across_nodes})
      *bytes += across;
    traffic.messages += action.span.ranks - 1;
    arrays[g].push_back(array_bytes(action));
    messages[g].push_back(message_bytes(action));
  }
  report.bytes_inside_nodes = plan.bytes_sent() - report.bytes_across_nodes;
  report.bytes_left_out_if_even = plan.bytes_left_out_if_even();
  for (std::size_t g = 0; g < groups; ++g) {
    Traffic& traffic = *of_group[g];
    traffic.collectives = static_cast<std::int64_t>(arrays[g].size());
    traffic.array = sizes_of(arrays[g]);
    traffic.message = sizes_of(messages[g]);
    bool has_levels = false;
    for (TrafficOfSpan& one : traffic.levels) {
      one.spans_nodes = links.spans_nodes(one.span);
      traffic.spans_nodes = traffic.spans_nodes || one.spans_nodes;
      has_levels = has_levels || is_across_nodes(one.span) || one.span.axis == Axis::tensor_shard;
    }
    if (!has_levels) traffic.levels.clear();
  }
}

// ---- overlap

/// Finds, by binary search, the actions that may overlap with an action: along each stream, those
/// that happen before it come first and those that happen after it come last.
class Concurrency {
 public:
  explicit Concurrency(const StepPlan& plan) : order_(plan) {
    for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
      if (const Action& action = plan.actions[a]; is_phase(action.kind) || is_update(action.kind))
        computing_[static_cast<int>(action.stream)].push_back(a);
  }

  bool is_computed(int action) const {
    return std::any_of(computing_.begin(), computing_.end(), [&](const std::vector<int>& stream) {
      const auto first = std::partition_point(stream.begin(), stream.end(),
                                              [&](int c) { return order_.before(c, action); });
      return first != stream.end() && !order_.before(action, *first);
    });
  }

 private:
  const HappensBefore order_;
  std::array<std::vector<int>, streams> computing_;  // actions of each stream that compute
};

/// Finds the maximum of a count or a size over time.
class Level {
 public:
  explicit Level(std::size_t actions) : changes_(actions + 1) {}

  /// Adds `amount` from action `first` to action `last`.
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

void report_gathered(const StepPlan& plan, OverlapBytes& overlap) {
  const int actions = static_cast<int>(plan.actions.size());
  Level units_in_flight(actions), bytes_in_flight(actions), units(actions), bytes(actions);
  std::vector<int> gathered_at(plan.buffers.size(), -1);  // action that gathered each buffer, until
                                                          // it is used
  for (int a = 0; a < actions; ++a) {
    const Action& action = plan.actions[a];
    for (const Use& use : action.uses) {
      const Buffer& buffer = plan.buffers[use.buffer];
      int& gathered = gathered_at[use.buffer];
      // Parameters that are whole in host memory are copied into the buffer that others are
      // gathered into, so a copy counts, too; buffers that are still divided do not.
      const bool begins = use.access == Access::write && action.stream != Stream::compute &&
                          buffer.category == Category::gathered && action.unit >= 0 &&
                          buffer.divided == plan.units[action.unit].layouts.gathered.divided;
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

OverlapBytes find_overlap(const StepPlan& plan) {
  OverlapBytes overlap;
  report_gathered(plan, overlap);
  const Concurrency concurrency(plan);
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[a];
    const std::int64_t sent = plan.bytes_sent(action), copied = copied_bytes(action);
    if ((sent == 0 && copied == 0) || action.empty_if_even) continue;
    const bool hidden = concurrency.is_computed(a);
    (hidden ? overlap.bytes_while_computing : overlap.bytes_while_nothing_computes) += sent;
    (hidden ? overlap.copied_while_computing : overlap.copied_while_nothing_computes) += copied;
    if (sent > 0)
      ++(hidden ? overlap.collectives_while_computing : overlap.collectives_while_nothing_computes);
    if (copied > 0)
      ++(hidden ? overlap.copies_while_computing : overlap.copies_while_nothing_computes);
  }
  return overlap;
}

/// Returns `part` in percent of `part` + `rest`.
double part_percent(std::int64_t part, std::int64_t rest) {
  const auto all = static_cast<double>(part + rest);
  return all > 0.0 ? 100.0 * static_cast<double>(part) / all : 0.0;
}

}  // namespace

double while_computing_percent(const OverlapBytes& overlap) {
  return part_percent(overlap.bytes_while_computing, overlap.bytes_while_nothing_computes);
}

double copied_while_computing_percent(const OverlapBytes& overlap) {
  return part_percent(overlap.copied_while_computing, overlap.copied_while_nothing_computes);
}

Elements count_elements(const StepPlan& plan) {
  Elements elements;
  for (const PlannedUnit& unit : plan.units) elements.parameters += unit.parameter_elements;
  for (const FlatParameter& flat : plan.flats) {
    elements.padded += flat.padded;
    if (!flat.trained) elements.padded_frozen += flat.padded;
  }
  return elements;
}

ExpertCapacity expert_capacity(const StepPlan& plan) {
  for (const PlannedUnit& unit : plan.units)
    if (unit.capacity.rows > 0) return unit.capacity;
  return {};
}

std::vector<std::string> without_effect(const std::vector<Setting>& strategy) {
  std::vector<std::string> keys;
  for (const Setting& setting : strategy)
    if (!setting.has_effect) keys.push_back(setting.key);
  return keys;
}

bool updates_early(const StepPlan& plan) {
  if (plan.layouts.updates_optimistically) return false;
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::optimize) return true;
    if (action.kind == Kind::clip) return false;
  }
  return false;
}

std::string describe_at(const StepPlan& plan, int action) {
  int when = action;
  while (when >= 0 && !traits(plan.actions[when].kind).is_landmark) --when;
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
  report.nodes = (plan.grid.ranks() - 1) / report.ranks_per_node + 1;
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

StageSummary summarize_stage(const StepPlan& plan, std::int64_t arena_bytes,
                             std::int64_t host_arena_bytes) {
  StageSummary summary;
  summary.arena_bytes = arena_bytes;
  summary.host_arena_bytes = host_arena_bytes;
  summary.flops = plan.flops();
  for (const Action& action : plan.actions)
    if (action.kind == Kind::send) summary.bytes_sent += plan.bytes_sent(action);
  for (const Action& action : plan.actions) {
    if (action.kind != Kind::backward) continue;
    if (action.phase <= 0) ++summary.backwards;
    if (is_deferred(plan, action) &&
        action.phase == plan.units[static_cast<std::size_t>(action.unit)].first_gradient_phase)
      ++summary.deferred;
  }
  for (std::size_t first = 0; first < plan.units.size();) {
    std::size_t end = first + 1;
    const bool is_borrowed = plan.units[first].tied_stages.source >= 0;
    while (end < plan.units.size() && plan.units[end].number == plan.units[end - 1].number + 1 &&
           (plan.units[end].tied_stages.source >= 0) == is_borrowed)
      ++end;
    if (!is_borrowed) {
      for (std::size_t u = first; u < end; ++u) {
        summary.parameters += plan.units[u].parameter_elements;
        summary.stay_gathered += plan.units[u].stays_gathered;
      }
      summary.units += (summary.units.empty() ? "" : ", ") + plan.units[first].name;
      if (end > first + 1) summary.units += " to " + plan.units[end - 1].name;
    }
    first = end;
  }
  return summary;
}

}  // namespace ostrakon::plan
