// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/run/metrics.hpp>
#include <ostrakon/run/orders.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// Measures the loss on data that is not trained on, always on the same samples.
class Validation {
 public:
  /// Makes a Validation without data, which is never due.
  Validation() = default;
  /// Validates on up to training.validation_batches global batches: as many as `dataset` has whole.
  /// If it has less than one, each of its samples counts once: throws CollectiveError where `loss`,
  /// of the model, does not separate the losses of these samples from others.
  Validation(std::unique_ptr<data::Dataset> dataset, const config::TrainingSettings& training,
             const model::LossTerms& loss);

  /// Whether there is anything to validate on.
  bool has_data() const { return dataset_ != nullptr; }
  const data::Dataset& data() const { return *dataset_; }

  /// Whether to validate after a step: every training.validate_every steps, and after the last one
  /// unless the run is to be resumed.
  bool is_due(const StepEnd& end) const;
  /// Collective: measures the validation loss.
  ValidationMetrics measure(Trainer& trainer, std::int64_t step);

  /// Describes how many samples are used, and how often.
  std::string describe() const;

 private:
  std::unique_ptr<data::Dataset> dataset_;
  std::int64_t every_ = 0;    // steps between validations
  std::int64_t batches_ = 0;  // global batches per validation
  std::int64_t batch_size_ = 0;
  std::int64_t used_ = 0;  // number of samples used
};

}  // namespace ostrakon::train
