// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_bounds.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/plan/activation_pass.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

StepPlan plan_of_state(const ModelDescription& model, int ranks, const Policy& policy) {
  return build_step_plan(model, ranks, policy, Purpose::export_parameters);
}

namespace {

/// Of the phase that works with the most.
std::int64_t backward_workspace_bytes(const UnitDescription& unit) {
  std::int64_t most = 0;
  for (const Phase& phase : unit.backward) most = std::max(most, phase.workspace_bytes);
  return most;
}

/// As many as there are units where no backward is needed.
int first_with_backward(const ModelDescription& model) {
  int first = 0;
  while (first < static_cast<int>(model.units.size()) && !has_backward(model, first)) ++first;
  return first;
}

}  // namespace

Bounds::Bounds(const ModelDescription& model, const Policy& policy, const StepPlan& plan)
    : model_(model),
      policy_(policy),
      plan_(plan),
      units_(static_cast<int>(model.units.size())),
      first_trained_(first_with_backward(model)),
      checkpointed_(find_checkpointed(model, policy.activation_checkpointing)) {
  for (int u = 0; u < units_; ++u) {
    uses_.push_back(parameter_uses(model, u));
    waits_on_host_.push_back(waits_on_host(model, policy, u));
  }
  reach_ = prefetch_depth();
}

double Bounds::flops() const {
  double flops = -plan::flops(model_.units.back().forward);
  for (int u = 0; u < units_; ++u) {
    flops += plan::flops(unit(u).forward);
    if (u < first_trained_) continue;
    flops += plan::flops(unit(u).backward);
    if (checkpointed_[u]) flops += recompute_flops(unit(u).forward);
  }
  return flops * static_cast<double>(plan_.grid.micro_batches());
}

std::int64_t Bounds::copied_bytes() const {
  const Layouts& layouts = plan_.layouts;
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u) {
    if (parameters_are_on_host())
      bytes += gathers_at_least(u) * plan_.buffers[plan_.units[u].compute()].bytes;
    const std::int64_t updated = plan_.elements(plan_.trained(u), layouts.update.divided);
    if (layouts.update.space == Space::host) {
      bytes += completed(u, layouts.gradient.divided);
      if (!parameters_are_on_host()) bytes += updated * model_.element_bytes;
    } else if (parameters_are_on_host()) {
      bytes += 2 * updated * model_.master_bytes;
    }
    if (waits_on_host_[u]) bytes += 2 * plan_.grid.micro_batches() * bytes_away(u);
  }
  return bytes;
}

StepPlan Bounds::collectives() const {
  const Layouts& layouts = plan_.layouts;
  const Spans& of_unit = layouts.gathered.divided;
  StepPlan least;
  least.grid = plan_.grid;
  // Over the innermost of `divided`, of what lies so.
  const auto add = [&](FlatRange flats, const Spans& divided, std::int64_t times,
                       std::int64_t element_bytes) {
    Action action;
    action.kind = Kind::gather;
    action.span = divided.innermost();
    action.elements = times * plan_.elements(flats, divided.outer());
    action.element_bytes = element_bytes;
    if (action.elements > 0) least.actions.push_back(action);
  };
  for (int u = 0; u < units_; ++u) {
    for (Spans at = layouts.compute.divided; at != of_unit; at = at.outer())
      add(plan_.units[u].flats, at, gathers_at_least(u), layouts.gathered.element_bytes);
    for (Spans at = layouts.gradient.divided; at != of_unit; at = at.outer()) {
      const Axis axis = at.innermost().axis;
      for (const ParameterUse& use : uses_[u])
        if (use.completes_leaf)
          add(plan_.trained(use.unit), at,
              is_in_each_micro_batch(axis) ? plan_.grid.micro_batches() : 1,
              layouts.reduce_element_bytes_over(at.innermost()));
      // Gradients are gathered, or updates.
      if (!layouts.update.divided.has(axis))
        add(plan_.trained(u), at, 1, layouts.gradient.element_bytes);
      else if (!layouts.compute.divided.has(axis))
        add(plan_.trained(u), at, 1, layouts.compute.element_bytes);
    }
  }
  return least;
}

