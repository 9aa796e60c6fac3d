// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/memory_check.hpp>

#include "support/messages.hpp"
#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

/// Gives the same few samples of random tokens, over and over.
class FixedBatch : public data::Dataset {
 public:
  FixedBatch(std::int64_t length, std::int64_t vocabulary, std::uint64_t samples)
      : Dataset(length), vocabulary_(static_cast<std::uint32_t>(vocabulary)), samples_(samples) {}
  void read(std::uint64_t index, std::int32_t* tokens) override {
    for (std::int64_t i = 0; i < length(); ++i)
      tokens[i] = static_cast<std::int32_t>(
          math::philox(7, index % samples_, static_cast<std::uint64_t>(i)).word[0] % vocabulary_);
  }
  std::uint64_t samples() const override { return samples_; }

 private:
  std::uint32_t vocabulary_;
  std::uint64_t samples_;
};

TEST(Trainer, UsesWhatWasPlannedAndAllocatesNothingAfterwards) {
  runtime::start_counting_memory();
  std::vector<config::Settings> models = {small_gpt2(24), small_llama(24), small_llama(24),
                                          small_llama(24)};
  models[2].tensor_grain = 2;  // parameters in pieces, whose elements are digested run by run
  models[3].model.experts.count = 4;
  models[3].model.experts.per_token = 2;
  models[3].model.experts.width = 32;
  for (config::Settings settings : models)
    for (const auto sharding : all_shardings) {
      settings.parallel.sharding = sharding;
      if (sharding == plan::Sharding::optimizer) settings.precision.gather = DType::bf16;
      mesh::Mesh mesh(MPI_COMM_WORLD, 0);
      train::Trainer trainer = train::make_trainer(settings, mesh);
      FixedBatch dataset(settings.training.sequence_length + 1, settings.model.vocabulary, 48);
      const runtime::MemoryCount before = runtime::memory_count();
      trainer.allocate();
      const runtime::MemoryCount allocated = runtime::memory_count();
      EXPECT_EQ(allocated.bytes - before.bytes, trainer.planned_peak_bytes());
      EXPECT_EQ(allocated.allocations - before.allocations, 2);
      EXPECT_EQ(trainer.device_memory().kokkos, allocated.library_bytes);
      trainer.initialize();
      for (std::int64_t step = 1; step <= 3; ++step) trainer.step(dataset, step);
      trainer.evaluate(dataset, 1);
      trainer.state_digest();
      trainer.visit_parameters([](int, View<const float*>, View<const float*>) {});
      EXPECT_EQ(runtime::memory_count().all_allocations(), allocated.all_allocations());
      EXPECT_EQ(runtime::memory_count().bytes, allocated.bytes);
    }
}

TEST(Trainer, InitializeBeginsAgain) {
  config::Settings settings = small_llama(world_ranks());
  SmallRun run(settings);
  const auto digest_after_two_steps = [&] {
    run.trainer.initialize();
    for (std::int64_t step = 1; step <= 2; ++step) run.step(step);
    return run.trainer.state_digest();
  };
  const std::uint64_t first = digest_after_two_steps();
  EXPECT_EQ(digest_after_two_steps(), first);
}

TEST(Trainer, SendsWhatWasPlanned) {
  for (const auto sharding : all_shardings)
    for (int group : groups_of_world())
      for (const auto accumulation :
           {plan::Accumulation::reduce_each, plan::Accumulation::shard_each,
            plan::Accumulation::reduce_last}) {
        config::Settings settings = small_gpt2(24);
        settings.training.sequence_length = 4;
        settings.parallel.sharding = sharding;
        settings.parallel.accumulation = accumulation;
        // With every other accumulation, so that both are combined with every strategy.
        if (accumulation != plan::Accumulation::reduce_each)
          settings.parallel.shard_optimizer_over = plan::OptimizerGroup::world;
        mesh::Mesh mesh(MPI_COMM_WORLD, 0, group);
        train::Trainer trainer = train::make_trainer(settings, mesh);
        FixedBatch dataset(settings.training.sequence_length + 1, settings.model.vocabulary, 48);
        trainer.allocate();
        trainer.initialize();
        trainer.step(dataset, 1);
        const plan::StepPlan& plan = trainer.program(plan::Purpose::train).plan;
        for (plan::Axis axis : {plan::Axis::shard, plan::Axis::replicate})
          EXPECT_EQ(trainer.bytes_sent(plan.grid.span(axis)), bytes_sent(plan, axis));
      }
}

