// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit_bounds.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/plan/activation_pass.hpp>
#include <ostrakon/plan/fit_divisions.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/plan/tasks.hpp>

namespace ostrakon::plan {

StepPlan plan_of_state(const ModelDescription& model, int ranks, const Policy& policy) {
  return build_step_plan(model, ranks, policy, Purpose::export_parameters);
}

namespace {

/// The workspace of the phase that works with the most.
std::int64_t workspace_bytes(const Phases& phases) {
  std::int64_t most = 0;
  for (const Phase& phase : phases) most = std::max(most, phase.workspace_bytes);
  return most;
}

/// The phases of a backward that defers nothing.
const Phases& backward_at_once(const UnitDescription& unit) {
  return unit.deferred_phases > 0 ? unit.backward_at_once : unit.backward;
}

/// Returns the number of units where none needs a backward.
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
  const Layouts& layouts = plan_.layouts;
  for (const SpanSum& sum : span_sums(plan_.sum_spans(), layouts.sum_grain, 1, layouts.summation)) {
    continues_ = continues_ || sum.continues;
    if (sum.span.axis == Axis::micro_batch) tree_ = sum.tree;
  }
}

double Bounds::flops() const {
  // Every n-th of a stage's units computes again: these may be others than of the whole model.
  const bool is_known = policy_.stages == 1 || policy_.activation_checkpointing.every == 1;
  double flops = -plan::flops(model_.units.back().forward);
  for (int u = 0; u < units_; ++u) {
    flops += plan::flops(unit(u).forward);
    if (u < first_trained_) continue;
    const double at_once = plan::flops(backward_at_once(unit(u)));
    flops += policy_.stages == 1 ? at_once : std::min(at_once, plan::flops(unit(u).backward));
    if (checkpointed_[u] && is_known) flops += recompute_flops(unit(u).forward);
  }
  return flops * static_cast<double>(plan_.grid.micro_batches());
}

double Bounds::waiting_seconds(const Rates& rates) const {
  double seconds = 0.0;
  for (int u = 0; u < units_; ++u) {
    if (u + 1 < units_) seconds += plan::waiting_seconds(unit(u), unit(u).forward, rates);
    if (u >= first_trained_)
      seconds += plan::waiting_seconds(unit(u), backward_at_once(unit(u)), rates);
  }
  return seconds * static_cast<double>(plan_.grid.micro_batches());
}

std::int64_t Bounds::copied_bytes() const {
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u) {
    const Layouts& layouts = layouts_of(u);
    if (parameters_are_on_host())
      bytes += gathers_at_least(u) * plan_.buffers[plan_.units[u].compute()].bytes;
    const std::int64_t updated = plan_.elements(plan_.trained(u), layouts.update.divided);
    if (layouts.update.space == Space::host) {
      bytes += completed(u, layouts.gradient.divided);
      if (!parameters_are_on_host()) bytes += updated * model_.element_bytes;
    } else if (parameters_are_on_host()) {
      bytes += 2 * updated * model_.master_bytes;
    }
    if (policy_.stages == 1 && waits_on_host_[u])
      bytes += 2 * plan_.grid.micro_batches() * bytes_away(u);
  }
  return bytes;
}

StepPlan Bounds::collectives() const {
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
    const Layouts& layouts = layouts_of(u);
    const Spans& of_unit = layouts.gathered.divided;
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
  if (plan_.layouts.update.space != Space::host) return 0;
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u) {
    const Layout& update = layouts_of(u).update;
    bytes += 2 * plan_.elements(plan_.trained(u), update.divided) * model_.master_bytes;
    for (int moments : {plan_.units[u].first_moments, plan_.units[u].second_moments})
      if (moments >= 0) bytes += plan_.buffers[moments].bytes;
  }
  return bytes;
}

std::int64_t Bounds::copied_sum_bytes() const {
  const std::int64_t micro_batches = plan_.grid.micro_batches();
  if (plan_.layouts.update.space != Space::host) return 0;
  std::int64_t bytes = 0;  // copied_bytes() has those of one micro-batch, or less
  for (int u = 0; u < units_; ++u) bytes += (micro_batches - 1) * addend_bytes(u);
  return bytes;
}

std::int64_t Bounds::summed_bytes_on_host() const {
  const std::int64_t additions = plan_.grid.micro_batches() - 1;
  if (plan_.layouts.update.space != Space::host) return 0;
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u)
    if (folds(u)) bytes += 2 * additions * addend_bytes(u);
  return bytes;
}

bool Bounds::folds(int u) const {
  for (const SpanSum& sum : plan_.span_sums(u))
    if (sum.span.axis == Axis::micro_batch) return !sum.continues;
  return false;
}

