// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/program.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// A program without repetitions: of several actions that submit the same kernels, with the same
/// shapes, only the first is kept. The others, and actions of the host's stream, become `release`,
/// which does nothing.
struct DistinctActions {
  /// `settings`: including those that the Trainer sets.
  DistinctActions(const runtime::Program& all, const ShardLayout& layout,
                  const TrainerSettings& settings);

  runtime::Program program;
  std::vector<int> like;  ///< for each action the first equal one; -1: it is dropped
};

}  // namespace ostrakon::train
