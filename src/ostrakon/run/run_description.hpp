// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Returns the text at the start of a run, before anything is allocated: version and libraries,
/// ranks, settings, model, the plan of a step with its memory, and whether its bits are those of
/// one rank. `matrix_threads`: per rank. Collective; the text is rank 0's.
std::string describe_run(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                         int matrix_threads);

/// Returns how much of a step the device is given as graphs, in a line; empty without a device. For
/// an allocated Trainer.
std::string describe_graphs(const Trainer& trainer);

/// Summarizes each stage of a pipeline; empty if there is one stage. Collective.
std::vector<plan::StageSummary> summarize_stages(mesh::Mesh& mesh, const Trainer& trainer);

/// Returns plan.json: the plan of this rank's stage, and `stages`.
std::string plan_json(const config::Settings& settings, mesh::Mesh& mesh, const Trainer& trainer,
                      const std::vector<plan::StageSummary>& stages);

}  // namespace ostrakon::train
