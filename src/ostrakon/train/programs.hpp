// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/purpose.hpp>
#include <ostrakon/plan/space.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/trainer_settings.hpp>

namespace ostrakon::train {

/// The programs of a run. All three share its arenas, with persistent buffers at the same offsets.
struct Programs {
  runtime::Program train;
  runtime::Program evaluate;
  runtime::Program export_parameters;

  const runtime::Program& of(plan::Purpose purpose) const;
  /// Of an arena that holds each of them, in bytes.
  std::int64_t arena_bytes(plan::Space space) const;
};

/// Plans and proves them. Throws Error where plan::build_step_plan does.
Programs make_programs(const plan::ModelDescription& model, int ranks, const plan::Policy& policy);

/// Settings with what the Trainer sets: what follows from the model, the optimizer and the mesh.
TrainerSettings complete(TrainerSettings settings, const model::Model& model, mesh::Mesh& mesh);
/// The number of this rank in plans, which count ranks along shard groups.
int rank_in_plans(mesh::Mesh& mesh);

}  // namespace ostrakon::train
