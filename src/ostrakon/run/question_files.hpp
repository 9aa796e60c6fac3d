// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/evaluate/sequences.hpp>
#include <ostrakon/run/metrics.hpp>
#include <ostrakon/run/stop_requests.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Questions of a file: sequences that a model scores, and what their scores say.
struct QuestionFile {
  std::string name;            ///< of the file, without its folder
  std::int64_t questions = 0;  ///< on rank 0
  std::vector<evaluate::Sequence> sequences;
  std::function<EvaluationScores(const std::vector<evaluate::Score>&)> judge;
};

/// Opens the files of training.evaluate; `tokenizer`: that of the training data. Called on rank 0.
/// Throws Error where they, or the tokenizer, can't be read. Texts are not read by the library of
/// training, so that the program brings this function.
using OpenQuestions = std::function<std::vector<QuestionFile>(const config::Settings& settings,
                                                              const std::string& tokenizer)>;

/// Has the model that is trained answer questions, always the same ones.
class Evaluation {
 public:
  /// Without questions, never due.
  Evaluation() = default;
  /// Collective: opens the questions that the settings name, if any. Throws CollectiveError where
  /// that is not possible, or `open` is empty.
  Evaluation(const config::Settings& settings, const std::string& tokenizer,
             const OpenQuestions& open, comm::Communicator& world);

  /// Whether to evaluate after a step: every training.evaluate_every steps, and after the last one
  /// unless the run is to be resumed.
  bool is_due(const StepEnd& end) const {
    return !files_.empty() && (end.step % every_ == 0 || (end.is_last && !end.stops));
  }
  /// Collective: returns what was found, on rank 0; on other ranks names without findings.
  EvaluationMetrics measure(Trainer& trainer, std::int64_t step) const;

  /// Lines on the questions; empty without any.
  std::string describe() const;

 private:
  std::vector<QuestionFile> files_;  // judge: on rank 0
  std::int64_t every_ = 0, context_ = 1;
};

}  // namespace ostrakon::train