TEST(Trainer, RanksThatHaveMadeOtherPlansAreRefused) {
  int ranks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (ranks == 1) GTEST_SKIP() << "needs others";
  config::Settings settings = small_llama(24);
  // A prefetch deeper by one changes no buffer that stays, and no result.
  if (rank == ranks - 1) settings.parallel.backward_prefetch.depth = 2;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const std::string message =
      ostrakon::testing::error_of<CollectiveError>([&] { train::make_trainer(settings, mesh); });
  EXPECT_EQ(
      message.rfind("ranks have different settings: the policy.backward_prefetch.depth is 2", 0),
      0u)
      << message;
  EXPECT_HAS(message, "on rank " + std::to_string(ranks - 1) + " (host ");
}

TEST(Trainer, ReplicasThatDifferAreFound) {
  // One rank's copy is damaged: by a reader of the parameters that writes.
  int ranks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (ranks == 1) GTEST_SKIP() << "needs replicas";
  for (const auto sharding : {plan::Sharding::none, plan::Sharding::gradients}) {
    config::Settings settings = small_gpt2(24);
    settings.parallel.sharding = sharding;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    train::Trainer trainer = train::make_trainer(settings, mesh);
    trainer.allocate();
    trainer.initialize();
    EXPECT_NO_THROW(trainer.state_digest());
    trainer.visit_parameters([&](int unit, View<const float*> parameters, View<const float*>) {
      if (unit != 1 || rank < ranks - 1) return;
      const Exec exec;
      math::fill(exec, View<float*>(const_cast<float*>(parameters.data()) + 3, 1), 7.0f);
      exec.fence();
    });
    EXPECT_THROW(trainer.state_digest(), CollectiveError);
  }
}

/// Fails at its fifth read, on one rank alone.
class BrokenOnOneRank : public FixedBatch {
 public:
  BrokenOnOneRank(std::int64_t length, std::int64_t vocabulary, bool breaks)
      : FixedBatch(length, vocabulary, 48), breaks_(breaks) {}
  void read(std::uint64_t index, std::int32_t* tokens) override {
    if (breaks_ && ++reads_ == 5) throw Error("the disk is gone");
    FixedBatch::read(index, tokens);
  }

 private:
  bool breaks_;
  int reads_ = 0;
};

// Also where updates begin before ranks agree on the step, on whatever streams.
TEST(Trainer, DataThatOneRankCannotReadEndTheStepOnAll) {
  for (const bool early : {false, true})
    for (const auto streams : {config::StreamsChoice::in_plan_order, on_threads}) {
      config::Settings settings = small_gpt2(24);
      settings.runtime.streams = streams;
      if (early) {
        settings.parallel.offload = plan::Offload::all;
        settings.optimizer.clip_norm = 0.0;
      }
      mesh::Mesh mesh(MPI_COMM_WORLD, 0);
      train::Trainer trainer = train::make_trainer(settings, mesh);
      BrokenOnOneRank dataset(settings.training.sequence_length + 1, settings.model.vocabulary,
                              mesh.world().rank() == mesh.world().size() - 1);
      trainer.allocate();
      trainer.initialize();
      const std::uint64_t digest = trainer.state_digest();
      const std::string message =
          ostrakon::testing::error_of<CollectiveError>([&] { trainer.step(dataset, 1); });
      EXPECT_EQ(message, "the disk is gone");
      EXPECT_EQ(trainer.state_digest(), digest);
      EXPECT_TRUE(trainer.is_intact());
    }
}

