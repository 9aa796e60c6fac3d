// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/products/product_choice.hpp>
#include <ostrakon/runtime/program.hpp>
#include <ostrakon/trainer/handlers/step_handlers.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// A program without repetitions: of several actions that submit the same kernels, with the same
/// shapes, only the first is kept. The others, and actions of the host's stream, become `release`,
/// which does nothing.
struct DistinctActions {
  DistinctActions(const runtime::Program& all, const ShardLayout& layout,
                  const TrainerSettings& settings);

  runtime::Program program;
  std::vector<int> like;  ///< for each action the first equal one; -1: it is dropped
};

/// Returns the products that the programs of training, evaluation and export launch on the device,
/// one for each kind; none where products have no algorithms to choose from. Nothing runs. Not
/// collective; does not use parts.context.
std::vector<math::NotedProduct> products_of_programs(const StepHandlers::Parts& parts,
                                                     runtime::Arenas arenas);

/// Launches once each kernel and each matrix product that the programs of training, evaluation and
/// export launch on the device, in their shapes, so that none is loaded while ranks wait for each
/// other (see math::WarmUp). It calls the handlers of a run on arrays of zeros: of equal actions
/// those of one, without messages, data, and the host's stream.
///
/// Overwrites the device's arena, so it is called before the state has values. Not collective; does
/// not use parts.context. Does nothing without a device.
void warm_up_programs(const StepHandlers::Parts& parts, runtime::Arenas arenas);

}  // namespace ostrakon::train
