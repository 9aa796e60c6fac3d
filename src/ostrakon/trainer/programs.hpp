// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/ir/kinds.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::train {

/// The programs of a rank's stage. They share its arenas, with persistent buffers at the same
/// offsets.
struct Programs {
  runtime::Program train;
  runtime::Program evaluate;
  runtime::Program export_parameters;
  std::optional<runtime::Program> audit;  ///< an audited step, where a run has such
  /// The training plans of all stages, without actions and the buffers that only these use: they
  /// tell which rank has what.
  std::vector<plan::StepPlan> stages;
  /// Hashes of the plans of all stages, by purpose.
  std::map<plan::Purpose, std::uint64_t> hashes;

  /// Throws std::logic_error where the run has no such program.
  const runtime::Program& of(plan::Purpose purpose) const;
  std::vector<const runtime::Program*> all() const;
  /// The size in bytes of an arena that is large enough for each program.
  std::int64_t arena_bytes(plan::Space space) const;
};

/// Plans all stages, and proves them together, and the memory of `stage`. `ranks`: number of ranks
/// of all stages. `audits`: whether some steps are audited. Throws Error where
/// plan::build_stage_plans does.
Programs make_programs(const plan::ModelDescription& model, int ranks, const plan::Policy& policy,
                       int stage = 0, bool audits = false);

/// The number of this rank in plans, which count ranks along shard groups, stage by stage.
int rank_in_plans(mesh::Mesh& mesh);

}  // namespace ostrakon::train
