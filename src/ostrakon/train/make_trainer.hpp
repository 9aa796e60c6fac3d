// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/train/model_description.hpp>
#include <ostrakon/train/trainer.hpp>

// From a deck to a Trainer.

namespace ostrakon::train {

/// What a deck's decoder computes at once.
model::LeafShape leaf_shape(const config::Settings& settings);

/// The decoder of a run: in the deck's dtype and leaf shape, with what its rules freeze. Throws
/// Error where the model's settings don't fit together.
std::unique_ptr<model::Model> make_decoder(const config::Settings& settings);

/// What follows from a deck alone, whatever the ranks.
TrainerSettings trainer_settings(const config::Settings& settings);

/// What a Trainer takes of a deck. Collective over the mesh, which decides how streams run. Throws
/// AgreedError where streams can't run as the deck says, or collectives are to be in two levels but
/// nodes don't have equally many ranks.
TrainerSettings trainer_settings(const config::Settings& settings, mesh::Mesh& mesh);

/// The Trainer of a deck. Collective; throws what make_decoder, trainer_settings and Trainer's
/// constructor throw.
Trainer make_trainer(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
