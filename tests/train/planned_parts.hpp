// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/trainer/make_trainer.hpp>

namespace ostrakon::tests {

/// What a Trainer makes of a deck before it takes memory, to test its parts one by one.
struct PlannedParts {
  PlannedParts(const config::Settings& deck, mesh::Mesh& mesh)
      : settings(train::trainer_settings(deck, mesh)),
        model(train::make_decoder(deck)),
        description(train::describe(*model, settings.optimizer)),
        programs(make_programs(mesh)),
        layout(programs.stages, *model, settings.optimizer, train::rank_in_plans(mesh)) {}

  train::TrainerSettings settings;
  std::unique_ptr<model::Model> model;
  plan::ModelDescription description;
  train::Programs programs;
  train::ShardLayout layout;

 private:
  train::Programs make_programs(mesh::Mesh& mesh) {
    settings = train::complete(settings, *model, mesh);
    return train::make_programs(description, mesh.world().size(), settings.policy);
  }
};

}  // namespace ostrakon::tests
