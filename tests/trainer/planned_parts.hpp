// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>

namespace ostrakon::tests {

/// What a Trainer makes of a deck before it takes memory, to test its parts one by one.
struct PlannedParts {
  PlannedParts(const config::Settings& deck, mesh::Mesh& mesh)
      : model(train::make_decoder(deck)),
        settings(train::trainer_settings(deck, mesh), *model),
        description(train::describe(*model, settings.optimizer)),
        programs(train::make_programs(description, mesh.world().size(),
                                      train::resolve(settings, *model, mesh).policy)),
        layout(programs.stages, *model, settings.optimizer, train::rank_in_plans(mesh)) {}

  std::unique_ptr<model::Model> model;
  train::StepSettings settings;
  plan::ModelDescription description;
  train::Programs programs;
  train::ShardLayout layout;
};

}  // namespace ostrakon::tests
