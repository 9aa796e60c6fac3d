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

  Packing frozen(parameter_alignment), trained(parameter_alignment), saved(buffer_alignment<T>);
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
  description_.recomputes = description_.saved_bytes > 0;
  describe_phases();
}

namespace {

/// Those of one more unit: in the one phase of all, or behind theirs.
void append(plan::Phases& all, const plan::Phases& more, bool in_one) {
  if (!in_one) return plan::append(all, more);
  plan::Phase& one = all.front();
  one.workspace_bytes = std::max(one.workspace_bytes, more.front().workspace_bytes);
  one.flops += more.front().flops;
  one.recompute_flops += more.front().recompute_flops;
}

}  // namespace

template <class T>
void StackUnit<T>::describe_phases() {
  in_one_phase_ = std::all_of(units_.begin(), units_.end(), [](const auto& unit) {
    return unit->description().forward.size() == 1 && unit->description().backward.size() == 1;
  });
  const std::size_t begun = in_one_phase_ ? 1 : 0;
  description_.forward.assign(begun, {});
  description_.backward.assign(begun, {});
  for (const auto& unit : units_) {
    plan::Phases forward = unit->description().forward;
    // Their outputs are computed again, but that of the last one is not.
    if (unit != units_.back())
      for (plan::Phase& phase : forward) {
        phase.recompute_flops = phase.flops;
        phase.recomputes = true;
        phase.writes_output = false;
      }
    append(description_.forward, forward, in_one_phase_);
  }
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit)
    append(description_.backward, (*unit)->description().backward, in_one_phase_);
}

template <class T>
template <class Call>
void StackUnit<T>::for_phase(int phase, const plan::Phases plan::UnitDescription::*phases,
                             bool from_last, const Call& call) const {
  int first = 0;  // phase of the unit
  for (std::size_t n = 0; n < units_.size(); ++n) {
    const std::size_t i = from_last ? units_.size() - 1 - n : n;
    const int count = static_cast<int>((units_[i]->description().*phases).size());
    if (in_one_phase_)
      call(i, 0);
    else if (first <= phase && phase < first + count)
      call(i, phase - first);
    first += count;
  }
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
  if (index > 0)
    part.input = between(offsets_[index - 1].output, units_[index - 1]->description().output_bytes);
  if (index + 1 < units_.size())
    part.output = between(offsets.output, units_[index]->description().output_bytes);
  return part;
}

/// Without an output of its own the last unit only saves; those before write the outputs between.
template <class T>
void StackUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  for_phase(buffers.phase, &plan::UnitDescription::forward, false, [&](std::size_t i, int phase) {
    UnitBuffers<T> part = buffers_of(i, buffers);
    part.phase = phase;
    units_[i]->forward(exec, part, rows);
  });
}

/// `gradient` is dL/d output of one unit after the other, as it is between units of a model.
template <class T>
void StackUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                            compute_t<T> loss_scale, bool gradients_opened) const {
  for_phase(buffers.phase, &plan::UnitDescription::backward, true, [&](std::size_t i, int phase) {
    UnitBuffers<T> part = buffers_of(i, buffers);
    part.phase = phase;
    units_[i]->backward(exec, part, loss_scale, gradients_opened);
  });
}

template class StackUnit<float>;
template class StackUnit<double>;
template class StackUnit<bf16>;
template class StackUnit<fp16>;

}  // namespace ostrakon::model
