// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run_data.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/saving/continuation.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::train {

Validation::Validation(std::unique_ptr<data::Dataset> dataset,
                       const config::TrainingSettings& training, const model::LossTerms& loss)
    : dataset_(std::move(dataset)),
      every_(training.validate_every),
      batch_size_(training.global_batch_size),
      with_averages_(training.validate_ema),
      beta_(training.dpo_beta) {
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

double Validation::loss_of(Trainer& trainer) {
  return used_ < batch_size_ ? trainer.evaluate_samples(*dataset_, used_)
                             : trainer.evaluate(*dataset_, batches_);
}

ValidationMetrics Validation::measure(Trainer& trainer, std::int64_t step) {
  ValidationMetrics metrics;
  metrics.step = step;
  if (with_averages_)
    trainer.with_averages([&] { metrics.ema_validation_loss = loss_of(trainer); });
  metrics.validation_loss = loss_of(trainer);
  const std::int64_t counted = trainer.evaluated_terms();
  if (const std::optional<PairMeans>& pairs = trainer.evaluated_pairs()) {
    metrics.rewards.emplace(*pairs, beta_);
    return metrics;
  }
  const bool all_count = counted == used_ * (dataset_->length() - 1);
  if (!all_count) metrics.counted_tokens = counted;
  // The file tells the bytes of all tokens together, not of those that count.
  if (const auto bytes = dataset_->bytes_per_token(); bytes && all_count)
    metrics.bits_per_byte = metrics.validation_loss / std::log(2.0) / *bytes;
  return metrics;
}

std::string Validation::describe() const {
  const auto samples = static_cast<std::int64_t>(dataset_->samples());
  std::string lines = text("  validation             ", used_, " of ", format_count(samples),
                           " samples every ", every_, " steps\n");
  if (used_ < batch_size_)
    lines += "                         fewer than a global batch: each counts once\n";
  if (!dataset_->bytes_per_token() && dataset_->tokenizer() != data::no_tokenizer &&
      dataset_->pairs() == nullptr)
    lines +=
        "                         its file has no byte_count, or tokens that do not count: no bits "
        "per byte\n";
  return lines;
}

namespace {

std::string percent(double share) { return print("%.4g %%", 100.0 * share); }

std::string source_lines(data::Dataset& training, std::uint64_t samples) {
  std::string lines;
  const std::int64_t length = training.length() - 1;
  int number = 0;
  for (const data::SourceUse& use : training.sources(samples)) {
    const std::string name = text("  source ", ++number);
    const std::string before(25, ' ');
    lines += text(name, std::string(25 - name.size(), ' '), use.path, "\n", before,
                  percent(use.share), " of samples; an epoch has ",
                  format_count(static_cast<std::int64_t>(use.samples_of_epoch)), "\n");
    if (training.has_documents())
      lines += text(before, percent(use.padding), " of their places are padding\n");
    if (samples > 0)
      lines += text(before, "taken so far: ", format_count(use.samples), " samples, ",
                    format_count(use.samples * length), " tokens, ",
                    print("%.4g", static_cast<double>(use.samples) /
                                      static_cast<double>(use.samples_of_epoch)),
                    " epochs\n");
  }
  return lines;
}

/// Throws CollectiveError for ids beyond the vocabulary of a model that is given, where a larger
/// vocabulary is no remedy.
void require_ids_of_model(const config::Settings& settings, const std::string& files,
                          comm::Communicator& world) {
  const std::string &weights = settings.checkpoint.initial_weights, &from = settings.model_folder;
  if (settings.data.dataset != data::DatasetKind::tokens || (weights.empty() && from.empty()))
    return;
  world.run_on_root([&] {
    for (const data::WeightedFile& file : data::read_files(files)) {
      const data::TokenFile tokens(file.path);
      const data::TokenFileInfo& info = tokens.info();
      require(info.vocabulary <= settings.model.vocabulary, "token file '", file.path,
              "' has a vocabulary of ", info.vocabulary, " (tokenizer ", info.tokenizer,
              "), but model.vocabulary is ", settings.model.vocabulary, " with ",
              weights.empty() ? "model.from" : "checkpoint.initial_weights", " = '",
              weights.empty() ? from : weights,
              "'; expected ids of the tokenizer of that model, as ",
              "`ostrakon-data build --tokenizer FOLDER` writes them");
    }
  });
}

}  // namespace

std::string describe_sources(data::Dataset& training, std::uint64_t samples) {
  const std::string lines = source_lines(training, samples);
  return lines.empty()
             ? ""
             : text("sources of the data after ", format_count(static_cast<std::int64_t>(samples)),
                    " samples\n", lines, "\n");
}

RunData open_run_data(const config::Settings& settings, const model::LossTerms& loss,
                      const RunOptions& options, comm::Communicator& world, Console& console) {
  const config::TrainingSettings& training = settings.training;
  data::DataSettings data = settings.data;
  if (options.dry_run) data.verify = false;
  const auto open = [&](data::Split split) {
    require_ids_of_model(settings,
                         split == data::Split::training ? data.path : data.validation_path, world);
    return data::open_dataset(data, split, training.sequence_length, settings.model.vocabulary,
                              training.seed, world);
  };
  RunData opened;
  opened.training = about_path(settings, "data.path", [&] { return open(data::Split::training); });
  if (training.validate_every > 0)
    opened.validation = {
        about_path(settings, "data.validation_path", [&] { return open(data::Split::validation); }),
        training, loss};
  std::vector<std::string> notes;
  if (opened.validation.has_data())
    about_path(settings, "data.validation_path", [&] {
      world.run_collectively([&] {
        notes = require_comparable_validation(opened.training->identity(), data.path,
                                              opened.validation.data().identity(), options.allowed);
      });
    });
  TextWriter out;
  out << "data\n  training               "
      << format_count(static_cast<std::int64_t>(opened.training->samples()))
      << (opened.training->pairs() ? " pairs of answers, each in a sample of " : " samples of ")
      << training.sequence_length << " tokens\n";
  if (opened.validation.has_data()) out << opened.validation.describe() << note_lines(notes);
  if (opened.training->has_documents() && opened.training->sources(0).empty())
    out << "  padding                " << percent(opened.training->padding())
        << " of the places in samples of whole documents\n";
  out << source_lines(*opened.training, 0);
  if (const auto entropy = opened.training->entropy())
    out << "  entropy                " << *entropy << " nats per token\n";
  out << "\n";
  console.say(out.str());
  return opened;
}

}  // namespace ostrakon::train
