// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/plan/passes/builder.hpp>

namespace ostrakon::plan {

/// Makes the persistent buffers, the same in all plans of a run: masters, compute copies and
/// moments, unit by unit; then the step's sums, and the staging copy of all that a rank saves.
void make_state_buffers(Builder& builder, const Policy& policy);

}  // namespace ostrakon::plan
