// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/unit.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <type_traits>

namespace ostrakon::train {

/// The buffers of an action as a unit takes them; a leaf has `rows` tokens, then as many targets.
/// T: the unit's numbers, or void where they are known at run time only.
template <class T>
model::UnitBuffers<T> unit_buffers(const runtime::ActionBuffers& buffers, std::int64_t rows) {
  using plan::Role;
  using Gradient = std::remove_pointer_t<decltype(model::UnitBuffers<T>::parameter_gradients)>;
  model::UnitBuffers<T> unit;
  unit.tokens = buffers.get<std::int32_t>(Role::batch);
  unit.targets = unit.tokens + rows;
  unit.parameters = buffers.get<T>(Role::parameters);
  unit.lender_parameters = buffers.get<T>(Role::lender_parameters);
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
