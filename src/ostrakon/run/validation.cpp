// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/validation.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <utility>

namespace ostrakon::train {

Validation::Validation(std::unique_ptr<data::Dataset> dataset,
                       const config::TrainingSettings& training, const model::LossTerms& loss)
    : dataset_(std::move(dataset)),
      every_(training.validate_every),
      batch_size_(training.global_batch_size) {
  if (!dataset_) return;
  const std::uint64_t whole = dataset_->samples() / static_cast<std::uint64_t>(batch_size_);
  batches_ =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(whole), 1, training.validation_batches);
  used_ = whole > 0 ? batches_ * batch_size_ : static_cast<std::int64_t>(dataset_->samples());
  if (whole == 0) require_own_losses(loss, used_);
}

bool Validation::is_due(const StepEnd& end) const {
  return has_data() && (end.step % every_ == 0 || (end.is_last && !end.stops));
}

ValidationMetrics Validation::measure(Trainer& trainer, std::int64_t step) {
  ValidationMetrics metrics;
  metrics.step = step;
  metrics.validation_loss = used_ < batch_size_ ? trainer.evaluate_samples(*dataset_, used_)
                                                : trainer.evaluate(*dataset_, batches_);
  if (const auto bytes = dataset_->bytes_per_token())
    metrics.bits_per_byte = metrics.validation_loss / std::log(2.0) / *bytes;
  return metrics;
}

std::string Validation::describe() const {
  const auto samples = static_cast<std::int64_t>(dataset_->samples());
  std::string lines = text("  validation             ", used_, " of ", format_count(samples),
                           " samples every ", every_, " steps\n");
  if (used_ < batch_size_)
    lines += "                         fewer than a global batch: each counts once\n";
  if (!dataset_->bytes_per_token() && dataset_->tokenizer() != data::no_tokenizer)
    lines += "                         its file has no byte_count: no bits per byte\n";
  return lines;
}

}  // namespace ostrakon::train
