// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/action_parts.hpp>

namespace ostrakon::train {

plan::Spans ActionParts::gathered_parts(plan::Role role) const {
  plan::Spans parts = gathered(role);
  parts.push(buffers_.action.span);
  return parts;
}

DType dtype_of(const plan::Action& action, const plan::StepPlan& plan, DType compute) {
  return action.element_bytes == plan.layouts.masters.element_bytes ? DType::fp32 : compute;
}

}  // namespace ostrakon::train
