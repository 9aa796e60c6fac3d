// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <type_traits>

namespace ostrakon::train {

/// Returns the buffers of an action as its unit takes them, without a decoder's tokens and targets.
/// `tied_to`: the unit whose parameters it reads besides its own, or -1. T: the unit's type, or
/// void if it is known only at run time.
template <class T>
model::UnitBuffers<T> unit_buffers(const runtime::ActionBuffers& buffers,
                                   const plan::StepPlan& plan, int tied_to) {
  using plan::Role;
  using Element = typename model::UnitBuffers<T>::Element;
  using Sum = typename model::UnitBuffers<T>::Sum;
  const auto find = [&](Role role) { return buffers.device_view<Element>(role); };
  // A unit's gathered parameters have the frozen ones first, then the trained ones.
  const auto after_frozen = [&](View<const Element*> flat, int unit) {
    if (!flat) return flat;
    const std::int64_t frozen =
        plan.elements(plan.frozen(unit), plan.units[unit].layouts.gathered.divided);
    const std::int64_t size = std::is_void<T>::value ? plan.layouts.gathered.element_bytes : 1;
    return flat.range(frozen * size, flat.size());
  };
  model::UnitBuffers<T> unit;
  unit.phase = std::max(buffers.action.phase, 0);
  unit.recomputes = buffers.action.kind == plan::Kind::recompute;
  unit.batch = buffers.device_view<std::byte>(Role::batch);
  unit.recv_buffer = buffers.device_view<std::byte>(Role::recv_buffer);
  unit.second_recv_buffer = buffers.device_view<std::byte>(Role::second_recv_buffer);
  unit.send_buffer = buffers.device_view<std::byte>(Role::send_buffer);
  unit.frozen = find(Role::parameters);
  unit.parameters = after_frozen(unit.frozen, buffers.action.unit);
  unit.tied_frozen = find(Role::tied_parameters);
  unit.tied_parameters = after_frozen(unit.tied_frozen, tied_to);
  unit.input = find(Role::input);
  unit.output = find(Role::output);
  unit.saved = buffers.device_view<std::byte>(Role::saved);
  unit.deferred = buffers.device_view<std::byte>(Role::deferred);
  unit.workspace = buffers.device_view<std::byte>(Role::workspace);
  unit.gradient = find(Role::gradient);
  unit.parameter_gradients = buffers.device_view<Sum>(Role::parameter_gradients);
  unit.tied_gradients = buffers.device_view<Sum>(Role::tied_gradients);
  return unit;
}

}  // namespace ostrakon::train
