// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <ostrakon/model/unit.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <type_traits>

namespace ostrakon::train {

/// The buffers of an action as its unit takes them, but for a decoder's tokens and targets.
/// `tied_to`: the unit whose parameters it reads besides its own, or -1. T: the unit's type, or
/// void where it is known at run time only.
template <class T>
model::UnitBuffers<T> unit_buffers(const runtime::ActionBuffers& buffers,
                                   const plan::StepPlan& plan, int tied_to) {
  using plan::Role;
  using Gradient = std::remove_pointer_t<decltype(model::UnitBuffers<T>::parameter_gradients)>;
  // A unit's whole parameters are those that are frozen, then those that are trained.
  const auto after_frozen = [&](const T* flat, int unit) -> const T* {
    if (flat == nullptr) return nullptr;
    const std::int64_t frozen = plan.padded(plan.frozen(unit));
    if constexpr (std::is_void<T>::value)
      return static_cast<const std::byte*>(flat) + frozen * plan.layouts.gathered.element_bytes;
    else
      return flat + frozen;
  };
  model::UnitBuffers<T> unit;
  unit.phase = std::max(buffers.action.phase, 0);
  unit.recomputes = buffers.action.kind == plan::Kind::recompute;
  unit.batch = buffers.get<void>(Role::batch);
  unit.exchanged = buffers.get<void>(Role::exchanged);
  unit.handed = buffers.get<void>(Role::handed);
  unit.frozen = buffers.get<T>(Role::parameters);
  unit.parameters = after_frozen(unit.frozen, buffers.action.unit);
  unit.tied_frozen = buffers.get<T>(Role::tied_parameters);
  unit.tied_parameters = after_frozen(unit.tied_frozen, tied_to);
  unit.input = buffers.get<T>(Role::input);
  unit.output = buffers.get<T>(Role::output);
  unit.saved = buffers.get<T>(Role::saved);
  unit.workspace = buffers.get<T>(Role::workspace);
  unit.gradient = buffers.get<T>(Role::gradient);
  unit.parameter_gradients = buffers.get<Gradient>(Role::parameter_gradients);
  unit.tied_gradients = buffers.get<Gradient>(Role::tied_gradients);
  return unit;
}

}  // namespace ostrakon::train
