// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/math/subnormals.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/optim/learning_rate.hpp>
#include <ostrakon/optim/loss_scale.hpp>
#include <ostrakon/optim/optimizer.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

namespace ostrakon::train {

using config::StabilitySettings;

/// How a user wants a model to be trained: any model, with any source of settings.
struct TrainerSettings : config::StepChoices, config::UpdateChoices {
  plan::PolicyChoices policy;           ///< sharding, recomputation, offload, ...
  std::int64_t sum_grain = 0;           ///< as plan::Policy::sum_grain, in micro-batches
  bool checkpoint_staging = false;      ///< as plan::Policy::checkpoint_staging
  optim::LossScaleSettings loss_scale;  ///< used if fp16 is computed with or sent
  runtime::Streams streams = runtime::Streams::in_plan_order;
  /// The mode for subnormal numbers in all of the Trainer's computations, on each of its threads;
  /// the caller's threads have their own mode again when a call returns.
  Subnormals subnormals = math::default_subnormals;
  /// The transport between devices; see devices.hpp.
  comm::TransportKind transport = comm::TransportKind::mpi_staged;
  std::string shared_device;          ///< names ranks that share a device, for messages; empty:
                                      ///< none do
  std::int64_t audit_every = 0;       ///< steps between audits (plan::Purpose::audit); 0: none
  double collective_timeout = 600.0;  ///< timeout of NCCL in seconds
  std::string products_file;          ///< see ProductFiles::required; empty: none
  bool graphs = false;  ///< whether the device is given graphs of what it computes, with
                        ///< Streams::device
  bool single_communicators = false;  ///< NCCL: one communicator for each group, not for each
                                      ///< stream
};

/// A Trainer's settings with what its model says.
struct StepSettings : TrainerSettings {
  StepSettings() = default;
  StepSettings(const TrainerSettings& chosen, const model::Model& model)
      : TrainerSettings(chosen),
        loss(model.loss_terms()),
        context_ranks(model.context_ranks()),
        pieces(model.pieces()),
        tensor_ranks(model.tensor_ranks()) {}

  model::LossTerms loss;
  int context_ranks = 1, pieces = 1, tensor_ranks = 1;  ///< as Model has them

  std::int64_t leaves() const { return micro_batches() * context_ranks; }
  /// leaf_terms() and step_terms() count terms of the loss, whose mean is over the terms of a step.
  std::int64_t leaf_terms() const { return loss.terms; }
  std::int64_t step_terms() const { return leaves() * loss.terms; }
};

/// Throws Error, with the field, its value and what was expected, where a value is invalid: keys of
/// decks have the same ranges. Does not check values that depend on the model or the ranks.
void check(const TrainerSettings& settings);

/// Throws CollectiveError, on all ranks, unless the losses of the first `samples` samples of a
/// global batch can be separated from the others: those of whole leaves, or each sample's own.
void require_own_losses(const model::LossTerms& loss, std::int64_t samples);

/// Every field with its value.
Facts facts_of(const TrainerSettings& settings);

}  // namespace ostrakon::train
