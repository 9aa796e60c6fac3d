// SPDX-License-Identifier: Apache-2.0
// Averages of parameters over steps: their values, the same bits in every layout, and evaluations
// of them.
#include <gtest/gtest.h>

#include <map>
#include <ostrakon/base/error.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

constexpr double decay = 0.75;

/// All parameters by their full names, as a trainer hands them over: also a source of weights.
class Visited : public checkpoint::ParameterSource {
 public:
  explicit Visited(train::Trainer& trainer) {
    trainer.visit_parameters([&](int unit, View<const float*> trained, View<const float*> frozen) {
      for (const model::Parameter& parameter : trainer.model().parameters(unit))
        values[parameter.full_name()] = trainer.values_of(unit, parameter, trained, frozen);
    });
  }
  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& /*shape*/, std::int64_t first, std::int64_t count,
            float* to) override {
    std::copy_n(values.at(owner + "." + parameter).begin() + first, count, to);
  }
  void verify() override {}
  bool checks_what_it_reads() const override { return true; }

  std::map<std::string, std::vector<float>> values;
};

config::Settings averaging(config::Settings settings) {
  settings.ema = decay;
  settings.training.steps = 4;
  settings.schedule.warmup_steps = 1;
  settings.optimizer.learning_rate = 1e-2;
  return settings;
}

TEST(Averages, AreOfTheParametersAfterEachStep) {
  for (const bool freezes : {false, true}) {
    config::Settings settings = averaging(small_llama(8));
    if (freezes) {
      optim::ParameterRule rule;
      rule.pattern = "block.0.*";
      rule.frozen = true;
      settings.optimizer.parameters.push_back(rule);
    }
    SmallRun run(settings);
    std::map<std::string, std::vector<float>> expected = Visited(run.trainer).values;
    for (std::int64_t step = 1; step <= settings.training.steps; ++step) {
      run.step(step);
      for (const auto& [name, now] : Visited(run.trainer).values)
        for (std::size_t i = 0; i < now.size(); ++i)
          expected[name][i] += 0.25F * (now[i] - expected[name][i]);
    }
    const std::uint64_t digest = run.trainer.state_digest();
    run.trainer.with_averages([&] {
      EXPECT_FALSE(run.trainer.is_intact()) << "averages would be saved as the parameters";
      const Visited averages(run.trainer);
      for (const auto& [name, values] : averages.values) EXPECT_EQ(values, expected[name]) << name;
      EXPECT_NE(run.trainer.state_digest(), digest);
    });
    EXPECT_EQ(run.trainer.state_digest(), digest);
    EXPECT_TRUE(run.trainer.is_intact());
    EXPECT_THROW(run.trainer.with_averages([] { throw CollectiveError("a disk is full"); }),
                 CollectiveError);
    EXPECT_EQ(run.trainer.state_digest(), digest);
    EXPECT_TRUE(run.trainer.is_intact());
  }
}

TEST(Averages, LeaveParametersAsTheyAreWithout) {
  config::Settings settings = averaging(small_gpt2(8));
  SmallRun with(settings);
  settings.ema = 0.0;
  SmallRun without(settings);
  for (std::int64_t step = 1; step <= 3; ++step)
    EXPECT_EQ(with.step(step).loss, without.step(step).loss);
  EXPECT_EQ(Visited(with.trainer).values, Visited(without.trainer).values);
  EXPECT_HAS(testing::error_of([&] { without.trainer.with_averages([] {}); }), "ema 0");
}

/// A step that is skipped, or repeated since it was clipped after an optimistic update, is one step
/// of the average or none.
TEST(Averages, HaveTheSameBitsInEveryLayout) {
  for (const double clip : {1e6, 1e-3}) {
    config::Settings settings = averaging(small_gpt2(8));
    settings.optimizer.clip_norm = clip;
    settings.parallel.sharding = plan::Sharding::none;
    const History reference = train_alone(settings);
    for (const NamedRow& row :
         covering_rows("sharding 4, over 2, offload 4, updates 2, accumulation 3, blocks 2",
                       [](const NamedRow& row) {
                         return (row["sharding"] != 0 || row["over"] == 0) &&
                                (row["updates"] == 0 || row["offload"] == 0);
                       })) {
      config::Settings other = settings;
      apply_policy(row, other);
      const History run = train_history(other, MPI_COMM_WORLD);
      EXPECT_EQ(run.losses, reference.losses) << row.text();
      EXPECT_EQ(run.digests, reference.digests) << row.text();
    }
  }
}

/// Evaluated as the parameters of a run that begins with the averages.
TEST(Averages, AreEvaluatedAsParameters) {
  for (const DType gather : {DType::fp32, DType::bf16})
    for (const NamedRow& row : covering_rows(
             "sharding 4, over 2, offload 4, tied 2",
             [](const NamedRow& row) { return row["sharding"] != 0 || row["over"] == 0; })) {
      config::Settings settings = averaging(row["tied"] == 0 ? small_llama(8) : small_gpt2(8));
      settings.precision.gather = gather;
      apply_policy(row, settings);
      SmallRun run(settings);
      for (std::int64_t step = 1; step <= 2; ++step) run.step(step);
      const double before = run.trainer.evaluate(*run.validation, 1);
      double loss = 0.0;
      std::map<std::string, std::vector<float>> averages;
      SmallRun other(settings);
      run.trainer.with_averages([&] {
        loss = run.trainer.evaluate(*run.validation, 1);
        Visited visited(run.trainer);
        other.trainer.initialize(&visited);
      });
      EXPECT_EQ(loss, other.trainer.evaluate(*other.validation, 1)) << row.text();
      EXPECT_NE(loss, before) << row.text();
      EXPECT_EQ(run.trainer.evaluate(*run.validation, 1), before) << row.text();
      // Training goes on as if nothing had happened.
      SmallRun undisturbed(settings);
      for (std::int64_t step = 1; step <= 2; ++step) undisturbed.step(step);
      EXPECT_EQ(run.step(3).loss, undisturbed.step(3).loss) << row.text();
      EXPECT_EQ(run.trainer.state_digest(), undisturbed.trainer.state_digest()) << row.text();
    }
}

TEST(Averages, OfTensorRanksAndStagesHaveTheSameBits) {
  const int ranks = world_ranks();
  if (ranks == 1) GTEST_SKIP() << "needs others";
  config::Settings settings = averaging(in_pieces(small_llama(8)));
  settings.training.steps = 2;
  const History reference = train_alone(settings);
  for (const bool in_stages : {false, true}) {
    config::Settings other = settings;
    (in_stages ? other.pipeline : other.tensor) = 2;
    SmallRun run(other);
    for (std::int64_t step = 1; step <= 2; ++step) {
      EXPECT_EQ(run.step(step).loss, reference.losses[static_cast<std::size_t>(step) - 1]);
      EXPECT_EQ(run.trainer.state_digest(), reference.digests[static_cast<std::size_t>(step) - 1]);
    }
    SmallRun alone(settings, MPI_COMM_SELF);
    for (std::int64_t step = 1; step <= 2; ++step) alone.step(step);
    double loss = 0.0, expected = 0.0;
    run.trainer.with_averages([&] { loss = run.trainer.evaluate(*run.validation, 1); });
    alone.trainer.with_averages([&] { expected = alone.trainer.evaluate(*alone.validation, 1); });
    EXPECT_EQ(loss, expected) << in_stages;
  }
}

}  // namespace
}  // namespace ostrakon::tests
