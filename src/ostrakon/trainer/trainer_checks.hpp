// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>

// What a Trainer checks, on all ranks, before it takes memory.

namespace ostrakon::train {

/// Returns the settings of a step. Throws CollectiveError where ranks have different settings or
/// parameters, where a setting is invalid or contradicts the model, and where ranks whose steps are
/// audited have different kernels. Collective.
StepSettings checked(const TrainerSettings& settings, const model::Model& model,
                     comm::Communicator& world);

/// Throws CollectiveError where steps are audited and ranks state different facts of their kernels:
/// audits would take other bits for wrong ones. Collective.
void require_same_kernels(std::int64_t audit_every, const Facts& own, comm::Communicator& world);

/// Plans and proves the programs of a rank. Throws CollectiveError where there is no such plan, and
/// where units exchange activations with ranks that do not share their samples or parameters.
/// Collective. `audits`: whether some steps are audited.
Programs agree_on_programs(const plan::ModelDescription& model, const plan::Policy& policy,
                           mesh::Mesh& mesh, bool audits);

}  // namespace ostrakon::train