TEST(Trainer, WhereUpdatesBeginEarlyAFailureSaysThatParametersHaveChanged) {
  config::Settings settings = small_gpt2(24);
  settings.parallel.offload = plan::Offload::all;
  settings.optimizer.clip_norm = 0.0;
  settings.optimizer.learning_rate = 1e30;
  settings.schedule.warmup_steps = 0;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  train::Trainer trainer = train::make_trainer(settings, mesh);
  FixedBatch dataset(settings.training.sequence_length + 1, settings.model.vocabulary, 48);
  trainer.allocate();
  trainer.initialize();
  const std::string message = ostrakon::testing::error_of<CollectiveError>([&] {
    for (std::int64_t step = 1; step <= 20; ++step) trainer.step(dataset, step);
  });
  EXPECT_HAS(message, "not finite");
  EXPECT_HAS(message,
             "; parameters have changed, as updates on the host are overlapped with backward "
             "where optimizer.clip_norm = 0: weights are not written")
      << message;
  EXPECT_FALSE(trainer.is_intact());
}

TEST(Trainer, RefusesAModelThatDoesNotFit) {
  config::Settings settings = small_llama(24);
  settings.model.width = 16384;
  settings.model.heads = settings.model.kv_heads = 128;
  settings.model.ffn_width = 53248;
  settings.model.layers = 126;
  settings.model.vocabulary = 128256;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  train::Trainer trainer = train::make_trainer(settings, mesh);
  const std::string message =
      ostrakon::testing::error_of<CollectiveError>([&] { trainer.require_memory(); });
  EXPECT_HAS(message, "does not fit");
  EXPECT_HAS(message, "GiB");
  EXPECT_HAS(message, "ostrakon-plan --choose");
  EXPECT_LACKS(message, "offloading");
  settings.parallel.offload = plan::Offload::all;
  train::Trainer offloading = train::make_trainer(settings, mesh);
  const std::string instead =
      ostrakon::testing::error_of<CollectiveError>([&] { offloading.require_memory(); });
  EXPECT_EQ(ostrakon::testing::contains(instead, "offloading gains nothing"), !has_device)
      << instead;
}

TEST(MemoryCheck, NamesTheMemoryThatIsTooSmall) {
  constexpr std::int64_t mib = 1 << 20;
  const auto check = [](std::int64_t device, std::int64_t host, int ranks) {
    return train::what_does_not_fit({{" in device memory", 100 * mib, 0, device},
                                     {" in host memory", 50 * mib, 10 * mib, host}},
                                    ranks);
  };
  EXPECT_EQ(check(100 * mib, 60 * mib, 1), "");
  EXPECT_EQ(check(200 * mib, 120 * mib, 2), "");
  EXPECT_EQ(check(200 * mib - 1, 120 * mib, 2),
            "2 ranks on this host x 100.00 MiB planned in device memory = 200.00 MiB, but 200.00 "
            "MiB are available");
  EXPECT_EQ(check(100 * mib, 59 * mib, 1),
            "1 rank on this host x (50.00 MiB planned in host memory + 10.00 MiB for the process) "
            "= 60.00 MiB, but 59.00 MiB are available");
  // Ranks of a host need not share a device.
  const auto on_devices = [&](int of_device) {
    train::MemoryNeed need = {" in device memory", 100 * mib, 0, 150 * mib};
    need.of_device = of_device;
    return train::what_does_not_fit({need}, 8);
  };
  EXPECT_EQ(on_devices(1), "");
  EXPECT_EQ(on_devices(2),
            "2 ranks on this device x 100.00 MiB planned in device memory = 200.00 MiB, but 150.00 "
            "MiB are available");
}

