// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/train/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// What a run shows before anything is allocated: version and libraries, ranks, settings, model,
/// the plan of a step with its memory, and whether its bits are those of one rank.
/// `matrix_threads`: of a rank. Collective; the text is rank 0's.
std::string describe_run(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                         int matrix_threads);

/// What plan.json has.
std::string plan_json(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer);

}  // namespace ostrakon::train
