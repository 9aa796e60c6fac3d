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
        programs(train::make_programs(description, mesh.world().size(), policy_of(mesh))),
        layout(programs.stages, *model, settings.optimizer, train::rank_in_plans(mesh)) {}

  std::unique_ptr<model::Model> model;
  train::StepSettings settings;
  plan::ModelDescription description;
  train::Programs programs;
  train::ShardLayout layout;

 private:
  plan::Policy policy_of(mesh::Mesh& mesh) const {
    plan::Policy policy = train::resolve(settings, *model, mesh).policy;
    policy.node_windows = plan::NodeWindows::never;  // arrays of tests are not in shared memory
    return policy;
  }
};

}  // namespace ostrakon::tests
