// SPDX-License-Identifier: Apache-2.0
// ostrakon-evaluate: how likely texts are to a model.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/evaluate/evaluating_trainer.hpp>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/run/ranks.hpp>
#include <ostrakon/runtime/memory_counter.hpp>

#include "../common/program.hpp"
#include "job.hpp"
#include "share.hpp"

namespace {

using namespace ostrakon;

/// What rank 0 finds: the model, and what is evaluated.
class Evaluation {
 public:
  Evaluation(comm::Communicator& world, const apps::EvaluateLine& line, const std::string& named)
      : world_(world), line_(line) {
    world_.run_collectively([&] {
      apps::require_settable(line.overrides);
      if (is_root()) path_ = apps::resolve_model_path(named);
    });
    path_ = world_.broadcast(path_, 0);
    world_.run_collectively([&] {
      apps::ModelChoice choice = line_;
      choice.ids = true;  // the tokenizer is opened by rank 0 alone, and where there is a text
      choice.tokenizer.reset();
      model_ = apps::open_text_model(path_, choice);
      if (!is_root()) return;
      const std::string unchecked = model_.file.parameters->unchecked();
      if (!unchecked.empty())
        std::cerr << "ostrakon-evaluate: note: " << printable(unchecked) << std::endl;
      if (!model_.file.parameters->checks_what_it_reads()) model_.file.parameters->verify();
      jobs_ = apps::read_jobs(line_, model_.file.settings.model.vocabulary,
                              [this]() -> apps::Encoder& { return encoder(); });
    });
    apps::share_jobs(world_, jobs_);
  }

  void run() {
    config::Settings settings;
    // The model's own context is shown, also where shorter texts need less of it.
    const std::int64_t allowed = model_.file.settings.training.sequence_length;
    const evaluate::WindowSettings shown{allowed, line_.stride.value_or(allowed)};
    world_.run_collectively([&] { settings = settings_of_ranks(); });
    train::Ranks ranks = train::make_ranks(settings, MPI_COMM_WORLD, false);
    train::Trainer trainer = evaluate::make_evaluating_trainer(settings, ranks.mesh);
    trainer.require_within(settings.memory_limit);
    trainer.require_memory();
    trainer.allocate();
    trainer.initialize(model_.file.parameters.get());
    const std::int64_t context = settings.training.sequence_length;
    const evaluate::WindowSettings cut{context, std::min(context, line_.stride.value_or(context))};
    for (const apps::Job& job : jobs_) {
      const std::vector<evaluate::Score> scores = score(trainer, job, cut);
      world_.run_on_root([&] { job.write(scores, shown); });
    }
  }

 private:
  bool is_root() const { return world_.rank() == 0; }

  apps::Encoder& encoder() {
    if (encoder_) return *encoder_;
    apps::ModelChoice choice = line_;
    choice.or_ids = "; or --requests whose texts are lists of ids";
    text_model_ = apps::open_text_model(path_, choice);
    return encoder_.emplace(*text_model_.tokenizer);
  }

  std::vector<evaluate::Score> score(train::Trainer& trainer, const apps::Job& job,
                                     const evaluate::WindowSettings& cut) {
    if (job.token_file.empty())
      return evaluate::score(trainer, evaluate::SequencesInMemory(job.sequences), cut);
    std::optional<data::TokenFile> file;
    world_.run_collectively([&] { file.emplace(job.token_file); });
    return evaluate::score(trainer, evaluate::SequenceOfFile(*file), cut);
  }

  /// The settings of the run, with a context no longer than the longest sequence needs.
  config::Settings settings_of_ranks() {
    require(line_.stride.value_or(1) <= model_.file.settings.training.sequence_length, "--stride ",
            line_.stride.value_or(1), ": expected 1 to ",
            model_.file.settings.training.sequence_length, ", the length of the context");
    apps::fit_context(model_, context_for(jobs_), line_);
    return apps::settings_of_run(model_.file.settings, line_.overrides, world_.size());
  }

  comm::Communicator& world_;
  const apps::EvaluateLine& line_;
  std::string path_;
  apps::TextModel model_, text_model_;
  std::optional<apps::Encoder> encoder_;
  std::vector<apps::Job> jobs_;
};

}  // namespace

int main(int argc, char** argv) {
  apps::EvaluateLine line;
  const auto run = [&](comm::Communicator& world, const apps::Given& given) {
    runtime::start_counting_memory();
    Evaluation(world, line, given.operands[0]).run();
    return 0;
  };
  return apps::run_program(apps::evaluate_program(line), argc, argv, run);
}
