// SPDX-License-Identifier: Apache-2.0
// A chain of units of one's own, trained with plain settings, without a deck.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/training.hpp>
#include <utility>
#include <vector>

#include "model/small_chain.hpp"
#include "support/scratch_folder.hpp"
#include "support/shared_folder.hpp"
#include "train/own_model_runs.hpp"
#include "train/small_runs.hpp"

namespace ostrakon::tests {
namespace {

BendKind with_phases(bool has_exchanges, bool has_phases = true) {
  BendKind kind;
  kind.has_phases = has_phases;
  kind.has_exchanges = has_exchanges;
  return kind;
}

TEST(OwnModel, LearnsWithPlainSettings) {
  EXPECT_LT(reference().losses.back(), 0.9 * reference().losses.front());
}

// The loss is a mean over rows: computed by hand before the first update.
TEST(OwnModel, LossIsTheMeanOfItsTerms) {
  TrainerSettings settings = plain_settings();
  settings.optimizer.learning_rate = 0.0;
  Mesh mesh(MPI_COMM_SELF);
  Trainer trainer(make_model(small_chain<float>()), settings, mesh);
  trainer.allocate();
  trainer.initialize();
  std::vector<std::vector<float>> values(5);
  trainer.visit_parameters([&](int unit, View<const float*> trained, View<const float*>) {
    if (unit == 1 || unit == 2)
      values[unit].assign(trained.data(), trained.range(0, small_width).data() + small_width);
  });
  SmallSamples samples;
  std::vector<float> batch(static_cast<std::size_t>(8 * small_all));
  samples.fill(0, 8 * small_rows, batch.data());
  double sum = 0.0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto j = i % static_cast<std::size_t>(small_width);
    const double first = std::tanh(values[1][j] * batch[i]);
    const double y = values[1][j] * std::tanh(values[2][j] * first) - 0.3;
    sum += y * y;
  }
  EXPECT_NEAR(trainer.step(samples, 1).loss, sum / (8 * small_rows), 1e-5);
}

TEST(OwnModel, HasTheBitsOfOneRankWithAnyStrategy) {
  for (const auto sharding : all_shardings)
    for (const int every : {0, 1})
      for (const auto offload : {plan::Offload::none, plan::Offload::all}) {
        TrainerSettings settings = plain_settings();
        settings.policy.sharding = sharding;
        settings.policy.activation_checkpointing.every = every;
        settings.policy.offload = offload;
        settings.policy.offload_activations = offload == plan::Offload::all;
        const Trained trained = train_chain(settings, small_chain<float>(), MPI_COMM_WORLD);
        EXPECT_EQ(trained.losses, reference().losses);
        EXPECT_EQ(trained.digest, reference().digest);
      }
}

TEST(OwnModel, RunsInPhases) {
  for (const bool has_exchanges : {false, true})
    for (const int every : {0, 1}) {
      TrainerSettings settings = plain_settings();
      settings.policy.activation_checkpointing.every = every;
      const BendKind kind = with_phases(has_exchanges);
      const Trained trained = train_chain(settings, small_chain<float>(kind, kind), MPI_COMM_WORLD);
      EXPECT_EQ(trained.digest, reference().digest);
    }
}

TEST(OwnModel, RefusesExchangesOverRanks) {
  BendKind kind = with_phases(true);
  Mesh mesh(MPI_COMM_WORLD);
  kind.exchange_ranks = mesh.world().size();
  const auto make = [&] {
    return Trainer(make_model(small_chain<float>({}, kind)), plain_settings(), mesh);
  };
  if (mesh.world().size() == 1) {
    EXPECT_NO_THROW(make());
    return;
  }
  EXPECT_EQ(testing::error_of(make),
            text("unit bend.1 exchanges activations over ", mesh.world().size(),
                 " ranks; expected the 1 rank that the model's samples are divided over "
                 "(Model::parts)"));
}

#if defined(OSTRAKON_CHECK_VIEWS)
/// Writes one element after its workspace, of which it has none unless it `declares` it.
class Overrun final : public Unit<float> {
 public:
  explicit Overrun(bool declares) : declared_(declares ? small_all : 0) {}

  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "overrun";
    unit.input = unit.output = small_all;
    unit.forward[0].workspace_bytes = declared_ * static_cast<std::int64_t>(sizeof(float));
    return unit;
  }
  void forward(const ForwardCall<float>& call) const override {
    const auto workspace = call.workspace.array<float>(0, declared_);
    const std::int64_t after = declared_;
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) { workspace(after) = 1.0f; });
  }
  void backward(const BackwardCall<float>&) const override {}

 private:
  std::int64_t declared_;
};

