// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/train/metrics.hpp>
#include <ostrakon/train/orders.hpp>
#include <ostrakon/train/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// Measures the loss on data that is not trained on, always on the same samples.
class Validation {
 public:
  /// Never due.
  Validation() = default;
  /// On up to training.validation_batches global batches, as many as are in `dataset` whole; where
  /// it has less than one, on each of its samples once: throws AgreedError where `loss`, of the
  /// model, does not tell the losses of these from others.
  Validation(std::unique_ptr<data::Dataset> dataset, const config::TrainingSettings& training,
             const model::LossTerms& loss);

  /// Whether there is anything to validate on.
  bool has_data() const { return dataset_ != nullptr; }
  const data::Dataset& data() const { return *dataset_; }

  /// Whether to validate after a step: each training.validate_every, and after the last one of a
  /// run that is not to be resumed.
  bool is_due(const StepEnd& end) const;
  /// Collective.
  ValidationMetrics measure(Trainer& trainer, std::int64_t step);

  /// Lines for people on how much is used, and how often.
  std::string describe() const;

 private:
  std::unique_ptr<data::Dataset> dataset_;
  std::int64_t every_ = 0;    // steps
  std::int64_t batches_ = 0;  // global ones in one validation
  std::int64_t batch_size_ = 0;
  std::int64_t used_ = 0;  // samples
};

}  // namespace ostrakon::train
