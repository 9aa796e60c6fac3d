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
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

namespace ostrakon::train {

/// How a step is handled whose loss or gradient is not finite, or an outlier.
struct StabilitySettings {
  bool skip_non_finite = false;       ///< skip the update instead of stopping
  double outlier_threshold = 0.0;     ///< standard deviations above the mean from which a step is
                                      ///< skipped; 0: none is
  std::int64_t outlier_window = 128;  ///< number of steps, see optim::OutlierSettings
};

/// How a model is trained, for any model and any source of settings.
struct TrainerSettings {
  /// Sharding, recomputation, offload, ... The Trainer sets shard_group, ranks_per_node, leaves,
  /// context_ranks, tensor_ranks, stages, moments.count and early_updates, and refuses any value
  /// but their default.
  plan::Policy policy;
  /// Whether updates on the host may begin before the gradients of all units are known, where
  /// plan::may_update_early allows it.
  bool early_updates = true;
  optim::OptimizerSettings optimizer;
  optim::LearningRateSchedule schedule;
  StabilitySettings stability;
  optim::LossScaleSettings loss_scale;  ///< used if fp16 is computed with or sent
  std::int64_t steps = 1000;            ///< length of the learning rate schedule
  std::int64_t global_batch_size = 8;   ///< samples in a step
  std::int64_t micro_batch_size = 1;    ///< samples in a leaf
  model::LossTerms loss;                ///< set by the Trainer: Model::loss_terms()
  int context_ranks = 1;                ///< set by the Trainer: Model::context_ranks()
  int pieces = 1;                       ///< set by the Trainer: Model::pieces()
  int tensor_ranks = 1;                 ///< set by the Trainer: Model::tensor_ranks()
  std::uint64_t seed = 1;               ///< seed of initial weights and stochastic rounding
  runtime::Streams streams = runtime::Streams::in_plan_order;
  /// The mode for subnormal numbers in all of the Trainer's computations, on each of its threads;
  /// the caller's threads have their own mode again when a call returns.
  Subnormals subnormals = math::default_subnormals;
  bool pinned_host_memory = true;  ///< if there is a device
  /// The transport between devices; see devices.hpp.
  comm::TransportKind transport = comm::TransportKind::mpi_staged;
  std::string shared_device;          ///< names ranks that share a device, for messages; empty:
                                      ///< none do
  double collective_timeout = 600.0;  ///< timeout of NCCL in seconds
  bool single_communicators = false;  ///< NCCL: one communicator for each group, not for each
                                      ///< stream

  std::int64_t leaves() const { return global_batch_size / micro_batch_size * context_ranks; }
  /// leaf_terms() and step_terms() count terms of the loss, whose mean is over the terms of a step.
  std::int64_t leaf_terms() const { return loss.terms; }
  std::int64_t step_terms() const { return leaves() * loss.terms; }
};

/// Throws Error, with the field, its value and what was expected, where a value is invalid (keys of
/// decks have the same ranges), or where a value is set that the Trainer sets. Does not check
/// values that depend on the model or the ranks.
void check(const TrainerSettings& settings);

/// Throws CollectiveError, on all ranks, unless the losses of the first `samples` samples of a
/// global batch can be separated from the others: those of whole leaves, or each sample's own.
void require_own_losses(const model::LossTerms& loss, std::int64_t samples);

/// Every field with its value, except those that the Trainer sets.
Facts facts_of(const TrainerSettings& settings);

}  // namespace ostrakon::train