std::int64_t Bounds::bytes_on_host() const {
  const Layout& update = plan_.layouts.update;
  if (update.space != Space::host) return 0;
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u) {
    bytes += 2 * plan_.elements(plan_.trained(u), update.divided) * model_.master_bytes;
    for (int moments : {plan_.units[u].first_moments, plan_.units[u].second_moments})
      if (moments >= 0) bytes += plan_.buffers[moments].bytes;
  }
  return bytes;
}

std::int64_t Bounds::transient_bytes() const {
  // What forward left for the backward of this unit and those before it, and what stays gathered
  // for it; their sums; and the reduced gradients of those after it.
  std::int64_t left = model_.batch_bytes + model_.gradient_bytes, sums = 0, reduced = 0;
  std::int64_t to_update = 0;  // complete gradients of units after this one
  const Spans& of_rank = plan_.layouts.gradient.divided;
  const Spans& of_unit = plan_.layouts.gathered.divided;
  const Spans summed_over = summed_spans();
  const std::int64_t partial_sums = sums_before();
  const auto own = [&](int u) {
    return plan_.layouts.update.space == Space::device ? gradients(u, of_rank) : 0;
  };
  for (int u = 0; u < units_; ++u) {
    reduced += summed(u, of_rank);
    to_update += own(u);
  }
  std::int64_t most = 0;
  for (int u = 0; u < units_; ++u) {
    sums += partial_sums * summed(u, summed_over);
    reduced -= summed(u, of_rank);
    to_update -= own(u);
    if (!plan_.units[u].whole_matrices.empty())
      most = std::max(most, to_update + gradients(u, {}) + unit(u).orthogonalize_workspace_bytes);
    if (u < first_trained_) continue;
    const bool is_last = u == units_ - 1;
    std::int64_t live_bytes = left + sums + reduced + input_bytes(u) + unit(u).saved_bytes +
                              backward_workspace_bytes(unit(u)) + completed(u, of_unit) +
                              in_flight(u);
    // It is being copied back.
    if (u > first_trained_ && waits_on_host_[u - 1]) live_bytes += bytes_away(u - 1);
    live_bytes += gathered_for_backward(u);
    if (prefetches() && u > first_trained_) live_bytes += gathered_for_backward(u - 1);
    live_bytes += tied_bytes(u);
    if (is_last) live_bytes += unit(u).output_bytes;
    most = std::max(most, live_bytes);
    if (!waits_on_host_[u]) left += bytes_away(u);
    if (stays_gathered()) left += gathered_for_backward(u);
  }
  return most;
}

bool Bounds::parameters_are_on_host() const { return plan_.layouts.compute.space == Space::host; }

std::int64_t Bounds::gathers_at_least(int u) const {
  // What is needed again within that many visits may be there still.
  const int reach = reach_ + 1;
  const Reshard::Kind reshard = policy_.reshard_after_forward.kind;
  const bool may_stay = !policy_.units.empty() || reshard == Reshard::end_of_step;
  const std::int64_t forward = u > reach && !may_stay ? plan_.grid.micro_batches() : 1;
  const bool again = policy_.units.empty() &&
                     (reshard == Reshard::always || reshard == Reshard::automatic) &&
                     u >= first_trained_ && u < units_ - 1 - reach && gathered_for_backward(u) > 0;
  return forward + (again ? plan_.grid.micro_batches() : 0);
}

int Bounds::prefetch_depth() const {
  int most = 0;
  const auto see = [&](const std::optional<Prefetch>& prefetch) {
    if (!prefetch) return;
    most = std::max(most, prefetch->units.empty() ? prefetch->depth : units_);
  };
  see(policy_.forward_prefetch);
  see(policy_.backward_prefetch);
  for (const UnitRule& rule : policy_.units) {
    see(rule.forward_prefetch);
    see(rule.backward_prefetch);
  }
  return most;
}

std::int64_t Bounds::gathered(int u) const {
  const Layouts& layouts = plan_.layouts;
  return layouts.gathers() ? plan_.elements(plan_.units[u].flats, layouts.gathered.divided) *
                                 layouts.gathered.element_bytes
                           : 0;
}

std::int64_t Bounds::gathered_for_backward(int u) const {
  return unit(u).backward_reads_parameters && tied_unit(model_, u) < 0 ? gathered(u) : 0;
}

