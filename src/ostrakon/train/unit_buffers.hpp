// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/unit.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <type_traits>

namespace ostrakon::train {

/// The buffers of an action as its unit takes them; a leaf has `rows` tokens, then as many targets.
/// `lender`: the unit whose parameters it borrows, or -1.
/// T: the unit's numbers, or void where they are known at run time only.
template <class T>
model::UnitBuffers<T> unit_buffers(const runtime::ActionBuffers& buffers,
                                   const plan::StepPlan& plan, int lender, std::int64_t rows) {
  using plan::Role;
  using Gradient = std::remove_pointer_t<decltype(model::UnitBuffers<T>::parameter_gradients)>;
  // A whole flat parameter is its frozen segment, then the trained one.
  const auto after_frozen = [&](const T* flat, int unit) -> const T* {
    if (flat == nullptr) return nullptr;
    const std::int64_t frozen = plan.elements(unit, plan::Part::whole, plan::Segment::frozen);
    if constexpr (std::is_void<T>::value)
      return static_cast<const std::byte*>(flat) + frozen * plan.element_bytes;
    else
      return flat + frozen;
  };
  model::UnitBuffers<T> unit;
  unit.tokens = buffers.get<std::int32_t>(Role::batch);
  unit.targets = unit.tokens + rows;
  unit.frozen = buffers.get<T>(Role::parameters);
  unit.parameters = after_frozen(unit.frozen, buffers.action.unit);
  unit.lender_frozen = buffers.get<T>(Role::lender_parameters);
  unit.lender_parameters = after_frozen(unit.lender_frozen, lender);
  unit.input = buffers.get<T>(Role::input);
  unit.output = buffers.get<T>(Role::output);
  unit.saved = buffers.get<T>(Role::saved);
  unit.workspace = buffers.get<T>(Role::workspace);
  unit.gradient = buffers.get<T>(Role::gradient);
  unit.parameter_gradients = buffers.get<Gradient>(Role::parameter_gradients);
  unit.lender_gradients = buffers.get<Gradient>(Role::lender_gradients);
  return unit;
}

}  // namespace ostrakon::train
