// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/space.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// The programs of a rank, which are those of its stage. All three share its arenas, with
/// persistent buffers at the same offsets.
struct Programs {
  runtime::Program train;
  runtime::Program evaluate;
  runtime::Program export_parameters;
  /// The plans of training of all stages, without their actions and what only these use: who has
  /// what.
  std::vector<plan::StepPlan> stages;
  /// Hashes of the plans of all stages, by purpose.
  std::map<plan::Purpose, std::uint64_t> hashes;

  const runtime::Program& of(plan::Purpose purpose) const;
  /// The size of an arena that holds each of them, in bytes.
  std::int64_t arena_bytes(plan::Space space) const;
};

/// Plans all stages, and proves them: together, and the memory of `stage`. `ranks`: of all stages.
/// Throws Error where plan::build_stage_plans does.
Programs make_programs(const plan::ModelDescription& model, int ranks, const plan::Policy& policy,
                       int stage = 0);

/// Settings with what the model says.
TrainerSettings for_model(TrainerSettings settings, const model::Model& model);
/// Settings with what the Trainer sets: what follows from the model, the optimizer and the mesh.
TrainerSettings complete(TrainerSettings settings, const model::Model& model, mesh::Mesh& mesh);
/// The number of this rank in plans, which count ranks along shard groups, and stage by stage.
int rank_in_plans(mesh::Mesh& mesh);

}  // namespace ostrakon::train
