// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/learning_rate.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

namespace ostrakon::train {

/// The handling of a step whose loss or gradient is not finite, or an outlier.
struct StabilitySettings {
  bool skip_non_finite = false;    ///< skip the update instead of stopping
  double outlier_threshold = 0.0;  ///< deviations above the mean from which it is skipped; 0: none
  std::int64_t outlier_window = 128;  ///< steps, see optim::OutlierSettings
};

/// How a model is trained, whatever it is and wherever the settings come from.
struct TrainerSettings {
  /// What to shard, recompute, keep in host memory, ... Its shard_group, ranks_per_node, leaves,
  /// sample_ranks, tensor_ranks, stages, moments.count and early_updates are set by the Trainer,
  /// which refuses any but the default.
  plan::Policy policy;
  /// Whether updates on the host may begin before the gradients of all units are known, where
  /// plan::may_update_early allows it.
  bool early_updates = true;
  optim::OptimizerSettings optimizer;
  optim::LearningRateSchedule schedule;
  StabilitySettings stability;
  optim::LossScaleSettings loss_scale;  ///< used where fp16 is computed with or sent
  std::int64_t steps = 1000;            ///< of the schedule
  std::int64_t global_batch_size = 8;   ///< samples in a step
  std::int64_t micro_batch_size = 1;    ///< samples in a leaf
  model::LossTerms loss;                ///< set by the Trainer, the same: what the model says
  int parts = 1;                        ///< the same: Model::parts()
  int pieces = 1;                       ///< the same: Model::pieces()
  int tensor_ranks = 1;                 ///< the same: Model::tensor_ranks()
  std::uint64_t seed = 1;               ///< of initial weights and stochastic rounding
  runtime::Streams streams = runtime::Streams::in_plan_order;
  /// In all that the Trainer computes, on each of its threads; the program's own have the mode that
  /// they had before when it returns.
  Subnormals subnormals = math::default_subnormals;
  bool pinned_host_memory = true;  ///< where there is a device
  /// Between devices; see Devices.
  comm::TransportKind transport = comm::TransportKind::mpi_staged;
  std::string shared_device;          ///< ranks that have one device, for messages; empty: none do
  double collective_timeout = 600.0;  ///< seconds, of NCCL
  bool single_communicators = false;  ///< of NCCL: one for each group, not for each stream

  std::int64_t leaves() const { return global_batch_size / micro_batch_size * parts; }
  /// These count terms of the loss, whose mean is over those of a step.
  std::int64_t leaf_terms() const { return loss.terms; }
  std::int64_t step_terms() const { return leaves() * loss.terms; }
};

/// Throws Error, with the field, its value and what was expected, where one can't be: keys of decks
/// take the same values. Also where one is set that the Trainer sets. What depends on the model or
/// the ranks is not looked at.
void check(const TrainerSettings& settings);

/// Throws AgreedError, on all ranks, unless the losses of the first `samples` samples of a global
/// batch can be told from the others: those of whole leaves, or each sample's own.
void require_own_losses(const model::LossTerms& loss, std::int64_t samples);

/// Every field but those that the Trainer sets, with its value.
Facts facts_of(const TrainerSettings& settings);

}  // namespace ostrakon::train
