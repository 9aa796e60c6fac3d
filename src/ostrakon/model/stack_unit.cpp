// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/stack_unit.hpp>

#include <algorithm>
#include <ostrakon/model/packing.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model {
namespace {

/// A unit's `elements` of a segment of the stack: none where the unit has none.
/// In pieces: its first piece, and all that follows.
template <class T>
View<T*> part_of(View<T*> segment, std::int64_t offset, std::int64_t elements, bool in_pieces) {
  if (elements == 0) return {};
  return segment.range(offset, in_pieces ? segment.size() : offset + elements);
}

std::int64_t pieces_of(const std::vector<Parameter>& parameters) {
  return parameters.empty() ? 1 : parameters.front().pieces;
}

}  // namespace

template <class T>
StackUnit<T>::StackUnit(std::string name, Units units) : units_(std::move(units)) {
  if (units_.empty()) throw std::logic_error("stack " + name + " has no units");
  description_.name = std::move(name);
  description_.output_bytes = units_.back()->description().output_bytes;
  description_.backward_reads_parameters = false;

  Packing frozen(parameter_alignment), trained(parameter_alignment), saved(buffer_alignment<T>),
      deferred(buffer_alignment<T>);
  for (const auto& unit : units_) {
    const plan::UnitDescription& part = unit->description();
    if (part.tied_to >= 0)
      throw std::logic_error("unit " + part.name +
                             " is tied to another unit: it can't be part of " + description_.name);
    UnitOffsets offsets{};
    pieces_ = std::max(pieces_, pieces_of(unit->parameters()));
    offsets.frozen = frozen.place(part.frozen_elements / pieces_);
    offsets.trained = trained.place(part.trained_elements() / pieces_);
    offsets.saved = saved.place(part.saved_bytes);
    if (unit != units_.back()) offsets.output = saved.place(part.output_bytes);
    offsets.deferred = deferred.place(part.deferred_bytes);
    offsets.counts = plan::counted(description_);
    description_.counts.insert(description_.counts.end(), part.counts.begin(), part.counts.end());
    offsets_.push_back(offsets);

    for (Parameter parameter : unit->parameters()) {
      parameter.offset += parameter.frozen ? offsets.frozen : offsets.trained;
      parameters_.push_back(std::move(parameter));
    }
    description_.gradient_flops += part.gradient_flops;
    if (part.backward_reads_parameters) description_.backward_reads_parameters = true;
  }
  frozen_stride_ = round_up(frozen.size(), parameter_alignment);
  trained_stride_ = round_up(trained.size(), parameter_alignment);
  for (Parameter& parameter : parameters_)
    parameter.piece_stride = parameter.frozen ? frozen_stride_ : trained_stride_;
  description_.frozen_elements = pieces_ * frozen_stride_;
  description_.parameter_elements = description_.frozen_elements + pieces_ * trained_stride_;
  description_.saved_bytes = saved.size();
  description_.deferred_bytes = deferred.size();
  description_.recomputes = description_.saved_bytes > 0;
  describe_phases();
}

namespace {

/// Some phases of one more unit: in the one phase of all, or behind theirs.
void append(plan::Phases& all, const plan::Phases& more, bool in_one) {
  if (!in_one || all.empty()) return plan::append(all, more);
  plan::Phase& one = all.front();
  one.workspace_bytes = std::max(one.workspace_bytes, more.front().workspace_bytes);
  one.flops += more.front().flops;
  one.recompute_flops += more.front().recompute_flops;
  one.work += more.front().work;
  one.recompute_work += more.front().recompute_work;
}

/// Notes that `phases` of `unit`, from `first` on, are computed in the one phase of all, or behind
/// others.
template <class UnitPhase>
void note(std::vector<std::vector<UnitPhase>>& all, std::size_t unit, int first, int phases,
          bool in_one) {
  for (int phase = first; phase < first + phases; ++phase) {
    if (!in_one || all.empty()) all.emplace_back();
    all.back().push_back({unit, phase});
  }
}

bool has_one_phase(const plan::UnitDescription& unit) {
  return unit.forward.size() == 1 && unit.backward.size() == unit.deferred_phases + 1u &&
         unit.deferred_phases <= 1;
}

}  // namespace

