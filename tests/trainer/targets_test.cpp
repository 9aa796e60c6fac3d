// SPDX-License-Identifier: Apache-2.0
// Targets that do not count: the loss and its gradients are those of a mean over the ones that do.
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/transfer.hpp>
#include <string>
#include <vector>

#include "support/messages.hpp"
#include "trainer/choices.hpp"
#include "trainer/comparison.hpp"
#include "trainer/small_runs.hpp"
#include "trainer/some_targets.hpp"

namespace ostrakon::tests {
namespace {

/// Gives one sample of a source again and again.
class OneOf : public data::SampleSource {
 public:
  OneOf(data::SampleSource& samples, std::uint64_t which) : samples_(samples), which_(which) {}
  std::int64_t sample_bytes() const override { return samples_.sample_bytes(); }
  void fill(std::uint64_t, std::int64_t count, void* batch) override {
    const std::int64_t half = sample_bytes() / 2;
    std::vector<char> one(static_cast<std::size_t>(2 * half));
    samples_.fill(which_, 1, one.data());
    char* const to = static_cast<char*>(batch);
    for (std::int64_t s = 0; s < 2 * count; ++s)  // tokens of all, then targets of all
      std::copy_n(one.data() + (s < count ? 0 : half), half, to + s * half);
  }

 private:
  data::SampleSource& samples_;
  std::uint64_t which_;
};

/// One sequence in each leaf, on any number of ranks up to four.
config::Settings small(std::int64_t samples = 12) {
  config::Settings settings = small_llama(samples);
  settings.training.micro_batch_size = 1;
  settings.training.global_batch_size = samples;
  settings.training.steps = 3;
  settings.optimizer.clip_norm = 0.0;
  return settings;
}

config::Settings by_plain_descent(config::Settings settings) {
  settings.optimizer.kind = optim::OptimizerKind::sgd;
  settings.optimizer.momentum = 0.0;
  settings.optimizer.weight_decay = 0.0;
  settings.optimizer.learning_rate = 1.0;
  settings.schedule.warmup_steps = 0;
  return settings;
}

std::int64_t count_of(std::uint64_t sample, std::int64_t tokens) {
  std::int64_t count = 0;
  for (std::int64_t t = 0; t < tokens; ++t) count += counts_unequally(sample, t) ? 1 : 0;
  return count;
}

/// Takes one step, and returns by how much it changes each parameter.
std::vector<double> changes_of_step(const config::Settings& settings, std::uint64_t which,
                                    train::StepResult& result) {
  SmallRun run(settings);
  const auto values = [&] {
    std::vector<double> all;
    run.trainer.visit_parameters([&](int, View<const float*> trained, View<const float*>) {
      std::vector<float> some(static_cast<std::size_t>(trained.size()));
      math::copy_to_host(Exec(), trained, host_view(some));
      all.insert(all.end(), some.begin(), some.end());
    });
    return all;
  };
  std::vector<double> changes = values();
  SomeTargets some(*run.training, counts_unequally);
  OneOf one(some, which);
  const bool takes_all = which >= static_cast<std::uint64_t>(settings.training.global_batch_size);
  result = run.trainer.step(takes_all ? static_cast<data::SampleSource&>(some) : one, 1);
  const std::vector<double> after = values();
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i] = after[i] - changes[i];
  return changes;
}

/// They are each sample's own, weighted by how many of its targets count.
TEST(Targets, ThatCountAreWhatLossAndGradientsAreAMeanOver) {
  const config::Settings settings = by_plain_descent(small());
  const auto samples = static_cast<std::uint64_t>(settings.training.global_batch_size);
  train::StepResult result;
  const std::vector<double> all = changes_of_step(settings, samples, result);
  double loss = 0.0, counted = 0.0;
  std::vector<double> expected(all.size());
  for (std::uint64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t count = count_of(sample, settings.training.sequence_length);
    train::StepResult of_one;
    const std::vector<double> one = changes_of_step(settings, sample, of_one);
    EXPECT_EQ(of_one.counted_terms, count * static_cast<std::int64_t>(samples));
    loss += of_one.loss * static_cast<double>(count);
    counted += static_cast<double>(count);
    for (std::size_t i = 0; i < one.size(); ++i) expected[i] += one[i] * static_cast<double>(count);
  }
  EXPECT_EQ(static_cast<double>(result.counted_terms), counted);
  EXPECT_LT(counted, 0.8 * static_cast<double>(samples) * 24);
  EXPECT_NEAR(result.loss, loss / counted, 1e-6 * result.loss);
  double squares = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    squares += all[i] * all[i];
    largest = std::max(largest, std::abs(all[i]));
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    ASSERT_NEAR(all[i], expected[i] / counted, 1e-5 * largest) << i;
  EXPECT_NEAR(result.grad_norm * result.learning_rate, std::sqrt(squares), 1e-4 * result.grad_norm);
}

/// Half of twice as many samples do not count: gradients are halved, and doubled by the factor.
TEST(Targets, OfSamplesThatDoNotCountLeaveThoseOfTheOthers) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    config::Settings settings = small(8);
    settings.precision.gather = dtype;
    settings.optimizer.clip_norm = 0.1;
    if (8 % world_ranks() != 0) GTEST_SKIP() << "leaves do not divide";
    SmallRun whole(settings);
    const train::StepResult alone = whole.step(1);
    settings.training.global_batch_size *= 2;
    SmallRun twice(settings);
    SomeTargets some(*twice.training, [](std::uint64_t sample, auto) { return sample < 8; });
    const train::StepResult result = twice.trainer.step(some, 1);
    EXPECT_EQ(result.loss, alone.loss);
    EXPECT_EQ(result.grad_norm, alone.grad_norm);
    EXPECT_EQ(result.counted_terms, alone.counted_terms);
    EXPECT_EQ(twice.trainer.state_digest(), whole.trainer.state_digest());
  }
}

