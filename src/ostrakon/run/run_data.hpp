// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/metrics.hpp>
#include <ostrakon/run/run.hpp>
#include <ostrakon/run/stop_requests.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <type_traits>

namespace ostrakon::train {

/// Returns work(), which is about files below the path of a deck's key, "data.path". If it throws
/// a CollectiveError, adds how the path was given: see config::path_origin.
template <class Work>
std::invoke_result_t<const Work&> about_path(const config::Settings& settings,
                                             const std::string& key, const Work& work) {
  try {
    return work();
  } catch (const CollectiveError& error) {
    throw CollectiveError(text(config::path_origin(settings, key), ": ", error.what()));
  }
}

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
  data::Dataset& data() { return *dataset_; }

  /// Whether to validate after a step: every training.validate_every steps, and after the last one
  /// unless the run is to be resumed.
  bool is_due(const StepEnd& end) const;
  /// Collective: measures the validation loss.
  ValidationMetrics measure(Trainer& trainer, std::int64_t step);

  /// Describes how many samples are used, and how often.
  std::string describe() const;

 private:
  double loss_of(Trainer& trainer);

  std::unique_ptr<data::Dataset> dataset_;
  std::int64_t every_ = 0;    // steps between validations
  std::int64_t batches_ = 0;  // global batches per validation
  std::int64_t batch_size_ = 0;
  std::int64_t used_ = 0;  // number of samples used
  bool with_averages_ = false;
  double beta_ = 0.0;  // training.dpo_beta
};

/// The data of a run.
struct RunData {
  std::unique_ptr<data::Dataset> training;
  Validation validation;
};

/// Opens the data that the settings name and prints what is there. In a dry run no checksum is
/// verified. `loss` is the model's. Collective; throws CollectiveError where data can't be read, or
/// where training and validation data can't be compared.
RunData open_run_data(const config::Settings& settings, const model::LossTerms& loss,
                      const RunOptions& options, comm::Communicator& world, Console& console);

/// Returns lines on the sources of a mixture after `samples` samples: their shares from now on, and
/// what was taken of each; empty unless it is a mixture. The same on all ranks.
std::string describe_sources(data::Dataset& training, std::uint64_t samples);

}  // namespace ostrakon::train
