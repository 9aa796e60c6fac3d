// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/trainer/model_description.hpp>
#include <ostrakon/trainer/trainer.hpp>

// This file makes a Trainer from a deck.

namespace ostrakon::train {

/// The leaf shape of a deck's decoder: what it computes at once.
model::LeafShape leaf_shape(const config::Settings& settings);

/// Makes the decoder of a run, with the deck's dtype, leaf shape and frozen parameters. Throws
/// Error where the model's settings contradict each other.
std::unique_ptr<model::Model> make_decoder(const config::Settings& settings);

/// Returns the settings that follow from a deck alone, whatever the ranks.
TrainerSettings trainer_settings(const config::Settings& settings);

/// Returns the settings of a Trainer. Collective over the mesh, which decides how streams run.
/// Throws CollectiveError where streams can't run as the deck says, or two levels of collectives
/// are required but nodes don't have equally many ranks.
TrainerSettings trainer_settings(const config::Settings& settings, mesh::Mesh& mesh);

/// Makes the Trainer of a deck. Collective; throws what make_decoder, trainer_settings and
/// Trainer's constructor throw.
Trainer make_trainer(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
