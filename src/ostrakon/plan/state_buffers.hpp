// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <ostrakon/plan/policy.hpp>

namespace ostrakon::plan {

/// Makes the persistent buffers, unit by unit: masters, compute copies, moments; then the step's
/// sums, and the copy of all that a rank saves. The same in all plans of a run.
void make_state_buffers(Builder& builder, const Policy& policy);

}  // namespace ostrakon::plan
