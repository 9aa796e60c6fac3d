// SPDX-License-Identifier: Apache-2.0
// Direct preference optimization: the reference's log-probabilities, and the same bits in every
// layout.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/pair_dataset.hpp>
#include <ostrakon/data/reference_file.hpp>
#include <ostrakon/math/cross_entropy/pair_losses.hpp>
#include <ostrakon/run/references.hpp>
#include <random>
#include <sstream>
#include <string>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

constexpr std::int64_t pair_count = 21, places = 48;
constexpr std::size_t numbers_of_step = 7;  // that numbers_of_run tells

/// A folder that all ranks see, with a token file of pairs in it: prompts, and answers of which the
/// chosen ones have even tokens and the rejected ones odd tokens.
class PairFiles {
 public:
  PairFiles() {
    if (rank() == 0) {
      std::filesystem::remove_all(folder());
      std::filesystem::create_directories(folder());
      write_pairs(tokens());
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  ~PairFiles() {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank() == 0) std::filesystem::remove_all(folder());
  }
  static std::string folder() { return text("dpo_test.np", world_ranks()); }
  static std::string tokens() { return folder() + "/pairs.h5"; }
  static std::string prefix() { return folder() + "/reference"; }

  static int rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
  }

 private:
  static void write_pairs(const std::string& path) {
    data::TokenFileWriter file(path, "external", 61, {});
    file.note_pairs();
    std::mt19937 random(3);
    const auto draw = [&](int least, int most) {
      return std::uniform_int_distribution<std::int32_t>(least, most)(random);
    };
    for (std::int64_t p = 0; p < pair_count; ++p) {
      std::vector<std::int32_t> prompt(static_cast<std::size_t>(draw(1, 8)));
      for (std::int32_t& token : prompt) token = draw(0, 60);
      for (const int odd : {0, 1}) {
        std::vector<std::int32_t> document = prompt;
        for (int more = draw(1, 15); more > 0; --more) document.push_back(2 * draw(0, 29) + odd);
        std::vector<std::uint8_t> counts(document.size(), 1);
        std::fill_n(counts.begin(), prompt.size(), std::uint8_t{0});
        file.append(document.data(), static_cast<std::int64_t>(document.size()), counts.data());
        file.end_document();
      }
    }
    file.finish();
  }
};

config::Settings of_pairs(config::Settings settings) {
  settings.data.dataset = data::DatasetKind::tokens;
  settings.data.path = settings.data.validation_path = PairFiles::tokens();
  settings.data.objective = data::Objective::dpo;
  settings.training.dpo_beta = 0.4;
  settings.training.sequence_length = places;
  settings.training.micro_batch_size = 2;
  settings.training.global_batch_size = 8;
  settings.training.steps = 4;
  settings.optimizer.learning_rate = 1e-2;
  settings.schedule.warmup_steps = 0;
  return settings;
}

/// A run with references, and what it does in its steps and a validation.
struct DpoRun {
  explicit DpoRun(const config::Settings& its_settings, MPI_Comm comm = MPI_COMM_WORLD)
      : settings(its_settings),
        run(settings, comm),
        console(said, {run.mesh.world().rank() == 0, false, 1, 1}) {
    data.training = std::move(run.training);
    data.validation = {std::move(run.validation), settings.training,
                       run.trainer.model().loss_terms()};
  }
  void make_references() {
    train::make_references(PairFiles::prefix(), settings, data, run.trainer, run.mesh.world(),
                           console);
  }
  train::StepResult step(std::int64_t number) { return run.trainer.step(*data.training, number); }

  config::Settings settings;
  SmallRun run;
  std::ostringstream said;
  train::Console console;
  train::RunData data;
};

/// All numbers that a run tells, and its digests.
std::vector<double> numbers_of_run(const config::Settings& settings, MPI_Comm comm) {
  DpoRun run(settings, comm);
  run.make_references();
  std::vector<double> all;
  const auto add = [&](const train::PairMeans& pairs) {
    all.insert(all.end(), {pairs.chosen_log_ratio, pairs.rejected_log_ratio, pairs.preferred});
  };
  for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
    const train::StepResult result = run.step(step);
    all.insert(all.end(), {result.loss, result.grad_norm});
    add(*result.pairs);
    const std::uint64_t digest = run.run.trainer.state_digest();
    all.insert(all.end(),
               {static_cast<double>(digest >> 32), static_cast<double>(digest << 32 >> 32)});
  }
  all.push_back(run.run.trainer.evaluate(run.data.validation.data(), 2));
  add(*run.run.trainer.evaluated_pairs());
  all.push_back(run.run.trainer.evaluate_samples(run.data.validation.data(), 5));
  add(*run.run.trainer.evaluated_pairs());
  return all;
}

