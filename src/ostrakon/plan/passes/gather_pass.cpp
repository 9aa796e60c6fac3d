// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/gather_pass.hpp>

#include <algorithm>
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/passes/redistribute.hpp>
#include <utility>

namespace ostrakon::plan {
namespace {

std::string names_of(const Builder& builder) {
  const int units = builder.units();
  return text(builder.state(0).name, ", ", units > 2 ? builder.state(1).name + ", ... " : "",
              builder.state(units - 1).name);
}

std::vector<int> find_units(const Builder& builder, const Prefetch& prefetch, const char* key) {
  std::vector<int> found;
  for (const std::string& name : prefetch.units) {
    int u = 0;
    while (u < builder.units() && builder.state(u).name != name) ++u;
    require(u < builder.units(), "parallel.units: ", key, " ", name,
            ": the model has no such unit; its units are ", names_of(builder));
    found.push_back(u);
  }
  return found;
}

/// Simplifies a setting: parts as small as shards are the shards that a rank has anyway. If a unit
/// is in parts, a rank keeps a part of its part.
Reshard simplified(Reshard reshard, int shard, int parts) {
  if (reshard.kind != Reshard::partly) return reshard;
  if (parts > 1) {
    require(reshard.ranks % parts == 0 || parts % reshard.ranks == 0,
            "reshard_after_forward = ", reshard.ranks, " with parameters in ", parts,
            " parts along shard (parallel.expert): expected a multiple or a divisor of them");
    shard /= parts;
    reshard.ranks = std::max(reshard.ranks / parts, 1);
    if (reshard.ranks == 1 && shard > 1) reshard.kind = Reshard::never;
    if (reshard.kind == Reshard::never) return reshard;
  }
  if (reshard.ranks >= shard) reshard.kind = Reshard::always;
  require(reshard.kind == Reshard::always || shard % reshard.ranks == 0,
          "reshard_after_forward = ", reshard.ranks, " does not divide the ", shard,
          " ranks of a shard group");
  return reshard;
}

GatherRules rules_of(const Builder& builder, const Policy& policy, int u) {
  GatherRules rules;
  const StepPlan& plan = builder.plan();
  const FlatRange flats = builder.state(u).flats;
  const Spans& gathered = builder.state(u).layouts.gathered.divided;
  rules.bytes = plan.elements(flats, gathered) * builder.model().element_bytes;
  if (plan.quantizes(flats)) rules.bytes += plan.quantized_bytes(flats, gathered);
  rules.reshard = policy.reshard_after_forward;
  rules.forward_prefetch = policy.forward_prefetch;
  rules.backward_prefetch = policy.backward_prefetch;
  for (const UnitRule& rule : policy.units) {
    if (!matches(rule.pattern, builder.state(u).name)) continue;
    if (rule.reshard_after_forward) rules.reshard = *rule.reshard_after_forward;
    if (rule.forward_prefetch) rules.forward_prefetch = *rule.forward_prefetch;
    if (rule.backward_prefetch) rules.backward_prefetch = *rule.backward_prefetch;
  }
  rules.forward_list = find_units(builder, rules.forward_prefetch, "forward_prefetch");
  rules.backward_list = find_units(builder, rules.backward_prefetch, "backward_prefetch");
  rules.reshard =
      simplified(rules.reshard, plan.grid.shard(), builder.state(u).layouts.expert_ranks);
  return rules;
}

void check_patterns(const Builder& builder, const Policy& policy) {
  for (const UnitRule& rule : policy.units) {
    bool matches_any = false;
    for (int u = 0; u < builder.units(); ++u)
      matches_any = matches_any || matches(rule.pattern, builder.state(u).name);
    require(matches_any, "parallel.units: ", rule.pattern,
            " matches none of the model's units, which are ", names_of(builder));
  }
}

}  // namespace

GatherPass::GatherPass(Builder& builder, const Policy& policy, const Tasks& tasks)
    : builder_(builder),
      checkpointed_(find_checkpointed(builder.model(), policy.activation_checkpointing)) {
  std::vector<GatherRules> rules;
  std::vector<std::string> names;
  units_.resize(static_cast<std::size_t>(builder.units()));
  for (int u = 0; u < builder.units(); ++u) {
    rules.push_back(rules_of(builder, policy, u));
    units_[u].parts = rules.back().reshard.ranks;
    PlannedUnit& planned = builder.state(u);
    planned.stays_gathered =
        planned.layouts.gathers() && rules.back().reshard.kind == Reshard::end_of_step;
    names.push_back(builder.state(u).name);
  }
  check_patterns(builder, policy);
  const auto& planned = builder.plan().units;
  if (std::any_of(planned.begin(), planned.end(),
                  [](const PlannedUnit& unit) { return unit.layouts.gathers(); }))
    order_ = std::make_unique<GatherOrder>(list_visits(tasks), std::move(rules),
                                           policy.in_flight_gathers, names);
}

/// The units whose gathered parameters a task reads; -1: none. A recompute before a backward reads
/// what forward does; for that alone nothing is gathered of a unit without parameters.
std::array<int, 2> GatherPass::needs_of(const Task& task) const {
  std::array<int, 2> needs{-1, -1};
  std::size_t count = 0;
  for (const ParameterUse& use : builder_.parameter_uses(task.unit)) {
    const bool recompute_reads =
        checkpointed_[task.unit] && !builder_.state(use.unit).flats.empty();
    const bool reads = task.work == Work::forward || use.backward_reads || recompute_reads;
    if (reads && builder_.state(use.unit).layouts.gathers()) needs[count] = use.unit;
    ++count;
  }
  return needs;
}

std::vector<Visit> GatherPass::list_visits(const Tasks& tasks) const {
  std::vector<Visit> visits;
  for (const Task& task : tasks) {
    if (!task.computes()) continue;
    Visit visit;
    visit.needs = needs_of(task);
    visit.unit = task.unit;
    visit.micro_batch = task.micro_batch;
    visit.forward = task.work == Work::forward;
    visits.push_back(visit);
  }
  return visits;
}

void GatherPass::gather(int u) {
  const PlannedUnit& unit = builder_.state(u);
  const Layouts& layouts = unit.layouts;
  const bool is_kept = units_[u].kept >= 0;
  Redistribution moving;
  moving.on_device = "uploaded";
  moving.converts = !is_kept && layouts.compute.element_bytes != layouts.gathered.element_bytes;
  units_[u].gathered =
      builder_.make_array("gathered", u, Category::gathered, unit.flats, layouts.gathered);
  // A part that was kept after forward has rounded weights already, in 16 bits.
  if (!is_kept && builder_.plan().quantizes(unit.flats)) {
    moving.category = Category::staging;
    moving.gathered = "quantized";
    const int codes = redistribute(builder_, u, unit.compute(), layouts.gathered.as_quantized(),
                                   moving, units_[u].on_way);
    Action& action = builder_.emit(Kind::dequantize, u);
    action.elements = builder_.plan().elements(unit.flats, layouts.gathered.divided);
    builder_.use(action, Role::source, codes, Access::read);
    builder_.use(action, Role::parameters, units_[u].gathered, Access::write);
    return;
  }
  redistribute(builder_, u, is_kept ? units_[u].kept : unit.compute(), layouts.gathered, moving,
               units_[u].on_way, units_[u].gathered);
}

void GatherPass::before(const Task& task) {
  if (!order_ || !task.computes()) return;
  for (int u : order_->begin(visit_)) gather(u);
  for (int u : needs_of(task)) {
    if (u >= 0) builder_.release(u, std::exchange(units_[u].on_way, {}));
  }
}

void GatherPass::after(const Task& task) {
  if (!order_ || !task.computes()) return;
  for (int u : needs_of(task))
    if (u >= 0) release(u, order_->end(visit_, u));
  ++visit_;
}

void GatherPass::release(int u, GatherOrder::End end) {
  if (end == GatherOrder::End::stay) return;
  std::vector<int> ended = {units_[u].gathered};
  // The parameters were gathered from a part that was kept, which is not needed any more.
  if (units_[u].kept >= 0) ended.push_back(units_[u].kept);
  units_[u].kept = -1;
  if (end == GatherOrder::End::keep_part) {
    const Layouts& layouts = builder_.state(u).layouts;
    const Span span{Axis::shard, units_[u].parts, layouts.expert_ranks};
    const FlatRange flats = builder_.state(u).flats;
    Spans divided = layouts.gathered.divided;
    divided.push(builder_.plan().grid.levels(span));
    units_[u].kept = builder_.make_array("kept part", u, Category::gathered, flats,
                                         layouts.gathered.over(divided));
    Action& keep = builder_.emit(Kind::keep, u);
    keep.span = span;
    keep.elements = builder_.plan().elements(flats, divided);
    builder_.use(keep, Role::parameters, units_[u].gathered, Access::read);
    builder_.use(keep, Role::shard, units_[u].kept, Access::write);
  }
  builder_.release(u, ended);
  units_[u].gathered = -1;
}

}  // namespace ostrakon::plan
