// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// Divides the units into `chunks` chunks of neighbours, so that the chunk with the most
/// floating-point operations has as few as possible. Throws Error where there are more chunks than
/// units.
std::vector<UnitRange> divide_units(const ModelDescription& model, int chunks);

/// The chunks of all stages: as the policy says, or by divide_units. Throws Error where the policy
/// names another number of chunks or units than there are.
std::vector<UnitRange> make_chunks(const ModelDescription& model, const Policy& policy);

/// The first chunk with a trained unit; the number of chunks where there is none.
int first_backward(const ModelDescription& model, const std::vector<UnitRange>& chunks);

/// Divides a model into the stages of a pipeline, each a model of its own that knows its inputs
/// from and outputs to other stages. Chunk k is on stage k % stages; so chunks.size() is a multiple
/// of `stages`. A stage with a unit that is tied to a unit of another stage has a copy of the
/// other's parameters: at the end of a step it sends the sum of its gradients there, and receives
/// the updated parameters. Throws Error unless `chunks` name each unit once, in order.
std::vector<ModelDescription> make_stages(const ModelDescription& model,
                                          const std::vector<UnitRange>& chunks, int stages);

/// `policy` for one stage, with only those names and rules that concern its units.
Policy policy_of_stage(const Policy& policy, const ModelDescription& stage);

}  // namespace ostrakon::plan
