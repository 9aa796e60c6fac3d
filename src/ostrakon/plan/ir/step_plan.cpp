// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/step_plan.hpp>

#include <algorithm>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>

namespace ostrakon::plan {
bool Action::continues_sum() const {
  return kind == Kind::reduce_scatter && std::any_of(uses.begin(), uses.end(), [](const Use& used) {
           return used.role == Role::gradient_shard && used.access == Access::read_write;
         });
}

FlatRange StepPlan::trained(int unit) const {
  const FlatRange all = units[unit].flats;
  const bool is_there = !all.empty() && flats[all.end - 1].trained;
  return {is_there ? all.end - 1 : all.end, all.end};
}

FlatRange StepPlan::frozen(int unit) const {
  const FlatRange all = units[unit].flats;
  const bool is_there = !all.empty() && !flats[all.first].trained;
  return {all.first, is_there ? all.first + 1 : all.first};
}

std::int64_t StepPlan::elements(FlatRange range, const Spans& divided) const {
  std::int64_t whole = 0;
  for (int flat = range.first; flat < range.end; ++flat) whole += flats[flat].padded;
  return whole / divided.parts();
}

std::int64_t StepPlan::first_element(int flat, const Spans& divided, int rank) const {
  std::int64_t part = flats[flat].padded, first = 0;
  for (const Span& span : divided) {
    part /= span.ranks;
    first += grid.coordinate(rank, span) * part;
  }
  return first;
}

std::int64_t StepPlan::offset_in(const Buffer& buffer, int flat, const Spans& divided,
                                 int rank) const {
  const std::int64_t before =
      first_element(flat, divided, rank) - first_element(flat, buffer.divided, rank);
  const QuantizedFlat& quantized = flats[flat].quantized;
  return size_in(buffer, {buffer.flats.first, flat}, buffer.divided) +
         (buffer.quantized ? before / quantized.part_elements * quantized.part_bytes : before);
}

std::int64_t StepPlan::quantized_bytes(FlatRange range, const Spans& divided) const {
  std::int64_t whole = 0;
  for (int flat = range.first; flat < range.end; ++flat) {
    const QuantizedFlat& quantized = flats[flat].quantized;
    whole += flats[flat].padded / quantized.part_elements * quantized.part_bytes;
  }
  return whole / divided.parts();
}

bool StepPlan::quantizes(FlatRange range) const {
  return !range.empty() &&
         std::any_of(flats.begin() + range.first, flats.begin() + range.end,
                     [](const FlatParameter& flat) { return !flat.quantized.empty(); });
}

std::int64_t StepPlan::replaced_bytes(int unit) const {
  const PlannedUnit& of = units[unit];
  std::int64_t bytes =
      elements(trained(unit), of.layouts.update.divided) * of.layouts.masters.element_bytes;
  for (int state : {of.first_moments, of.second_moments, of.averages})
    if (state >= 0) bytes += buffers[state].bytes;
  return bytes;
}

std::string StepPlan::describe(const Action& action) const {
  std::string text = name(action.kind);
  // Copies of the batch and of the sums, which belong to no unit, are named by their device buffer.
  const int copied = action.kind == Kind::copy_to_device ? action.buffer(Role::target)
                     : action.kind == Kind::copy_to_host ? action.buffer(Role::source)
                                                         : -1;
  if (action.unit < 0 && action.micro_batch < 0 && copied < 0) return text;
  text += "(";
  const bool of_step = action.unit < 0 && copied >= 0;
  if (action.unit >= 0) text += units[action.unit].name;
  if (of_step) text += buffers[copied].name;
  if (is_again(action))
    text += action.unit >= 0 || of_step ? ", again" : "again";
  else if (action.micro_batch >= 0)
    text += (action.unit >= 0 || of_step ? ", micro-batch " : "micro-batch ") +
            std::to_string(action.micro_batch);
  if (action.phase >= 0) text += ", phase " + std::to_string(action.phase);
  if (action.peer >= 0)
    text +=
        (action.kind == Kind::send ? ", to stage " : ", from stage ") + std::to_string(action.peer);
  if (!action.flats.empty() && !flats[action.flats.first].trained) text += ", frozen";
  return text + ")";
}

std::vector<Span> StepPlan::sum_spans() const {
  return plan::sum_spans(grid, layouts.accumulation);
}

std::int64_t StepPlan::leaves_apart() const {
  return plan::leaves_apart(grid, layouts.accumulation, layouts.sharing_ranks);
}

std::vector<SpanSum> StepPlan::span_sums(int unit) const {
  const int parts = units[static_cast<std::size_t>(unit)].layouts.expert_ranks;
  return plan::span_sums(plan::sum_spans(grid, layouts.accumulation, parts), layouts.sum_grain,
                         std::max<std::int64_t>(parts, leaves_apart()), layouts.summation);
}

std::int64_t StepPlan::leaf(int rank, std::int64_t micro_batch) const {
  std::int64_t leaf = 0, stride = 1;
  for (const Span& span : leaf_spans(grid, layouts.accumulation, layouts.sharing_ranks)) {
    leaf += stride * (span.axis == Axis::micro_batch ? micro_batch : grid.coordinate(rank, span));
    stride *= span.ranks;
  }
  return leaf;
}

std::int64_t StepPlan::bytes_sent(const Action& action) const {
  if (action.kind == Kind::send) return action.elements * action.element_bytes;
  if (action.kind == Kind::audit)
    return action.elements / grid.ranks() * (grid.ranks() - 1) * action.element_bytes;
  if (!communicates(action.kind)) return 0;
  return action.elements * action.element_bytes / action.span.ranks * (action.span.ranks - 1);
}

std::int64_t StepPlan::bytes_sent() const {
  std::int64_t bytes = 0;
  for (const Action& action : actions) bytes += bytes_sent(action);
  return bytes;
}

std::int64_t StepPlan::bytes_left_out_if_even() const {
  std::int64_t bytes = 0;
  for (const Action& action : actions)
    if (action.empty_if_even) bytes += bytes_sent(action);
  return bytes;
}

double StepPlan::flops() const {
  double total = 0.0;
  for (const Action& action : actions) total += action.flops;
  return total;
}

int StepPlan::ranks_of_sample() const {
  int most = 1;
  for (const Action& action : actions)
    // Ranks that share a unit's parts compute samples of their own.
    if (action.kind == Kind::exchange && has_leaves(action.span.axis) &&
        units[static_cast<std::size_t>(action.unit)].layouts.expert_ranks == 1)
      most = std::max(most, action.span.ranks);
  return most <= layouts.sample_grain ? 1 : most;
}

bool StepPlan::sums_in_one_order() const {
  if (layouts.splits_ties || leaves_apart() > 1) return false;
  // One rank rounds no gradient, and leaves no sum to a library.
  if (std::any_of(actions.begin(), actions.end(), [&](const Action& action) {
        return action.kind == Kind::reduce_scatter &&
               (action.element_bytes != layouts.gradient.element_bytes ||
                layouts.summation == Summation::library);
      }))
    return false;
  const std::vector<Span> spans = sum_spans();
  // Tensor ranks have runs of their rows, which are parts of the tree over all then.
  const bool has_part = !spans.empty() || grid.tensor() > 1;
  if (has_part && !is_power_of_two(layouts.leaves_at_once)) return false;
  return sums_as_one_rank(spans, layouts.sum_grain);
}

std::uint64_t StepPlan::hash() const {
  Hasher hasher;
  const auto add_spans = [&](const Spans& spans) {
    hasher.add(spans.size());
    for (const Span& span : spans) hasher.add(span.axis, span.ranks, span.stride);
  };
  const auto add_flats = [&](FlatRange range) { hasher.add(range.first, range.end); };
  hasher.add(purpose);
  for (std::int64_t size : grid.sizes) hasher.add(size);
  hasher.add(grid.shard_first);
  // Without windows, staging buffers show who sums.
  if (grid.window > 0) hasher.add(grid.window, layouts.summation);
  hasher.add(stage, layouts.accumulation, layouts.sum_grain);
  if (leaves_apart() > 1) hasher.add(layouts.sharing_ranks);
  for (const Layout* layout : {&layouts.masters, &layouts.compute, &layouts.gathered,
                               &layouts.gradient, &layouts.update}) {
    add_spans(layout->divided);
    hasher.add(layout->space, layout->element_bytes);
  }
  for (const FlatParameter& flat : flats)
    hasher.add(flat.unit, flat.trained, flat.elements, flat.padded);
  for (const FlatParameter& flat : flats) {
    const QuantizedFlat& quantized = flat.quantized;
    if (quantized.empty()) continue;
    hasher.add(flat.unit, quantized.part_elements, quantized.part_bytes, quantized.runs);
    for (int run = 0; run < quantized.runs; ++run)
      hasher.add(quantized.begin[run], quantized.end[run]);
  }
  for (const PlannedUnit& unit : units) {
    hasher.add(unit.layouts.expert_ranks, unit.whole_matrices.size());
    for (const WholeMatrix& matrix : unit.whole_matrices)
      hasher.add(matrix.offset, matrix.elements);
  }
  for (const Buffer& buffer : buffers) {
    hasher.add(buffer.name, buffer.bytes, buffer.space, buffer.persistent);
    if (buffer.quantized) hasher.add(buffer.quantized);
    add_flats(buffer.flats);
    add_spans(buffer.divided);
  }
  for (const Action& action : actions) {
    hasher.add(action.kind, action.stream, action.span.axis, action.span.ranks, action.span.stride,
               action.unit, action.micro_batch, action.phase, action.peer, action.exchange,
               action.elements, action.element_bytes, action.tree, action.converts, action.adds_to,
               action.may_be_empty, action.empty_if_even);
    add_flats(action.flats);
    add_spans(action.divided);
    hasher.add(action.uses.size());
    for (const Use& used : action.uses) hasher.add(used.role, used.buffer, used.access);
    if (action.digest >= 0) hasher.add(action.digest);
    hasher.add(action.waits.size());
    for (int wait : action.waits) hasher.add(wait);
  }
  return hasher.value();
}

bool is_deferred(const StepPlan& plan, const Action& action) {
  if (action.kind != Kind::backward) return false;
  const PlannedUnit& unit = plan.units[static_cast<std::size_t>(action.unit)];
  return unit.first_gradient_phase > 0 && action.phase >= unit.first_gradient_phase &&
         action.buffer(Role::deferred) >= 0;
}

}  // namespace ostrakon::plan
