// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/runtime/program.hpp>
#include <ostrakon/train/shard_layout.hpp>
#include <ostrakon/train/trainer_settings.hpp>
#include <vector>

namespace ostrakon::train {

/// How often a rank submits something to its device, or to a stream of its, in a run of a program:
/// what a step takes at least, however small the model is.
struct Submissions {
  std::int64_t kernels = 0;      ///< also products of matrices, and arrays that are cleared
  std::int64_t copies = 0;       ///< between host and device memory
  std::int64_t collectives = 0;  ///< of parameters, gradients and activations
  std::int64_t messages = 0;     ///< to and from other stages
  std::int64_t waits = 0;        ///< of a stream of the device for another

  /// Kernels of each action of the program; 0 for those of the host, and in collectives those
  /// before and after what is sent.
  std::vector<int> kernels_of;
};

/// Counts them as this build computes: kernels of a host and of a device are cut differently. It
/// calls what a Trainer would, without memory, and runs nothing. Nothing for a model whose units
/// look at arrays before they go on (experts).
/// `settings`: with what the Trainer sets.
std::optional<Submissions> count_submissions(const runtime::Program& program,
                                             const ShardLayout& layout,
                                             const TrainerSettings& settings);

}  // namespace ostrakon::train
