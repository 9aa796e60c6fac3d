// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/optim/learning_rate.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/runtime/executor.hpp>

namespace ostrakon::train {

/// The handling of a step whose loss or gradient is not finite, or an outlier.
struct StabilitySettings {
  bool skip_non_finite = false;    ///< skip the update instead of stopping
  double outlier_threshold = 0.0;  ///< deviations above the mean from which it is skipped; 0: none
  std::int64_t outlier_window = 128;  ///< steps, see optim::OutlierSettings
};

/// How a model is trained, whatever it is and wherever the settings come from.
struct TrainerSettings {
  /// Its shard_group, ranks_per_node and leaves are set by the Trainer. `early_updates` only where
  /// no update depends on the whole gradient: without clipping, loss scale and skipped steps.
  plan::Policy policy;
  optim::OptimizerSettings optimizer;
  optim::LearningRateSchedule schedule;
  StabilitySettings stability;
  optim::LossScaleSettings loss_scale;  ///< used where fp16 is computed with or sent
  std::int64_t steps = 1000;            ///< of the schedule
  std::int64_t global_batch_size = 8;   ///< samples in a step
  std::int64_t micro_batch_size = 1;    ///< samples in a leaf
  std::int64_t sequence_length = 256;   ///< tokens of a sample, without the last target
  std::uint64_t seed = 1;               ///< of initial weights and stochastic rounding
  runtime::Streams streams = runtime::Streams::in_plan_order;
  bool pinned_host_memory = true;  ///< where there is a device

  std::int64_t leaves() const { return global_batch_size / micro_batch_size; }
  std::int64_t leaf_rows() const { return micro_batch_size * sequence_length; }
  std::int64_t step_tokens() const { return global_batch_size * sequence_length; }
};

}  // namespace ostrakon::train
