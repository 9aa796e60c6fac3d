// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Parameters that a unit computes with: forward reads them.
struct ParameterUse {
  int unit = -1;               ///< whose flat parameters they are
  bool backward_reads = true;  ///< whether backward reads them, too
  bool has_gradients = true;   ///< whether backward writes gradients of those that are trained
  Role parameters = Role::parameters;
  Role gradients = Role::parameter_gradients;
};

/// A unit's own parameters, then those of the unit that it is tied to.
std::vector<ParameterUse> parameter_uses(const ModelDescription& model, int unit);

/// The unit that is tied to `unit`, or -1.
int tied_unit(const ModelDescription& model, int unit);

}  // namespace ostrakon::plan
