// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/step_plan.hpp>

namespace ostrakon::plan {

/// Elements of a unit that a rank may update outside of whole matrices: those of the rank that has
/// the most.
std::int64_t most_outside_matrices(const StepPlan& plan, int unit);

/// Floating-point operations to orthogonalize what a rank updates some of: those of the rank that
/// has the most to do.
double most_orthogonalize_flops(const StepPlan& plan, int unit);

}  // namespace ostrakon::plan
