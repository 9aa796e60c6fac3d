// SPDX-License-Identifier: Apache-2.0

// Training that begins with a folder of transformers, against AdamW of PyTorch.

#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/config/deck.hpp>

#include "parameterized.hpp"
#include "support/shared_folder.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::test::transformers {
namespace {

/// Rounding of fp32: of the first loss, and of what ten steps make of it.
constexpr double first_rounding = 1e-6, rounding = 5e-7;

/// Returns settings of a deck as users write it: a folder, and how to train. Experts are not
/// balanced: transformers leaves that to who trains.
config::Settings settings_for(const ExpectedModel& expected, const std::string& folder) {
  std::string optimizer;
  for (const auto& item : expected.adamw.items())
    optimizer += item.key() + ": " + item.value().dump() + ", ";
  const std::string deck =
      "ostrakon:\n  model: {from: \"" + folder + "\", router_balance_rate: 1e-30}\n" +
      "  checkpoint: {initial_weights: \"" + folder + "\"}\n  data: {dataset: synthetic}\n" +
      "  training: {steps: " + std::to_string(expected.losses.size()) +
      ", global_batch_size: " + std::to_string(expected.batch.size()) +
      ", micro_batch_size: 2, sequence_length: " + std::to_string(expected.sequence_length()) +
      "}\n  optimizer: {" + optimizer + "clip_norm: 0}\n" +
      "  schedule: {warmup_steps: 0, tail: constant}\n";
  return config::read_settings(deck, "deck.yaml", {});
}

class TrainingFromTransformers : public OfExpectedModel {
 protected:
  /// `counts`: which targets count; empty: all. `documents`: lengths of those of a sequence.
  void expect_losses(const std::vector<double>& losses,
                     const tests::SomeTargets::Counts& counts = {},
                     const std::vector<std::int64_t>& documents = {}) const;
};

void TrainingFromTransformers::expect_losses(const std::vector<double>& losses,
                                             const tests::SomeTargets::Counts& counts,
                                             const std::vector<std::int64_t>& documents) const {
  const testing::SharedFolder shared;
  const std::string folder = shared.file("model");
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) write_folder(expected_, folder);
  tests::gathered(MPI_COMM_WORLD);
  config::Settings settings = settings_for(expected_, folder);
  if (!documents.empty()) settings.data.documents = data::Documents::separate;
  tests::SmallRun run(settings);
  const auto weights = checkpoint::open_parameters(settings.checkpoint.initial_weights,
                                                   settings.model, expected_.sequence_length());
  run.trainer.initialize(weights.get());
  RepeatedBatch all(expected_.batch, documents);
  tests::SomeTargets some(all, counts);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    const train::StepResult result =
        counts ? run.trainer.step(some, step) : run.trainer.step(all, step);
    EXPECT_NEAR(result.loss, losses[i], i == 0 ? first_rounding : rounding * losses[i])
        << expected_.name << ": loss of step " << step;
  }
}

TEST_P(TrainingFromTransformers, HasTheLossesOfAdamW) {
  expect_losses(expected_.losses);
  if (expected_.some_losses.empty()) return;
  expect_losses(expected_.some_losses, [&](std::uint64_t sample, std::int64_t position) {
    return tests::counts_unequally(sample % expected_.batch.size(), position);
  });
}

class TrainingInDocuments : public TrainingFromTransformers {};

TEST_P(TrainingInDocuments, HasTheLossesOfAdamW) {
  expect_losses(expected_.losses_in_documents, {}, expected_.documents);
}

/// Those that have losses of documents.
std::vector<std::string> names_with_documents() {
  std::vector<std::string> names;
  for (const std::string& name : expected_names())
    if (!read_expected(name).documents.empty()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Expected, TrainingInDocuments, ::testing::ValuesIn(names_with_documents()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Expected, TrainingFromTransformers, ::testing::ValuesIn(expected_names()),
                         test_name);

}  // namespace
}  // namespace ostrakon::test::transformers