template <class T>
void StackUnit<T>::describe_phases() {
  const bool in_one = std::all_of(units_.begin(), units_.end(), [](const auto& unit) {
    return has_one_phase(unit->description());
  });
  description_.forward.clear();
  for (std::size_t i = 0; i < units_.size(); ++i) {
    plan::Phases forward = units_[i]->description().forward;
    // Their outputs are computed again, but that of the last one is not.
    if (i + 1 < units_.size())
      for (plan::Phase& phase : forward) {
        phase.recompute_flops = phase.flops;
        phase.recompute_work = phase.work;
        phase.recomputes = true;
        phase.writes_output = false;
      }
    append(description_.forward, forward, in_one);
    note(forward_, i, 0, static_cast<int>(forward.size()), in_one);
  }
  description_.backward = describe_backward(false, backward_);
  if (description_.deferred_phases > 0)
    description_.backward_at_once = describe_backward(true, at_once_);
}

/// From the last unit to the first; what is deferred in the same order after all else.
template <class T>
plan::Phases StackUnit<T>::describe_backward(bool at_once, Order& order) {
  plan::Phases backward, deferred;
  Order deferred_order;
  std::vector<plan::UnitDescription> parts;
  for (const auto& unit : units_)
    parts.push_back(at_once ? plan::at_once(unit->description()) : unit->description());
  const bool in_one = std::all_of(parts.begin(), parts.end(), has_one_phase);
  for (std::size_t i = units_.size(); i-- > 0;) {
    const plan::UnitDescription& part = parts[i];
    const auto end = part.backward.end() - part.deferred_phases;
    const auto first = static_cast<int>(end - part.backward.begin());
    append(backward, {part.backward.begin(), end}, in_one);
    note(order, i, 0, first, in_one);
    if (part.deferred_phases == 0) continue;
    if (std::any_of(end, part.backward.end(),
                    [](const plan::Phase& phase) { return !phase.reads.empty(); }))
      throw std::logic_error("unit " + part.name + " defers phases that exchange activations");
    append(deferred, {end, part.backward.end()}, in_one);
    note(deferred_order, i, first, part.deferred_phases, in_one);
  }
  if (!at_once) description_.deferred_phases = static_cast<int>(deferred.size());
  plan::append(backward, deferred);
  order.insert(order.end(), deferred_order.begin(), deferred_order.end());
  return backward;
}

template <class T>
UnitBuffers<T> StackUnit<T>::buffers_of(std::size_t index, const UnitBuffers<T>& stack) const {
  const UnitOffsets& offsets = offsets_[index];
  const std::int64_t frozen = units_[index]->description().frozen_elements;
  const std::int64_t trained = units_[index]->description().trained_elements();
  UnitBuffers<T> part = stack;
  const bool in_pieces = pieces_ > 1;
  part.frozen = part_of(stack.frozen, offsets.frozen, frozen, in_pieces);
  part.parameters = part_of(stack.parameters, offsets.trained, trained, in_pieces);
  part.parameter_gradients =
      part_of(stack.parameter_gradients, offsets.trained, trained, in_pieces);
  part.frozen_stride = frozen_stride_;
  part.trained_stride = trained_stride_;
  const auto between = [&](std::int64_t offset, std::int64_t bytes) {
    return array_in<T>(stack.saved, offset, bytes / bytes_of<T>(1));
  };
  part.saved =
      stack.saved.range(offsets.saved, offsets.saved + units_[index]->description().saved_bytes);
  if (stack.deferred)
    part.deferred = stack.deferred.range(
        offsets.deferred, offsets.deferred + units_[index]->description().deferred_bytes);
  if (stack.counts)
    part.counts = stack.counts.range(offsets.counts,
                                     offsets.counts + plan::counted(units_[index]->description()));
  if (index > 0)
    part.input = between(offsets_[index - 1].output, units_[index - 1]->description().output_bytes);
  if (index + 1 < units_.size())
    part.output = between(offsets.output, units_[index]->description().output_bytes);
  return part;
}

/// Without an output of its own the last unit only saves; those before write the outputs between.
template <class T>
void StackUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  for (const auto& [unit, phase] : forward_[static_cast<std::size_t>(buffers.phase)]) {
    UnitBuffers<T> part = buffers_of(unit, buffers);
    part.phase = phase;
    units_[unit]->forward(exec, part, rows);
  }
}

/// `gradient` is dL/d output of one unit after the other, as it is between units of a model.
template <class T>
void StackUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                            compute_t<T> loss_scale, bool gradients_opened) const {
  const Order& order = buffers.deferred || at_once_.empty() ? backward_ : at_once_;
  for (const auto& [unit, phase] : order[static_cast<std::size_t>(buffers.phase)]) {
    UnitBuffers<T> part = buffers_of(unit, buffers);
    part.phase = phase;
    units_[unit]->backward(exec, part, loss_scale, gradients_opened);
  }
}

template class StackUnit<float>;
template class StackUnit<double>;
template class StackUnit<bf16>;
template class StackUnit<fp16>;

}  // namespace ostrakon::model
