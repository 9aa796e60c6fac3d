// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/trainer.hpp>

namespace ostrakon::evaluate {

/// Returns settings that evaluate the model of these on so many ranks, divided as these say, with
/// the least memory: they have no moments, and all parameters are frozen but the smallest of the
/// last unit that has one, as a plan of training has to train something. A global batch is a
/// micro-batch on each rank, or as many as keep the stages of a pipeline busy. Throws Error where
/// `ranks` can't be divided so.
config::Settings evaluation_settings(config::Settings settings, int ranks);

/// Makes a Trainer of such settings, whose model tells margins. Collective; throws what
/// train::make_trainer does.
train::Trainer make_evaluating_trainer(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::evaluate
