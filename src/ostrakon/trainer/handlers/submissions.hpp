// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <ostrakon/runtime/program.hpp>
#include <ostrakon/trainer/state/shard_layout.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// A call of a unit's graph, as an action makes it.
struct SubmittedCall {
  std::string name;
  std::vector<const char*> kernels;  ///< names of those that it launches, in order
  double flops = 0.0;
  plan::KernelWork work;     ///< as the call says
  double floor_bytes = 0.0;  ///< see model::graph::floor_bytes
};

/// What an action submits.
struct SubmittedKernels {
  std::vector<const char*> names;    ///< of all kernels, in order
  std::vector<SubmittedCall> calls;  ///< of a unit's graph; other actions have none
};

/// How often a rank submits work to its device or its streams in a run of a program: a lower bound
/// of a step's time, however small the model is.
struct Submissions {
  std::int64_t kernels = 0;      ///< including matrix products, and arrays that are cleared
  std::int64_t copies = 0;       ///< between host and device memory
  std::int64_t collectives = 0;  ///< collectives of parameters, gradients and activations
  std::int64_t messages = 0;     ///< messages to and from other stages
  std::int64_t waits = 0;        ///< waits of one device stream for another

  /// The number of kernels of each action; 0 for actions of the host, and for collectives the
  /// kernels before and after the communication.
  std::vector<int> kernels_of;
  /// For each action the first one that submits the same; -1: it submits no kernels.
  std::vector<int> like;
  std::map<int, SubmittedKernels> distinct;  ///< of those first ones
};

/// Counts the submissions of this build: kernels of a host and of a device are divided differently.
/// It calls the handlers of a Trainer, without memory, and runs nothing. nullopt for a model whose
/// units look at arrays before they go on (experts).
std::optional<Submissions> count_submissions(const runtime::Program& program,
                                             const ShardLayout& layout,
                                             const StepSettings& settings);

}  // namespace ostrakon::train
