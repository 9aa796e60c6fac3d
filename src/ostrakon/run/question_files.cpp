// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/question_files.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::train {

Evaluation::Evaluation(const config::Settings& settings, const std::string& tokenizer,
                       const OpenQuestions& open, comm::Communicator& world)
    : every_(settings.training.evaluate_every), context_(settings.training.sequence_length) {
  if (settings.training.evaluate.empty()) return;
  world.run_collectively([&] {
    require(static_cast<bool>(open), "training.evaluate: this program does not read questions");
    if (world.rank() == 0) files_ = open(settings, tokenizer);
  });
  auto count = static_cast<std::int64_t>(files_.size());
  world.broadcast(&count, sizeof count, 0);
  files_.resize(static_cast<std::size_t>(count));
  for (QuestionFile& file : files_) {
    file.name = world.broadcast(file.name, 0);
    evaluate::share(world, file.sequences);
  }
}

EvaluationMetrics Evaluation::measure(Trainer& trainer, std::int64_t step) const {
  EvaluationMetrics metrics;
  metrics.step = step;
  for (const QuestionFile& file : files_) {
    const std::vector<evaluate::Score> scores =
        evaluate::score(trainer, evaluate::SequencesInMemory(file.sequences), {context_, context_});
    metrics.found.emplace_back(file.name, file.judge ? file.judge(scores) : EvaluationScores());
  }
  return metrics;
}

std::string Evaluation::describe() const {
  std::string lines;
  for (const QuestionFile& file : files_)
    lines += text("  questions              ", file.name, ": ",
                  format_count(static_cast<std::int64_t>(file.sequences.size())), " choices every ",
                  every_, " steps\n");
  return lines;
}

}  // namespace ostrakon::train