void remove_references() {
  MPI_Barrier(MPI_COMM_WORLD);
  if (PairFiles::rank() == 0)
    for (const data::Split split : {data::Split::training, data::Split::validation})
      std::filesystem::remove(train::reference_path(PairFiles::prefix(), split));
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The numbers of a run that one rank has made alone.
std::vector<double> numbers_alone(config::Settings settings) {
  settings.parallel.sharding = plan::Sharding::none;
  std::vector<double> all;
  remove_references();
  if (PairFiles::rank() == 0) all = numbers_of_run(settings, MPI_COMM_SELF);
  from_rank_0(all);
  return all;
}

TEST(Dpo, HasTheSameBitsInEveryLayout) {
  const PairFiles files;
  for (config::Settings settings : {small_gpt2(1), small_llama(1)}) {
    settings = of_pairs(settings);
    const std::vector<double> alone = numbers_alone(settings);
    EXPECT_EQ(alone[0], static_cast<double>(std::log(2.0f))) << "it begins as the reference";
    EXPECT_LT(alone[numbers_of_step * 3], 0.9 * alone[0]) << "it learns";
    for (const plan::Sharding sharding : {plan::Sharding::none, plan::Sharding::full})
      for (const std::int64_t pipeline : {1, 2}) {
        // Tied embeddings on two stages have sums of their own.
        if (world_ranks() % pipeline != 0 || (pipeline > 1 && settings.model.tie_embeddings))
          continue;
        settings.parallel.sharding = sharding;
        settings.pipeline = pipeline;
        remove_references();
        EXPECT_EQ(numbers_of_run(settings, MPI_COMM_WORLD), alone)
            << name(sharding) << ", " << pipeline << " stages";
      }
  }
}

TEST(Dpo, OfPairsThatAreLeavesHasTheSameBitsInMicroBatchesOfAnySize) {
  const PairFiles files;
  config::Settings settings = of_pairs(small_llama(1));
  settings.training.leaf = config::Leaf::sequence;
  settings.parallel.sharding = plan::Sharding::full;
  settings.training.micro_batch_size = 1;
  const std::vector<double> alone = numbers_alone(settings);
  for (const std::int64_t size : {1, 2}) {
    settings.training.micro_batch_size = size;
    remove_references();
    EXPECT_EQ(numbers_of_run(settings, MPI_COMM_WORLD), alone) << size;
  }
}

/// Where a block is frozen, or all but adapters.
TEST(Dpo, TrainsWhatIsNotFrozen) {
  const PairFiles files;
  config::Settings frozen = of_pairs(small_llama(1)), adapted = frozen;
  optim::ParameterRule rule;
  rule.pattern = "block.0.*";
  rule.frozen = true;
  frozen.optimizer.parameters = {rule};
  adapted.model.lora.rank = 3;
  for (config::Settings settings : {frozen, adapted}) {
    const std::vector<double> alone = numbers_alone(settings);
    EXPECT_LT(alone[numbers_of_step * 3], alone[0]);
    settings.parallel.sharding = plan::Sharding::full;
    remove_references();
    EXPECT_EQ(numbers_of_run(settings, MPI_COMM_WORLD), alone) << settings.model.lora.rank;
  }
}

TEST(Dpo, ReadsReferencesOfTheSamePairsAndWeightsAlone) {
  const PairFiles files;
  config::Settings settings = of_pairs(small_llama(1));
  remove_references();
  DpoRun first(settings);
  first.make_references();
  const double loss = first.step(1).loss;
  {
    DpoRun again(settings);
    again.make_references();
    EXPECT_EQ(again.step(1).loss, loss);
    if (PairFiles::rank() == 0) {
      EXPECT_HAS(again.said.str(), "log-probabilities are those in");
    }
  }
  const auto error_of_run = [&](const config::Settings& other) {
    DpoRun run(other);
    return testing::error_of([&] { run.make_references(); });
  };
  config::Settings rounded = settings;
  rounded.precision.gather = DType::bf16;
  EXPECT_HAS(error_of_run(rounded),
             "is of another reference than this run's: the precision.gather was fp32, and is bf16");
  settings.training.seed = 77;
  EXPECT_HAS(error_of_run(settings),
             "is of another reference than this run's: the hash of weights was");
  // A run that resumes has weights of its own.
  DpoRun resumed(settings);
  train::read_references(PairFiles::prefix(), resumed.data, resumed.run.mesh.world());
  EXPECT_EQ(resumed.data.training->identity().back().name,
            "checksum of the reference's log-probabilities");
  // Files of two references are refused then, too.
  if (PairFiles::rank() == 0) {
    const std::string kept = train::reference_path(PairFiles::prefix(), data::Split::validation);
    const data::PairDataset& pairs = *resumed.data.validation.data().pairs();
    data::References other = data::read_references(kept, pairs.identity_of_file());
    other.model.back().value = "of other weights";
    data::write_references(kept, pairs.identity_of_file(), other);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  DpoRun mixed(settings);
  EXPECT_HAS(testing::error_of([&] {
               train::read_references(PairFiles::prefix(), mixed.data, mixed.run.mesh.world());
             }),
             "reference-validation.h5' is of another reference than this run's: ");
  remove_references();
  DpoRun without(settings);
  EXPECT_THROW(train::read_references(PairFiles::prefix(), without.data, without.run.mesh.world()),
               CollectiveError);
}

}  // namespace
}  // namespace ostrakon::tests
