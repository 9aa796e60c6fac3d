// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/reduction_pass.hpp>

#include <algorithm>

namespace ostrakon::plan {
ReductionPass::ReductionPass(Builder& builder, const Policy& policy, SumsPass& sums)
    : builder_(builder),
      sums_(sums),
      in_flight_(policy.in_flight_reductions),
      update_space_(builder.plan().layouts.update.space),
      unit_sums_(static_cast<std::size_t>(builder.units())),
      together_(static_cast<std::size_t>(builder.units()), false) {
  for (int u = 0; u < builder.units(); ++u) {
    spans_.push_back(builder.plan().span_sums(u));
    unit_sums_[u].to_come = is_borrowed(u)
                                ? 1
                                : gradient_addends(builder.model(), u) +
                                      (builder.unit(u).tied_stages.replica_has_gradient ? 1 : 0);
  }
}

void ReductionPass::on(const Task& task, Tape& tape) {
  if (task.work == Work::clip) {
    finish_reductions(0);
    for (int u = 0; u < builder_.units(); ++u) {
      reduce_across_stages(u);
      finish_sends();
    }
    finish_on_host(0);
  }
  // Gradients that other stages wait for are sent before compute has something else to do.
  if (task.work == Work::update && builder_.plan().layouts.updates_optimistically)
    for (int u = 0; u < builder_.units(); ++u)
      if (is_borrowed(u)) complete(u);
  if (task.work != Work::reduce) return;
  std::vector<Reduction> begun;
  for (const ParameterUse& use : builder_.parameter_uses(task.unit)) {
    int& gradients = tape.units[use.unit].parameter_gradients[use.addend];
    if (!use.completes_leaf || gradients < 0) continue;  // all may be frozen
    Reduction reduction;
    reduction.unit = use.unit;
    reduction.addend = use.addend;
    reduction.micro_batch = task.micro_batch;
    reduction.divided = builder_.state(use.unit).layouts.gathered.divided;
    reduction.sum = std::exchange(gradients, -1);
    reduce(reduction);
    if (reduction.stream == Stream::compute)
      finish(reduction);
    else
      begun.push_back(std::move(reduction));
  }
  if (begun.empty()) return;
  reductions_.push_back(std::move(begun));
  if (in_flight_ == 0) finish_reductions(0);
}

int ReductionPass::take_partial_sum(int u, int addend, int micro_batch) {
  const StepPlan& plan = builder_.plan();
  // Digests of an audit are of the gradients of each leaf.
  const bool is_summed_here =
      plan.purpose == Purpose::train && update_space_ == Space::device && !spans_[u].empty() &&
      spans_[u].front().span.axis == Axis::micro_batch && !spans_[u].front().continues;
  const bool is_tied = builder_.unit(u).tied_to >= 0 || tied_unit(builder_.model(), u) >= 0;
  if (!is_summed_here || is_tied || !builder_.unit(u).can_add_gradients) return -1;
  const auto [parent, sibling] =
      parent_and_sibling({micro_batch, 1}, plan.grid.micro_batches(), spans_[u].front().tree);
  Addend& sums = unit_sums_[u].addends[addend];
  const auto waiting = sums.partial.find(sibling);
  if (waiting == sums.partial.end()) return -1;
  const int sum = waiting->second;
  sums.partial.erase(waiting);
  sums.added_in_backward[micro_batch] = parent;
  return sum;
}

void ReductionPass::complete(int u) {
  const auto is_under_way = [&] {
    return std::any_of(reductions_.begin(), reductions_.end(), [&](const auto& together) {
      return std::any_of(together.begin(), together.end(),
                         [&](const Reduction& reduction) { return reduction.unit == u; });
    });
  };
  while (is_under_way()) finish_reductions(reductions_.size() - 1);
  reduce_across_stages(u);
}

void ReductionPass::reduce(Reduction& reduction) {
  for (const SpanSum& sum : spans_[reduction.unit]) {
    if (sum.span.axis != Axis::micro_batch)
      reduce_scatter(reduction, sum);
    else if (sum.continues)
      keep_so_far(reduction);
    else
      fold(reduction, sum.tree);
  }
  bring_to(update_space_, reduction);
  add_addends(reduction);
  if (reduction.sum < 0 || is_borrowed(reduction.unit)) return;
  builder_.state(reduction.unit).gradients = reduction.sum;
  if (update_space_ == Space::host) sums_.add_norm(reduction.unit);
}

ReductionPass::Addend& ReductionPass::addend_of(const Reduction& reduction) {
  return unit_sums_[reduction.unit].addends[reduction.addend];
}

/// Moves a reduction to another stream: from here on it overlaps with compute, and with reductions
/// of at most `in_flight_` other backwards.
void ReductionPass::leave_compute(Reduction& reduction, Stream stream) {
  if (reduction.stream == Stream::compute)
    finish_reductions(static_cast<std::size_t>(std::max(in_flight_ - 1, 0)));
  reduction.stream = stream;
}

/// Copies the sum so far to the memory where the sum continues.
void ReductionPass::bring_to(Space space, Reduction& reduction) {
  if (reduction.sum < 0 || builder_.buffer(reduction.sum).space == space) return;
  const bool up = space == Space::device;
  leave_compute(reduction, up ? Stream::reduce : Stream::host);
  reduction.ended.push_back(reduction.sum);
  reduction.sum =
      builder_.copied(reduction.unit, reduction.sum, up ? "gradients" : "gradients on host");
}

/// Sums gradients over the ranks of a span; this rank's part is left, or added to the sum so far.
void ReductionPass::reduce_scatter(Reduction& reduction, const SpanSum& sum) {
  const Span& span = sum.span;
  const StepPlan& plan = builder_.plan();
  if (reduction.sum < 0) return;
  const int u = reduction.unit;
  bring_to(Space::device, reduction);
  leave_compute(reduction, Stream::reduce);
  const std::int64_t elements = plan.elements(plan.trained(u), reduction.divided);
  const Layouts& layouts = builder_.state(u).layouts;
  const std::int64_t reduce_element_bytes = layouts.reduce_element_bytes_over(span);
  const auto make_staging = [&](const char* what) {
    return builder_.make_buffer(what, u, Category::staging, elements * reduce_element_bytes);
  };
  const int packed = layouts.rounds(span) ? make_staging("packed") : -1;
  // The staging buffer of the level inside nodes is free again by then, and large enough.
  const bool has_staging =
      reduction.staging >= 0 && reduction.divided.innermost().axis == span.axis;
  const bool needs_staging = layouts.summation == Summation::ordered && !plan.grid.has_window(span);
  const int staging = !needs_staging ? -1
                      : has_staging  ? reduction.staging
                                     : make_staging("staging");
  reduction.divided.push(span);
  const int so_far = sum.continues ? sum_so_far(reduction) : -1;
  const int part = so_far >= 0 ? so_far
                               : builder_.make_gradients(
                                     "gradient shard", u,
                                     layouts.gradient.over(reduction.divided).in(Space::device));
  Action& action =
      builder_.emit_collective(Kind::reduce_scatter, u, span, elements, reduce_element_bytes);
  if (sum.tree < span.ranks) action.tree = sum.tree;
  builder_.use(action, Role::parameter_gradients, reduction.sum, Access::read);
  builder_.use(action, Role::packed, packed, Access::write);
  builder_.use(action, Role::staging, staging, Access::write);
  builder_.use(action, Role::gradient_shard, part,
               so_far >= 0 ? Access::read_write : Access::write);
  for (int ended : {reduction.sum, packed, has_staging ? -1 : staging})
    if (ended >= 0) reduction.ended.push_back(ended);
  reduction.staging = staging;
  reduction.sum = part;
}

/// Returns the buffer on the device of the sum over the micro-batches before; -1 for the first.
int ReductionPass::sum_so_far(Reduction& reduction) {
  const int so_far = addend_of(reduction).so_far;
  return so_far >= 0 && builder_.is_on_host(so_far)
             ? builder_.copied(reduction.unit, so_far, "gradient shard")
             : so_far;
}

/// Keeps a sum that reduce-scatters have added to: it waits for the last micro-batch in the memory
/// where updates will need it.
void ReductionPass::keep_so_far(Reduction& reduction) {
  int& so_far = addend_of(reduction).so_far;
  if (so_far < 0) {
    bring_to(update_space_, reduction);
    so_far = reduction.sum;
  } else if (so_far != reduction.sum) {
    leave_compute(reduction, Stream::host);
    reduction.ended.push_back(reduction.sum);
    builder_.copy(reduction.unit, reduction.sum, so_far);
    reduction.sum = so_far;
  }
  if (reduction.micro_batch + 1 < builder_.plan().grid.micro_batches()) reduction.sum = -1;
}

/// Adds the sum so far to the addend's tree over micro-batches: the root is left once it is
/// complete. Nodes with more than `tree` micro-batches are sums of trees, one after the other.
void ReductionPass::fold(Reduction& reduction, int tree) {
  const std::int64_t micro_batches = builder_.plan().grid.micro_batches();
  if (reduction.sum < 0) return;
  // Partial sums wait in the memory where updates will need them.
  bring_to(update_space_, reduction);
  auto& [done, added_in_backward, so_far] = addend_of(reduction);
  TreeNode node{reduction.micro_batch, 1};
  if (const auto sum = added_in_backward.find(reduction.micro_batch);
      sum != added_in_backward.end()) {
    node = sum->second;
    added_in_backward.erase(sum);
  }
  while (node.leaves < micro_batches) {
    const auto [parent, sibling] = parent_and_sibling(node, micro_batches, tree);
    const auto other = done.find(sibling);
    if (other == done.end()) {
      done[node] = reduction.sum;
      reduction.sum = -1;
      return;
    }
    add_to(other->second, reduction);
    done.erase(other);
    node = parent;
  }
}

/// Adds the sum so far to an older one, `other`, which takes its place. Adding two floats gives the
/// same bits in either order.
void ReductionPass::add_to(int other, Reduction& reduction) {
  const StepPlan& plan = builder_.plan();
  Action& action = builder_.emit(Kind::accumulate, reduction.stream, reduction.unit);
  action.elements = plan.elements(plan.trained(reduction.unit), reduction.divided);
  builder_.use(action, Role::source, reduction.sum, Access::read);
  builder_.use(action, Role::parameter_gradients, other, Access::read_write);
  if (reduction.stream != Stream::compute) reduction.ended.push_back(reduction.sum);
  reduction.sum = other;
}

/// Adds a complete addend to the unit's other complete ones: their sum is left once all are.
void ReductionPass::add_addends(Reduction& reduction) {
  if (reduction.sum < 0) return;
  UnitSums& sums = unit_sums_[reduction.unit];
  if (sums.sum >= 0) add_to(sums.sum, reduction);
  sums.sum = reduction.sum;
  if (--sums.to_come > 0) reduction.sum = -1;
}

/// Makes compute wait for a reduction, and ends its buffers.
void ReductionPass::finish(const Reduction& reduction) {
  if (reduction.sum >= 0 && update_space_ == Space::device && !is_borrowed(reduction.unit))
    sums_.add_norm(reduction.unit);
  std::vector<int> on_device, on_host;
  for (int buffer : reduction.ended)
    (builder_.is_on_host(buffer) ? on_host : on_device).push_back(buffer);
  builder_.release(reduction.unit, on_device);
  ended_on_host_.emplace_back(reduction.unit, std::move(on_host));
  finish_on_host(units_behind);
}

/// Sums the gradients of parameters that two stages use: this stage sends its sum to the stage that
/// updates them, or adds the sum that the other one sends.
void ReductionPass::reduce_across_stages(int u) {
  if (together_[u]) return;
  together_[u] = true;
  const UnitDescription& unit = builder_.unit(u);
  const auto emit = [&](Kind kind, int peer, int buffer, Access access) {
    const StepPlan& plan = builder_.plan();
    Action& action = builder_.emit(kind, u);
    action.peer = peer;
    action.span = plan.grid.span(Axis::pipeline);
    action.elements = plan.elements(plan.trained(u), builder_.state(u).layouts.gradient.divided);
    action.element_bytes = plan.layouts.gradient.element_bytes;
    builder_.use(action, Role::gradient_shard, buffer, access);
  };
  if (is_borrowed(u) && unit_sums_[u].sum >= 0) {
    emit(Kind::send, unit.tied_stages.source, unit_sums_[u].sum, Access::read);
    sends_.emplace_back(u, unit_sums_[u].sum);
  }
  if (!unit.tied_stages.replica_has_gradient || !trains(builder_.plan().purpose)) return;
  Reduction reduction;
  reduction.unit = u;
  const Layout& layout = builder_.state(u).layouts.gradient;
  reduction.divided = layout.divided;
  reduction.sum = builder_.make_gradients("gradients of copy", u, layout);
  emit(Kind::receive, unit.tied_stages.replica, reduction.sum, Access::write);
  if (update_space_ == Space::host) reduction.stream = Stream::host;
  add_addends(reduction);
  builder_.state(u).gradients = reduction.sum;
  if (update_space_ == Space::host) sums_.add_norm(u);
  finish(reduction);
}

void ReductionPass::finish_sends() {
  for (const auto& [u, sum] : sends_) builder_.release(u, {sum});
  sends_.clear();
}

/// Waits for reductions, the oldest first, until those of `most` backwards are left.
void ReductionPass::finish_reductions(std::size_t most) {
  while (reductions_.size() > most) {
    for (const Reduction& reduction : reductions_.front()) finish(reduction);
    reductions_.pop_front();
  }
}

void ReductionPass::finish_on_host(std::size_t most) {
  while (ended_on_host_.size() > most) {
    builder_.release(ended_on_host_.front().first, ended_on_host_.front().second);
    ended_on_host_.pop_front();
  }
}

}  // namespace ostrakon::plan
