// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/unit.hpp>
#include <ostrakon/runtime/executor.hpp>

namespace ostrakon::train {

/// The buffers of an action as a unit takes them; a leaf has `rows` tokens, then as many targets.
inline model::UnitBuffers<float> unit_buffers(const runtime::ActionBuffers& buffers,
                                              std::int64_t rows) {
  using plan::Role;
  model::UnitBuffers<float> unit;
  unit.tokens = buffers.get<std::int32_t>(Role::batch);
  unit.targets = unit.tokens + rows;
  unit.parameters = buffers.get<float>(Role::parameters);
  unit.lender_parameters = buffers.get<float>(Role::lender_parameters);
  unit.input = buffers.get<float>(Role::input);
  unit.output = buffers.get<float>(Role::output);
  unit.saved = buffers.get<float>(Role::saved);
  unit.workspace = buffers.get<float>(Role::workspace);
  unit.gradient = buffers.get<float>(Role::gradient);
  unit.parameter_gradients = buffers.get<float>(Role::parameter_gradients);
  unit.lender_gradients = buffers.get<float>(Role::lender_gradients);
  return unit;
}

}  // namespace ostrakon::train
