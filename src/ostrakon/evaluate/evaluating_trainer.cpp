// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/evaluate/evaluating_trainer.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/model/decoder_model.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <utility>

namespace ostrakon::evaluate {
namespace {

/// The parameter that is trained in a plan: the smallest of the last unit that may train any.
std::string trained_parameter(const config::Settings& settings) {
  const std::vector<model::Parameter> all = config::parameters_of(settings);
  const model::Parameter* smallest = nullptr;
  for (const model::Parameter& one : all)
    if (!one.frozen && (smallest == nullptr || one.owner != smallest->owner ||
                        one.elements() < smallest->elements()))
      smallest = &one;
  return smallest->full_name();
}

optim::ParameterRule rule(const std::string& pattern, bool is_frozen) {
  optim::ParameterRule one;
  one.pattern = pattern;
  one.frozen = is_frozen;
  return one;
}

}  // namespace

config::Settings evaluation_settings(config::Settings settings, int ranks) {
  // A module that predicts further tokens changes nothing of the next token.
  settings.model.multi_token_depth = 0;
  settings.data.documents = data::Documents::continued;
  settings.data.objective = data::Objective::next_token;
  settings.optimizer = {};
  settings.optimizer.kind = optim::OptimizerKind::sgd;
  settings.optimizer.momentum = 0.0;
  settings.optimizer.parameters = {rule("*", true), rule(trained_parameter(settings), false)};
  settings.checkpoint.asynchronous = false;
  const std::int64_t sharing = settings.tensor * settings.context * settings.pipeline;
  require(ranks % sharing == 0,
          "parallel.tensor x parallel.context x parallel.pipeline = ", settings.tensor, " x ",
          settings.context, " x ", settings.pipeline, " does not divide the ", ranks,
          " ranks; expected a divisor");
  settings.training.global_batch_size =
      ranks / sharing * settings.pipeline * settings.training.micro_batch_size;
  return settings;
}

train::Trainer make_evaluating_trainer(const config::Settings& settings, mesh::Mesh& mesh) {
  model::LeafShape shape = train::leaf_shape(settings);
  shape.tells_margins = true;
  const std::vector<optim::ParameterRule>& rules = settings.optimizer.parameters;
  return {model::make_decoder(
              settings.precision.gather, settings.model, shape, settings.recompute,
              [rules](const std::string& name) { return optim::is_frozen(rules, name); }),
          train::trainer_settings(settings, mesh), mesh};
}

}  // namespace ostrakon::evaluate
