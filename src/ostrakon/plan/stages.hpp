// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// Shares the units out to `chunks` chunks, neighbours to the same one, so that the chunk with the
/// most floating-point operations has as few as can be. Throws Error where there are more chunks
/// than units.
std::vector<UnitRange> divide_units(const ModelDescription& model, int chunks);

/// The chunks of all stages: as the policy says, or divide_units. Throws Error where the policy
/// names another number of chunks, or of units, than there are.
std::vector<UnitRange> make_chunks(const ModelDescription& model, const Policy& policy);

/// The first chunk with a unit that is trained; as many as there are where none is.
int first_backward(const ModelDescription& model, const std::vector<UnitRange>& chunks);

/// The stages of a pipeline, as models of their own with what comes from and goes to other stages.
/// Chunk k is of stage k % stages; so chunks.size() is a multiple of `stages`. A stage with a unit
/// that is tied to one of another has a copy of the other's parameters. It sends the sum of its
/// gradients to the other at the end of a step, and receives the updated parameters. Throws Error
/// unless `chunks` name each unit once, in order.
std::vector<ModelDescription> make_stages(const ModelDescription& model,
                                          const std::vector<UnitRange>& chunks, int stages);

/// `policy` for one stage: of what it says of units by name, that which concerns units of the
/// stage.
Policy policy_of_stage(const Policy& policy, const ModelDescription& stage);

}  // namespace ostrakon::plan