History history_of(const config::Settings& settings) {
  return train_history(settings, MPI_COMM_WORLD, {}, counts_unequally);
}

/// Offload and updates decide when the factor of gradients is known, which changes no bit.
TEST(Targets, OfMicroBatchesThatCountUnequallyHaveTheBitsOfOneBatch) {
  const int ranks = world_ranks();
  if (8 % ranks != 0) GTEST_SKIP() << "sums have another order";
  for (const double clip_norm : {0.0, 0.1}) {
    config::Settings settings = small(8);
    settings.training.leaf = config::Leaf::sequence;
    settings.training.micro_batch_size = 8;
    settings.optimizer.clip_norm = clip_norm;
    const History reference = train_alone(settings, MPI_COMM_WORLD, counts_unequally);
    for (const std::int64_t micro_batch : {1, 2, 4, 8}) {
      if (micro_batch * ranks > 8) continue;
      for (const auto& [offload, updates] :
           {std::pair{plan::Offload::none, plan::Updates::after_clip},
            std::pair{plan::Offload::none, plan::Updates::optimistic},
            std::pair{plan::Offload::all, plan::Updates::after_clip}}) {
        config::Settings one = settings;
        one.training.micro_batch_size = micro_batch;
        one.parallel.offload = offload;
        one.parallel.updates = updates;
        expect_same_bits(history_of(one), reference,
                         text("clipped at ", clip_norm, ", micro-batches of ", micro_batch,
                              ", offload ", name(offload), ", updates ", name(updates)));
      }
    }
  }
}

TEST(Targets, AreCountedOnceOnRanksThatShareALeaf) {
  const int ranks = world_ranks();
  config::Settings settings = in_pieces(small_llama(8));
  settings.training.steps = 2;
  settings.parallel.sharding = plan::Sharding::none;
  const History reference = train_alone(settings, MPI_COMM_WORLD, counts_unequally);
  settings.parallel.sharding = plan::Sharding::full;
  for (const NamedRow& row :
       covering_rows("tensor 2, context 2, pipeline 2, sharding 4", [&](const NamedRow& r) {
         return 1 << (r["tensor"] + r["context"] + r["pipeline"]) <= ranks;
       })) {
    if (ranks == 3) GTEST_SKIP() << "leaves do not divide";
    config::Settings one = settings;
    one.tensor = 1 << row["tensor"];
    one.context = 1 << row["context"];
    one.pipeline = 1 << row["pipeline"];
    apply_policy(row, one);
    expect_same_bits(history_of(one), reference, row.text());
  }
}