/// While a unit's backward runs: gathered parameters that it is tied to, and gradients that units
/// after it, or itself, have opened for those before it.
std::int64_t Bounds::tied_bytes(int u) const {
  std::int64_t bytes = unit(u).tied_to >= 0 ? gathered(unit(u).tied_to) : 0;
  for (int other = u; other < units_; ++other)
    for (const ParameterUse& use : uses_[other])
      if (use.unit < u && use.has_gradients && !use.completes_leaf)
        bytes += gradients(use.unit, plan_.layouts.gathered.divided);
  return bytes;
}

bool Bounds::stays_gathered() const {
  const Reshard::Kind reshard = policy_.reshard_after_forward.kind;
  return policy_.units.empty() && (reshard == Reshard::never || reshard == Reshard::end_of_step);
}

bool Bounds::prefetches() const {
  const Prefetch& prefetch = policy_.backward_prefetch;
  return !stays_gathered() && policy_.units.empty() && policy_.in_flight_gathers == GatherLimit() &&
         prefetch.units.empty() && prefetch.depth > 0;
}

std::int64_t Bounds::in_flight(int u) const {
  const Spans& of_unit = plan_.layouts.gathered.divided;
  const std::int64_t summing = plan_.grid.ranks() / of_unit.parts();
  std::int64_t bytes = 0;
  for (int v = u + 1; v <= std::min(u + policy_.in_flight_reductions, units_ - 1); ++v) {
    if (summing == 1 && plan_.layouts.update.space == Space::device) continue;
    bytes += completed(v, of_unit);
    const bool packs = plan_.grid.shard() > 1 && plan_.layouts.rounds(plan_.grid.span(Axis::shard));
    if (packs)
      bytes += 2 * completed(v, of_unit) / model_.master_bytes * plan_.layouts.reduce_element_bytes;
    else if (summing > 1)
      bytes += completed(v, of_unit);
  }
  return bytes;
}

std::int64_t Bounds::gradients(int u, const Spans& divided) const {
  return plan_.elements(plan_.trained(u), divided) * model_.master_bytes;
}

std::int64_t Bounds::completed(int u, const Spans& divided) const {
  std::int64_t bytes = 0;
  for (const ParameterUse& use : uses_[u])
    if (use.completes_leaf) bytes += gradients(use.unit, divided);
  return bytes;
}

std::int64_t Bounds::summed(int u, const Spans& divided) const {
  return plan_.layouts.update.space == Space::device ? completed(u, divided) : 0;
}

bool Bounds::is_in_each_micro_batch(Axis axis) const {
  for (Axis summed : sum_order(plan_.layouts.accumulation))
    if (summed == axis || summed == Axis::micro_batch) return summed == axis;
  return false;
}

Spans Bounds::summed_spans() const {
  Spans spans = plan_.layouts.gathered.divided;
  for (const Span& span : plan_.layouts.gradient.divided)
    if (is_in_each_micro_batch(span.axis)) spans.push(span);
  return spans;
}

std::int64_t Bounds::sums_before() const {
  const std::int64_t micro_batches = plan_.grid.micro_batches();
  int tree = 0;
  for (const SpanSum& sum : span_sums(plan_.sum_spans(), plan_.layouts.sum_grain)) {
    if (sum.continues) return 1;
    if (sum.span.axis == Axis::micro_batch) tree = sum.tree;
  }
  if (policy_.leaf_order == LeafOrder::shuffled) return micro_batches > 1 ? 1 : 0;
  std::int64_t count = 0;
  TreeNode node{policy_.leaf_order == LeafOrder::ascending ? micro_batches - 1 : 0, 1};
  for (; node.leaves < micro_batches; ++count)
    node = parent_and_sibling(node, micro_batches, tree).first;
  return count;
}

std::int64_t Bounds::bytes_away(int u) const {
  return input_bytes(u) + (checkpointed_[u] ? 0 : unit(u).saved_bytes);
}

std::int64_t least_arena_bytes(const Bounds& bounds, const MemoryPlan& memory) {
  return std::max(memory.arena_bytes, memory.persistent_bytes + bounds.transient_bytes());
}

}  // namespace ostrakon::plan
