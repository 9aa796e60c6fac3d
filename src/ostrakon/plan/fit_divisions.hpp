// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/timing.hpp>
#include <vector>

namespace ostrakon::plan {

/// A model's units in the chunks of a pipeline.
using Division = std::vector<UnitRange>;

/// The divisions that find_chunks may choose for a model and policies like `policy`, whatever the
/// memory that they leave. Empty where they are more than `most`. Throws Error as make_chunks.
std::vector<Division> possible_divisions(const ModelDescription& model, const Policy& policy,
                                         std::size_t most);

/// What compute waits for in phases of units in parts (experts), in seconds: exchanges that the
/// next phase reads, as if all were sent at the faster of two rates. Those of a forward or
/// backward.
double waiting_seconds(const UnitDescription& unit, const Phases& phases, const Rates& rates);

/// A lower bound of a step's time, from what ranks compute and waiting_seconds: with the bubble,
/// that is, what stages wait for each other. Deferred phases are computed where there would be time
/// for them.
double least_step_seconds(const ModelDescription& model, const Division& division,
                          const Policy& policy, int micro_batches, const Rates& rates);

}  // namespace ostrakon::plan
