// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/step_size.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/expert_unit.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/memory_check.hpp>

namespace ostrakon::train {

StepSize step_size(const config::Settings& settings, int ranks) {
  // All blocks are alike: models of one and two layers show how many parameters a layer adds.
  const auto parameters = [&](std::int64_t layers) {
    model::DecoderSettings few = settings.model;
    few.layers = layers;
    few.blocks_per_unit = 1;
    return model::Decoder<float>(few, {1, settings.training.sequence_length}).parameter_count();
  };
  const std::int64_t of_one = parameters(1);
  const std::int64_t of_block = parameters(2) - of_one;
  const model::DecoderSettings& model = settings.model;
  StepSize size;
  size.parameters = of_one + (model.layers - 1) * of_block;
  const auto stacks = model::blocks_of_units(model.layers, model.blocks_per_unit, of_block).size();
  size.units = static_cast<std::int64_t>(stacks) + 2;  // the embedding and the head
  if (config::has_expert_units(settings))
    size.units += model.layers * model::expert_capacity(model, leaf_shape(settings)).most_rounds;
  size.micro_batches = settings.leaves() * settings.tensor * settings.pipeline / ranks;
  return size;
}

void require_short_plan(const StepSize& size) {
  // A plan takes memory, too: with this many visits about as much as the rest of the process may.
  constexpr std::int64_t most_visits = 60000;
  require(size.visits() <= most_visits, "the plan of a step is too long: ", size.units, " units x ",
          size.micro_batches, " micro-batches on each rank = ", format_count(size.visits()),
          ", more than ", format_count(most_visits),
          "; use fewer layers, raise training.micro_batch_size or use more ranks");
}

void require_room_for_parameters(const StepSize& size, int ranks, int host_ranks,
                                 std::int64_t available) {
  // Masters are fp32, and at best divided over all ranks.
  const std::int64_t bytes = size.parameters * static_cast<std::int64_t>(sizeof(float)) / ranks;
  const std::string problem = what_does_not_fit(
      {{text(" for ", format_count(size.parameters), " parameters alone"), bytes, 0, available}},
      host_ranks);
  require(problem.empty(), "the model does not fit: ", problem,
          "; use more hosts or a smaller model");
}

void require_possible_step(const config::Settings& settings, mesh::Mesh& mesh) {
  constexpr std::int64_t planned_in_a_moment = 2000;  // visits
  const int ranks = mesh.world().size();
  const StepSize size = step_size(settings, ranks);
  require_short_plan(size);
  if (size.visits() <= planned_in_a_moment) return;
  std::int64_t available = runtime::available_memory_bytes(plan::Space::host);
  // This is an upper bound: ranks may share a device, which the plan's own check considers.
  if (has_device)
    available += mesh.host().size() * runtime::available_memory_bytes(plan::Space::device);
  require_room_for_parameters(size, ranks, mesh.host().size(), available);
}

}  // namespace ostrakon::train