std::int64_t Bounds::transient_bytes() const {
  // What forward left for the backward of this unit and those before it, and what stays gathered
  // for it; their sums; and the reduced gradients of those after it.
  std::int64_t left = model_.batch_bytes + model_.gradient_bytes, sums = 0, reduced = 0;
  std::int64_t to_update = 0;  // complete gradients of units after this one
  const auto own = [&](int u) {
    const Layouts& layouts = layouts_of(u);
    return layouts.update.space == Space::device ? gradients(u, layouts.gradient.divided) : 0;
  };
  for (int u = 0; u < units_; ++u) {
    reduced += summed(u, layouts_of(u).gradient.divided);
    to_update += own(u);
  }
  std::int64_t most = 0;
  for (int u = 0; u < units_; ++u) {
    sums += sums_before(u) * summed(u, summed_spans(u));
    reduced -= summed(u, layouts_of(u).gradient.divided);
    to_update -= own(u);
    if (!plan_.units[u].whole_matrices.empty())
      most = std::max(most, to_update + gradients(u, {}) + unit(u).orthogonalize_workspace_bytes);
    if (u < first_trained_) continue;
    const bool is_last = u == units_ - 1;
    std::int64_t live_bytes = left + sums + reduced + input_bytes(u) + unit(u).saved_bytes +
                              workspace_bytes(backward_at_once(unit(u))) +
                              completed(u, layouts_of(u).gathered.divided) + in_flight(u);
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

std::int64_t Bounds::stage_bytes(const std::vector<UnitRange>& chunks,
                                 std::int64_t in_flight) const {
  std::vector<int> units;
  for (const UnitRange& chunk : chunks)
    for (int u = chunk.first; u < chunk.end; ++u) units.push_back(u);
  const bool has_loss = units.back() == units_ - 1;
  const std::size_t forwards = units.size() - (has_loss ? 1 : 0);
  // All but the last two of a model wait on the host.
  const std::size_t stay = has_loss ? std::min<std::size_t>(2, units.size()) : 0;
  const std::size_t on_host = policy_.offload_activations ? units.size() - stay : 0;
  const int every = policy_.activation_checkpointing.every;
  std::vector<std::int64_t> left;        // of each unit: what forward leaves on the device
  std::vector<std::int64_t> saved_away;  // of that, where it is on the host, without the input
  std::int64_t all_left = 0, persistent = 0, reduced = 0;
  int seen = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const int u = units[i];
    const bool recomputes = every > 0 && i < forwards && unit(u).recomputes && seen++ % every == 0;
    const bool stays = u >= first_trained_ && i >= on_host;
    saved_away.push_back(recomputes ? 0 : unit(u).saved_bytes);
    left.push_back(stays ? input_bytes(u) + (recomputes ? 0 : unit(u).saved_bytes) : 0);
    // The unit with the loss has no forward in training.
    all_left += i < forwards || !stays ? left.back() : input_bytes(u);
    persistent += persistent_bytes(u);
    reduced += summed(u, layouts_of(u).gradient.divided);
  }
  // It is not known here which sums interleaved chunks have, or deferred gradients.
  const bool sums = chunks.size() == 1 && policy_.schedule != ScheduleKind::zero_bubble;
  const bool repeats = chunks.size() == 1 && plan_.grid.micro_batches() > in_flight;
  // While as many are in flight, a backward of this micro-batch, which is not the last, finds the
  // most sums. The backwards after it in the stage have added its gradients to theirs.
  const std::int64_t steady = repeats ? plan_.grid.micro_batches() - in_flight : 0;
  std::int64_t busy = 0;
  for (std::int64_t m = 1; sums && m <= std::min(steady, plan_.grid.micro_batches() - 2);
       m = 2 * m + 1)
    if (sums_before(units.back(), m) > sums_before(units.back(), busy)) busy = m;
  std::int64_t most = 0, before = 0, last_sums = 0, busy_sums = 0;
  for (int u : units)
    if (busy > 0) busy_sums += sums_before(u, busy + 1) * summed(u, summed_spans(u));
  for (std::size_t i = 0; i < units.size(); ++i) {
    const int u = units[i];
    const std::int64_t sum = summed(u, summed_spans(u));
    last_sums += sums_before(u) * sum;
    if (busy > 0) busy_sums += (sums_before(u, busy) - sums_before(u, busy + 1)) * sum;
    reduced -= summed(u, layouts_of(u).gradient.divided);
    if (u < first_trained_) continue;
    std::int64_t own = input_bytes(u) + unit(u).saved_bytes;
    // Phases that may be deferred are others.
    const bool defers =
        policy_.schedule == ScheduleKind::zero_bubble && unit(u).deferred_phases > 0;
    if (!defers)
      own += model_.gradient_bytes + workspace_bytes(backward_at_once(unit(u))) +
             completed(u, layouts_of(u).gathered.divided) + gathered_for_backward(u);
    // The next is being copied back.
    if (i > 0 && i - 1 < on_host && units[i - 1] + 1 == u && u - 1 >= first_trained_)
      own += input_bytes(u - 1) + saved_away[i - 1];
    // The forward just before has left what is being copied away.
    const bool follows = repeats && i + 1 == units.size() && i < on_host && !defers;
    const std::int64_t first =
        (in_flight - 1) * all_left + busy_sums + (follows ? saved_away[i] : 0);
    const std::int64_t last = sums ? last_sums + reduced : 0;
    most = std::max(most, before + own + std::max(first, last));
    before += left[i];
    if (stays_gathered()) before += gathered_for_backward(u);
  }
  return persistent + most;
}

std::int64_t Bounds::persistent_bytes() const {
  std::int64_t bytes = 0;
  for (int u = 0; u < units_; ++u) bytes += persistent_bytes(u);
  return bytes;
}

std::int64_t Bounds::persistent_bytes(int u) const {
  const PlannedUnit& unit = plan_.units[u];
  std::int64_t bytes = 0;
  for (int b : {unit.masters, unit.working, unit.first_moments, unit.second_moments})
    if (b >= 0 && plan_.buffers[b].space == Space::device && plan_.buffers[b].persistent)
      bytes += plan_.buffers[b].bytes;
  return bytes;
}

bool Bounds::parameters_are_on_host() const { return plan_.layouts.compute.space == Space::host; }

std::int64_t Bounds::gathers_at_least(int u) const {
  // What is needed again within that many visits may be there still.
  const int reach = reach_ + 1;
  const Reshard::Kind reshard = policy_.reshard_after_forward.kind;
  // In a pipeline visits are in another order, and units may stay.
  if (policy_.stages > 1) return 1;
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
  const Layouts& layouts = layouts_of(u);
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
        bytes += gradients(use.unit, layouts_of(use.unit).gathered.divided);
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
  std::int64_t bytes = 0;
  for (int v = u + 1; v <= std::min(u + policy_.in_flight_reductions, units_ - 1); ++v) {
    const Spans& of_unit = layouts_of(v).gathered.divided;
    const std::int64_t summing = plan_.grid.ranks() / of_unit.parts();
    if (summing == 1 && plan_.layouts.update.space == Space::device) continue;
    bytes += completed(v, of_unit);
    if (unit(v).parts > 1) continue;
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

Spans Bounds::summed_spans(int u) const {
  const Layouts& layouts = layouts_of(u);
  Spans spans = layouts.gathered.divided;
  for (int s = spans.size(); s < layouts.gradient.divided.size(); ++s) {
    const Span& span = layouts.gradient.divided.begin()[s];
    if (is_in_each_micro_batch(span.axis)) spans.push(span);
  }
  return spans;
}

std::int64_t Bounds::sums_before(int u) const {
  const std::int64_t last = plan_.grid.micro_batches() - 1;
  return policy_.leaf_order == LeafOrder::descending ? siblings(u, 0) : sums_before(u, last);
}

std::int64_t Bounds::sums_before(int u, std::int64_t micro_batch) const {
  const bool is_known =
      policy_.leaf_order == LeafOrder::ascending || unit(u).parts > 1 || continues_;
  return is_known ? siblings(u, micro_batch) : std::min<std::int64_t>(micro_batch, 1);
}

std::int64_t Bounds::siblings(int u, std::int64_t micro_batch) const {
  const std::int64_t micro_batches = plan_.grid.micro_batches();
  if (unit(u).parts > 1) return micro_batches > 1 ? 1 : 0;
  if (continues_) return 1;
  std::int64_t count = 0;
  for (TreeNode node{micro_batch, 1}; node.leaves < micro_batches;) {
    const auto [parent, sibling] = parent_and_sibling(node, micro_batches, tree_);
    // Others are those of later ones, unless it is in the order of the leaves that all are.
    if (sibling.begin < micro_batch || policy_.leaf_order == LeafOrder::descending) ++count;
    node = parent;
  }
  return count;
}

bool Bounds::may_be_checkpointed(int u) const {
  return policy_.stages == 1 ? checkpointed_[u]
                             : policy_.activation_checkpointing.every > 0 && unit(u).recomputes;
}

std::int64_t Bounds::bytes_away(int u) const {
  return input_bytes(u) + (may_be_checkpointed(u) ? 0 : unit(u).saved_bytes);
}

std::int64_t least_arena_bytes(const Bounds& bounds, const MemoryPlan& memory) {
  return std::max(memory.arena_bytes, memory.persistent_bytes + bounds.transient_bytes());
}

}  // namespace ostrakon::plan