TEST(OwnModelDeathTest, AnIndexOutsideOfAWorkspaceNamesItAndTheAction) {
  if (has_device) GTEST_SKIP() << "a device gives no names";
  Mesh mesh(MPI_COMM_SELF);
  for (const bool declares : {true, false}) {
    Units<float> units;
    units.push_back(std::make_unique<Source<float>>());
    units.push_back(std::make_unique<Overrun>(declares));
    units.push_back(std::make_unique<Squares<float>>(Fault::none));
    Chain<float> chain(std::move(units), {small_rows, SmallSamples().sample_bytes()});
    Trainer trainer(make_model(std::move(chain)), plain_settings(), mesh);
    trainer.allocate();
    trainer.initialize();
    EXPECT_DEATH(
        train_steps(trainer, 1, 1),
        declares ? "index 10 is outside of a view of buffer '.*workspace.*' with extents "
                   "\\(10\\), made for forward\\(overrun, micro-batch 0\\)"
                 : "index 0 is outside of a view of no array in buffer 'workspace' with extents "
                   "\\(0\\), made for forward\\(overrun, micro-batch 0\\)");
  }
}
#endif

TEST(OwnModel, TrainsInSixteenBits) {
  TrainerSettings settings = plain_settings();
  Mesh mesh(MPI_COMM_WORLD);
  Trainer trainer(make_model(small_chain<bf16>()), settings, mesh);
  trainer.allocate();
  trainer.initialize();
  const Trained trained = train_steps(trainer, 1, settings.steps);
  for (std::size_t i = 0; i < trained.losses.size(); ++i)
    EXPECT_NEAR(trained.losses[i], reference().losses[i], 0.02 * reference().losses[i]);
}

TEST(OwnModel, SettingsThatFollowFromOthersAreSetByTheTrainer) {
  Mesh mesh(MPI_COMM_WORLD);
  const auto made = [&](const TrainerSettings& settings) {
    return Trainer(make_model(small_chain<float>()), settings, mesh).settings().policy;
  };
  TrainerSettings settings = plain_settings();
  EXPECT_EQ(made(settings).leaves, 8);
  EXPECT_EQ(made(settings).moments.count, 2);
  EXPECT_FALSE(made(settings).early_updates);
  settings.optimizer.kind = OptimizerKind::sgd;
  EXPECT_EQ(made(settings).moments.count, 1);
  settings.optimizer.momentum = 0.0;
  EXPECT_EQ(made(settings).moments.count, 0);
  // On the host, without clipping and skipped steps.
  settings.policy.offload = plan::Offload::all;
  EXPECT_FALSE(made(settings).early_updates);
  settings.optimizer.clip_norm = 0.0;
  EXPECT_TRUE(made(settings).early_updates);
  settings.stability.skip_non_finite = true;
  EXPECT_FALSE(made(settings).early_updates);
  settings.stability.skip_non_finite = false;
  settings.policy.reduce = DType::fp16;
  EXPECT_FALSE(made(settings).early_updates);
  settings.policy.reduce = DType::fp32;
  settings.early_updates = false;
  EXPECT_FALSE(made(settings).early_updates);
}

TEST(OwnModel, WhatRanksHaveDifferentlyIsRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  const int ranks = mesh.world().size();
  if (ranks == 1) GTEST_SKIP() << "needs others";
  const bool is_other = mesh.world().rank() == ranks - 1;
  TrainerSettings settings = plain_settings();
  const auto refusal = [&](Chain<float> chain) {
    try {
      Trainer(make_model(std::move(chain)), settings, mesh);
    } catch (const AgreedError& error) {
      const std::string message = error.what();
      return message.substr(0, message.find(" on rank "));
    }
    return std::string("no error");
  };
  if (is_other) settings.optimizer.learning_rate = 0.5;
  EXPECT_EQ(refusal(small_chain<float>()),
            "ranks have different settings: the optimizer.learning_rate is 0.5");
  settings = plain_settings();
  BendKind frozen;
  frozen.is_frozen = is_other;
  EXPECT_EQ(refusal(small_chain<float>({}, frozen)),
            "ranks have different models: the parameter bend.1.shift is 5, zeros, frozen");
  const std::string of_plans = refusal(small_chain<float>({}, with_phases(false, is_other)));
  EXPECT_EQ(of_plans.rfind("ranks have made different plans: the plan of ", 0), 0u) << of_plans;
}

/// Samples of another size than the model reads.
class Larger : public SmallSamples {
 public:
  std::int64_t sample_bytes() const override { return 24; }
};

