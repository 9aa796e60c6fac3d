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
  /// The addend of that unit's gradient that these gradients are part of, below most_addends.
  int addend = 0;
  /// Whether backward leaves all of a leaf's in this addend. Else the backward of the unit whose
  /// parameters they are adds to them, or there are none.
  bool completes_leaf = true;
  Role parameters = Role::parameters;
  Role gradients = Role::parameter_gradients;
};

/// A unit's own parameters, then those of the unit that it is tied to.
std::vector<ParameterUse> parameter_uses(const ModelDescription& model, int unit);

/// The unit that is tied to `unit`, or -1.
int tied_unit(const ModelDescription& model, int unit);

/// Addends of a unit's gradient: sums over all leaves, each of a use of its parameters, which are
/// added when all are complete. As if uses were one more axis of sum_order.hpp, after all others.
constexpr int most_addends = 2;

/// How many a unit's gradient has: one, unless the use by a unit that is tied to it is one of its
/// own.
int gradient_addends(const ModelDescription& model, int unit);

}  // namespace ostrakon::plan
