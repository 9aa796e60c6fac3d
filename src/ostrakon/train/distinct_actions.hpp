// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/program.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// A program without the repetitions in it: of actions that submit the same kernels, of the same
/// shapes, the first is kept. The others, and what the host's stream does, are `release`, which
/// does nothing.
struct DistinctActions {
  /// `settings`: with what the Trainer sets.
  DistinctActions(const runtime::Program& all, const ShardLayout& layout,
                  const TrainerSettings& settings);

  runtime::Program program;
  std::vector<int> like;  ///< of each action the first that is like it; -1: dropped altogether
};

}  // namespace ostrakon::train
