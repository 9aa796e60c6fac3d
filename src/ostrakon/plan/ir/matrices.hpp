// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::plan {

/// The number of elements of a unit that a rank updates outside of whole matrices, on the rank with
/// the most.
std::int64_t most_outside_matrices(const StepPlan& plan, int unit);

/// Floating-point operations to orthogonalize the matrices of which a rank updates some elements,
/// on the rank with the most.
double most_orthogonalize_flops(const StepPlan& plan, int unit);

}  // namespace ostrakon::plan