TEST(Targets, ThatCountAreWhatAValidationIsAMeanOver) {
  const config::Settings settings = small();
  const std::int64_t batch = settings.training.global_batch_size;
  SmallRun run(settings);
  SomeTargets some(*run.validation, counts_unequally);
  SomeTargets most(*run.validation, [](std::uint64_t sample, std::int64_t position) {
    return sample < 12 ? position % 8 == 0 : position % 4 != 0;
  });
  double sum = 0.0;
  std::int64_t terms = 0;
  for (std::int64_t count = 1; count <= batch; ++count) {
    OneOf one(some, static_cast<std::uint64_t>(count - 1));
    const std::int64_t of_one =
        count_of(static_cast<std::uint64_t>(count - 1), settings.training.sequence_length);
    sum += run.trainer.evaluate(one, 1) * static_cast<double>(of_one);
    terms += of_one;
    const double loss = run.trainer.evaluate_samples(some, count);
    EXPECT_EQ(run.trainer.evaluated_terms(), terms);
    EXPECT_NEAR(loss, terms > 0 ? sum / static_cast<double>(terms) : 0.0, 1e-6 * (1.0 + loss));
  }
  // The first batch has 36 targets that count, the second one 216.
  const double first = run.trainer.evaluate(most, 1);
  const double both = run.trainer.evaluate(most, 2);
  EXPECT_EQ(run.trainer.evaluated_terms(), 36 + 216);
  SomeTargets last(*run.validation, [&](std::uint64_t sample, std::int64_t position) {
    return sample >= 12 && position % 4 != 0;
  });
  const double second = run.trainer.evaluate(last, 2);
  EXPECT_EQ(run.trainer.evaluated_terms(), 216);
  EXPECT_NE(first, second);
  EXPECT_NEAR(both, (36 * first + 216 * second) / 252, 1e-12 * both);
}

TEST(Targets, OfWhichNoneCountsChangeNothing) {
  for (const DType dtype : {DType::fp32, DType::fp16}) {
    config::Settings settings = by_plain_descent(small());
    settings.precision.gather = dtype;
    settings.precision.loss_scale.initial = 1024.0;
    SmallRun run(settings);
    SomeTargets none(*run.training, [](auto, auto) { return false; });
    const std::uint64_t before = run.trainer.state_digest();
    const train::StepResult result = run.trainer.step(none, 1);
    EXPECT_EQ(result.loss, 0.0);
    EXPECT_EQ(result.grad_norm, 0.0);
    EXPECT_EQ(result.counted_terms, 0);
    EXPECT_EQ(result.skipped, "");
    EXPECT_EQ(run.trainer.state_digest(), before);
    EXPECT_EQ(run.trainer.evaluate(none, 2), 0.0);
    EXPECT_EQ(run.trainer.evaluated_terms(), 0);
  }
}

/// The factor does not depend on the loss scale, which is lowered until no gradient overflows.
TEST(Targets, ThatCountHaveTheirFactorWithAnyLossScale) {
  config::Settings settings = by_plain_descent(small());
  settings.precision.gather = DType::fp16;
  double norm = 0.0;
  for (const double scale : {1024.0, 65536.0 * 65536.0}) {
    settings.precision.loss_scale.initial = settings.precision.loss_scale.largest = scale;
    SmallRun run(settings);
    SomeTargets some(*run.training, counts_unequally);
    train::StepResult result;
    std::int64_t step = 0;
    do {
      OneOf same(some, 7);
      result = run.trainer.step(same, ++step);
    } while (result.overflowed && step < 40);
    EXPECT_EQ(step > 1, scale > 1e9);
    if (norm == 0.0) norm = result.grad_norm;
    EXPECT_NEAR(result.grad_norm, norm, 1e-2 * norm);
    EXPECT_GT(result.counted_terms, 0);
  }
}

TEST(Targets, HaveToCountWhereALossIsNoMeanOverThem) {
  config::Settings modules = small(), experts = small();
  modules.model.multi_token_depth = 1;
  experts.model.experts.count = 4;
  experts.model.experts.per_token = 2;
  experts.model.experts.width = 8;
  experts.model.experts.balance = model::RouterBalance::loss;
  for (const auto& [settings, why] : {std::pair{modules, "as model.multi_token_depth is 1"},
                                      std::pair{experts, "as model.router_balance is loss"}}) {
    SmallRun run(settings);
    const std::uint64_t before = run.trainer.state_digest();
    SomeTargets some(*run.training, [](auto, std::int64_t position) { return position != 5; });
    const std::string refusal = testing::error_of([&] { run.trainer.step(some, 1); });
    EXPECT_HAS(refusal, "on have 1 of 24 tokens that do not count in the loss");
    EXPECT_HAS(refusal, why);
    EXPECT_EQ(run.trainer.state_digest(), before);
    EXPECT_EQ(run.step(1).counted_terms, 12 * 24);
    // A module reads targets as tokens in a validation, too.
    const std::string of_validation =
        testing::error_of([&] { run.trainer.evaluate_samples(some, 12); });
    if (settings.model.multi_token_depth > 0)
      EXPECT_HAS(of_validation, why);
    else
      EXPECT_EQ(of_validation, "no error");
  }
  // A bias balances by the signs of counters.
  experts.model.experts.balance = model::RouterBalance::bias;
  SmallRun run(experts);
  SomeTargets some(*run.training, counts_unequally);
  EXPECT_NO_THROW(run.trainer.step(some, 1));
}

}  // namespace
}  // namespace ostrakon::tests
