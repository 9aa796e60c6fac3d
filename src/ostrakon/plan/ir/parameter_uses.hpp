// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Parameters that a unit computes with: its forward reads them.
struct ParameterUse {
  int unit = -1;               ///< the unit that owns these parameters
  bool backward_reads = true;  ///< whether backward reads them, too
  bool has_gradients = true;   ///< whether backward writes gradients of the trained ones
  /// Index of the addend of the owner's gradient that these gradients belong to, below
  /// most_addends.
  int addend = 0;
  /// Whether backward completes a leaf's gradients in this addend. Otherwise the backward of the
  /// unit that owns the parameters adds to them, or there are none.
  bool completes_leaf = true;
  Role parameters = Role::parameters;
  Role gradients = Role::parameter_gradients;
};

/// The uses of a unit: its own parameters, then those of the unit that it is tied to.
std::vector<ParameterUse> parameter_uses(const ModelDescription& model, int unit);

/// The unit that is tied to `unit`, or -1.
int tied_unit(const ModelDescription& model, int unit);

/// The maximum number of addends of a unit's gradient. An addend is a sum over all leaves for one
/// use of its parameters; addends are added when all are complete, as if uses were one more axis of
/// sum_order.hpp, after all others.
constexpr int most_addends = 2;

/// The number of addends of a unit's gradient: one, unless the use by a unit that is tied to it is
/// an addend of its own.
int gradient_addends(const ModelDescription& model, int unit);

}  // namespace ostrakon::plan
