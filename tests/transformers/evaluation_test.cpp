// SPDX-License-Identifier: Apache-2.0

// Log-probabilities and greedy tokens as ostrakon-evaluate finds them, against what transformers
// computes.

#include <cmath>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/evaluate/evaluating_trainer.hpp>
#include <ostrakon/evaluate/scorer.hpp>
#include <ostrakon/run/ranks.hpp>

#include "apps/common/model_file.hpp"
#include "parameterized.hpp"
#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::test::transformers {
namespace {

using evaluate::Score;
using evaluate::Sequence;

/// Rounding of fp32: of one token in a few layers, and of a mean.
constexpr double rounding = 1e-5, mean_rounding = 1e-6;

/// Tokens [0, end) of a sequence, of which those from `first` on are predicted.
Sequence sequence_of(const Tokens& tokens, std::size_t first, std::size_t end) {
  const auto begin = tokens.begin();
  return {{begin, begin + static_cast<std::ptrdiff_t>(end)}, static_cast<std::int64_t>(first)};
}

class EvaluationOfTransformers : public OfExpectedModel {
 protected:
  std::vector<Score> scores_of(const std::vector<Sequence>& sequences) const {
    const testing::SharedFolder shared;
    const std::string folder = shared.file("model");
    int rank = 0, size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0) write_folder(expected_, folder);
    tests::gathered(MPI_COMM_WORLD);
    const auto context =
        static_cast<std::int64_t>(expected_.prompt.size() + expected_.greedy.size());
    const apps::ModelFile file = apps::open_safetensors(folder, {}, context);
    config::Settings settings = file.settings;
    settings.training.micro_batch_size = 2;
    train::Ranks ranks =
        train::make_ranks(evaluate::evaluation_settings(settings, size), MPI_COMM_WORLD, false);
    train::Trainer trainer = evaluate::make_evaluating_trainer(
        evaluate::evaluation_settings(settings, size), ranks.mesh);
    trainer.allocate();
    trainer.initialize(file.parameters.get());
    const std::int64_t length = settings.training.sequence_length;
    return score(trainer, evaluate::SequencesInMemory(sequences), {length, length});
  }
};

TEST_P(EvaluationOfTransformers, HasTheirLogProbabilities) {
  const std::size_t targets = expected_.log_probabilities.size();
  Tokens greedy = expected_.prompt;
  greedy.insert(greedy.end(), expected_.greedy.begin(), expected_.greedy.end());
  std::vector<Sequence> sequences = {
      sequence_of(greedy, expected_.prompt.size(), greedy.size()),
      sequence_of(expected_.batch[0], 1, targets + 1),
  };
  for (std::size_t t = 0; t < targets; ++t)
    sequences.push_back(sequence_of(expected_.batch[0], t + 1, t + 2));
  Tokens& last = greedy;
  last.back() = last.back() == 0 ? 1 : 0;
  sequences.push_back(sequence_of(last, expected_.prompt.size(), last.size()));

  const std::vector<Score> scores = scores_of(sequences);
  EXPECT_TRUE(scores.front().is_greedy) << expected_.name;
  EXPECT_FALSE(scores.back().is_greedy) << expected_.name << ": with another last token";
  double sum = 0.0;
  for (std::size_t t = 0; t < targets; ++t) {
    EXPECT_NEAR(scores[t + 2].log_probability, expected_.log_probabilities[t], rounding)
        << expected_.name << ": log probability of target " << t;
    EXPECT_EQ(scores[t + 2].tokens, 1);
    sum += expected_.log_probabilities[t];
  }
  EXPECT_EQ(scores[1].tokens, static_cast<std::int64_t>(targets));
  EXPECT_NEAR(scores[1].loss(), -sum / static_cast<double>(targets), mean_rounding)
      << expected_.name;
}

INSTANTIATE_TEST_SUITE_P(Expected, EvaluationOfTransformers, ::testing::ValuesIn(expected_names()),
                         test_name);

}  // namespace
}  // namespace ostrakon::test::transformers