TEST(OwnModel, SamplesOfAnotherSizeAreRefused) {
  Mesh mesh(MPI_COMM_WORLD);
  Trainer trainer(make_model(small_chain<float>()), plain_settings(), mesh);
  trainer.allocate();
  trainer.initialize();
  Larger samples;
  EXPECT_EQ(testing::error_of([&] { trainer.step(samples, 1); }),
            "a leaf of 2 samples of 24 bytes has 48 bytes; the model reads leaves of 40");
  // So that one message is shown, not one of each rank.
  EXPECT_THROW(trainer.evaluate(samples, 1), AgreedError);
}

/// One loss of the two samples of a leaf: the square of the sum of their differences.
class Contrast final : public Unit<float> {
 public:
  UnitDescription describe() const override {
    UnitDescription unit;
    unit.name = "contrast";
    unit.input = small_all;
    unit.output = 1;
    unit.is_loss = true;
    return unit;
  }
  void forward(const ForwardCall<float>& call) const override {
    const auto x = call.input;
    const auto losses = call.losses;
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          const float difference = difference_of(x);
          losses(0) = difference * difference;
        });
  }
  void backward(const BackwardCall<float>& call) const override {
    const auto x = call.input;
    const auto g = call.gradient;
    const float scale = call.loss_scale;
    for_each(
        call.exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          const float slope = 2 * scale * difference_of(x);
          for (std::int64_t i = 0; i < small_all; ++i) g(i) = i < small_width ? slope : -slope;
        });
  }

 private:
  KOKKOS_FUNCTION static float difference_of(const Array<const float>& x) {
    float sum = 0;
    for (std::int64_t i = 0; i < small_all; ++i) sum += i < small_width ? x(i) : -x(i);
    return sum;
  }
};

/// The same leaf again and again.
class OneLeaf : public SmallSamples {
 public:
  explicit OneLeaf(std::uint64_t leaf) : leaf_(leaf) {}
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    auto* const values = static_cast<char*>(batch);
    for (std::int64_t i = 0; i < count; ++i)
      SmallSamples::fill(leaf_ * small_rows + (first + static_cast<std::uint64_t>(i)) % small_rows,
                         1, values + i * sample_bytes());
  }

 private:
  std::uint64_t leaf_;
};

TEST(OwnModel, FewSamplesCountOnceWhereTheyAreWholeLeaves) {
  Mesh mesh(MPI_COMM_WORLD);
  Units<float> units;
  units.push_back(std::make_unique<Source<float>>());
  units.push_back(std::make_unique<Bend<float>>("bend", BendKind()));
  units.push_back(std::make_unique<Contrast>());
  Chain<float> chain(std::move(units), {small_rows, SmallSamples().sample_bytes()});
  Trainer trainer(make_model(std::move(chain)), plain_settings(), mesh);
  trainer.allocate();
  trainer.initialize();
  SmallSamples samples;
  double sum = 0.0;
  for (std::int64_t leaves = 1; leaves <= 8; ++leaves) {
    OneLeaf one(static_cast<std::uint64_t>(leaves - 1));
    sum += trainer.evaluate(one, 1);
    const double mean = sum / static_cast<double>(leaves);
    EXPECT_NEAR(trainer.evaluate_samples(samples, leaves * small_rows), mean, 1e-6 * mean);
  }
  try {
    trainer.evaluate_samples(samples, 3);
    ADD_FAILURE() << "accepted";
  } catch (const AgreedError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("the mean loss of 3 samples, fewer than a ", 0), 0u);
  }
}

/// Samples that make one loss of the first step infinite.
class Infinite : public SmallSamples {
 public:
  void fill(std::uint64_t first, std::int64_t count, void* batch) override {
    SmallSamples::fill(first, count, batch);
    if (first == 0) *static_cast<float*>(batch) = std::nanf("");
  }
};

TEST(OwnModel, LossesThatAreNotFiniteAreCounted) {
  Mesh mesh(MPI_COMM_WORLD);
  Trainer trainer(make_model(small_chain<float>()), plain_settings(), mesh);
  trainer.allocate();
  trainer.initialize();
  Infinite samples;
  const std::string message = testing::error_of([&] { trainer.step(samples, 1); });
  EXPECT_NE(message.find("the loss is not finite (1 of 16 losses)"), std::string::npos) << message;
}

TEST(OwnModel, GradientsThatAreNotFiniteAreFoundWhereTheyAre) {
  for (const bool has_phases : {false, true}) {
    Mesh mesh(MPI_COMM_WORLD);
    const BendKind kind = has_phases ? with_phases(false) : BendKind();
    Trainer trainer(make_model(small_chain<float>(kind, kind)), plain_settings(), mesh);
    trainer.allocate();
    trainer.initialize();
    SmallSamples samples;
    trainer.inject_nonfinite(2, mesh.world().size() - 1);
    const std::string message = testing::error_of([&] { trainer.step(samples, 1); });
    EXPECT_NE(message.find("the gradient of bend.1 is not finite"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace ostrakon::tests