TEST(Trainer, ModelFlopsAreThoseThatItsGradientsNeed) {
  const auto flops = [](const char* rules, const model::Recompute& recompute) {
    config::Settings settings = small_llama(24);
    settings.optimizer.parameters = config::read_parameter_rules(rules);
    settings.recompute = recompute;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    const train::Trainer trainer = train::make_trainer(settings, mesh);
    return trainer.model_flops() /
           static_cast<double>(trainer.program(plan::Purpose::train).plan.grid.micro_batches());
  };
  // By hand: 2 sequences of 24 tokens, width 40, 4 heads of 10, 2 of keys, MLP 100, vocabulary 61.
  const double rows = 48.0, qkv = 40.0 * 80.0, out = 40.0 * 40.0, up = 40.0 * 200.0,
               down = 100.0 * 40.0, scores = 24.0 * 40.0, head = 40.0 * 61.0;
  const double block = 2.0 * rows * (qkv + out + up + down + scores), last = 2.0 * rows * head;
  const double all = 3.0 * (2.0 * block + last);
  for (const model::Recompute& recompute :
       {model::Recompute{}, model::Recompute{true, true, true}}) {
    EXPECT_EQ(flops("", recompute), all);
    EXPECT_EQ(flops("embedding.*: frozen", recompute), all);
    EXPECT_EQ(flops("*gate_up*: frozen", recompute), all - 4.0 * rows * up);
    EXPECT_EQ(flops("embedding.*: frozen; block.0.*: frozen", recompute), all - 2.0 * block);
    EXPECT_EQ(flops("*: frozen; head.norm.*: trained", recompute), 2.0 * block + 2.0 * last);
  }
}

TEST(Trainer, StopsAtALossThatIsNotFiniteBeforeItDamagesParameters) {
  config::Settings settings = small_llama(24);
  settings.optimizer.learning_rate = 1e30;
  settings.schedule.warmup_steps = 0;
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  train::Trainer trainer = train::make_trainer(settings, mesh);
  FixedBatch dataset(settings.training.sequence_length + 1, settings.model.vocabulary, 48);
  trainer.allocate();
  trainer.initialize();
  std::int64_t step = 1;
  std::uint64_t digest = 0;
  const std::string message = ostrakon::testing::error_of<CollectiveError>([&] {
    for (; step <= 20; ++step) {
      digest = trainer.state_digest();
      trainer.step(dataset, step);
    }
  });
  EXPECT_HAS(message, "not finite");
  EXPECT_EQ(trainer.state_digest(), digest);
}

TEST(Trainer, InitialWeightsAreThoseOfTheirNames) {
  // Every rank sees the same whole parameters, however they are stored.
  config::Settings settings = small_gpt2(24);
  std::vector<double> sums;
  for (const auto sharding : all_shardings) {
    settings.parallel.sharding = sharding;
    mesh::Mesh mesh(MPI_COMM_WORLD, 0);
    train::Trainer trainer = train::make_trainer(settings, mesh);
    trainer.allocate();
    trainer.initialize();
    double sum = 0.0;
    std::int64_t count = 0, ones = 0;
    trainer.visit_parameters([&](int unit, View<const float*> parameters, View<const float*>) {
      std::vector<float> values(static_cast<std::size_t>(parameters.size()));
      math::copy_to_host(Exec(), parameters, host_view(values));
      for (const model::Parameter& parameter : trainer.model().parameters(unit))
        for (std::int64_t i = 0; i < parameter.elements(); ++i, ++count) {
          const double value =
              static_cast<double>(values[static_cast<std::size_t>(parameter.offset + i)]);
          sum += value * static_cast<double>(i % 17 + 1);
          ones += value == 1.0;
        }
    });
    EXPECT_EQ(count, trainer.model().parameter_count());
    EXPECT_EQ(ones, 5 * settings.model.width);  // the weights of five norms
    sums.push_back(sum);
  }
  for (double sum : sums) EXPECT_EQ(sum, sums[0]);
}

}  // namespace
