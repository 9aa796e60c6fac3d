// SPDX-License-Identifier: Apache-2.0
// Channels, diagnosis and handlers, each by itself: programs run with handlers of one kind alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/trainer/channels.hpp>
#include <ostrakon/trainer/diagnosis.hpp>
#include <ostrakon/trainer/dispatch_dtype.hpp>
#include <ostrakon/trainer/handlers/compute_handlers.hpp>
#include <ostrakon/trainer/handlers/empty_exchanges.hpp>
#include <ostrakon/trainer/handlers/load_handler.hpp>
#include <ostrakon/trainer/handlers/move_handlers.hpp>
#include <ostrakon/trainer/handlers/sum_handlers.hpp>
#include <ostrakon/trainer/handlers/update_handlers.hpp>
#include <ostrakon/trainer/state/model_state.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/device_array.hpp"
#include "trainer/planned_parts.hpp"
#include "trainer/small_runs.hpp"

namespace ostrakon::tests {
namespace {

using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

/// A deck's state with its first weights, and an executor whose handlers do nothing.
struct Bench {
  explicit Bench(const config::Settings& deck)
      : mesh(MPI_COMM_WORLD, 0, deck.shard_group),
        parts(deck, mesh),
        state(parts.programs, parts.layout,
              {parts.settings.policy.moments.dtype, parts.settings.seed, true}, mesh),
        executor(state.memory().arenas()) {
    state.initialize(nullptr);
    for (int kind = 0; kind < plan::kinds; ++kind)
      executor.on(static_cast<Kind>(kind), [](const ActionBuffers&) {});
    context.rank = parts.layout.rank();
    context.program = &parts.programs.train;
    context.step = 1;
    context.result.learning_rate = 1.0;
  }
  const plan::StepPlan& plan() const { return parts.programs.train.plan; }
  void run() { executor.run(parts.programs.train); }
  /// Copies what belongs to no unit: batches and sums.
  void copy_as_planned() {
    for (const Kind kind : {Kind::copy_to_device, Kind::copy_to_host})
      executor.on(kind, [](const ActionBuffers& buffers) {
        if (buffers.action.unit >= 0) return;
        const auto source = buffers.host_view<char>(Role::source);
        std::copy_n(source.data(), source.size(), buffers.host_view<char>(Role::target).data());
      });
  }

  mesh::Mesh mesh;
  PlannedParts parts;
  train::ModelState state;
  train::StepContext context;
  runtime::Executor executor;
};

TEST(Channels, AreOfEachStreamAndSpan) {
  config::Settings deck = small_llama(24);
  deck.shard_group = 1;  // all ranks are replicas
  mesh::Mesh mesh(MPI_COMM_WORLD, 0, deck.shard_group);
  const PlannedParts parts(deck, mesh);
  train::Channels channels(parts.programs, parts.layout.rank(), mesh);
  const int ranks = mesh.world().size();
  if (ranks == 1) GTEST_SKIP() << "nobody to talk to";
  const plan::Span all = parts.programs.train.plan.grid.span(plan::Axis::replicate);
  comm::Communicator& gather = channels.of(plan::Stream::gather, all);
  EXPECT_EQ(gather.size(), ranks);
  EXPECT_NE(&gather, &channels.of(plan::Stream::reduce, all));
  EXPECT_THROW(channels.of(plan::Stream::gather, {plan::Axis::shard, 7}), std::logic_error);
  const auto mine = static_cast<float>(gather.rank());
  std::vector<float> whole(static_cast<std::size_t>(64 * ranks)), part(64, mine);
  gather.all_gather<float, OnHost>(Exec(), host_view(part), host_view(whole));
  for (int r = 0; r < ranks; ++r)
    EXPECT_EQ(whole[static_cast<std::size_t>(64 * r)], static_cast<float>(r));
  EXPECT_EQ(channels.bytes_sent(all), 64 * 4 * (ranks - 1));
}

TEST(Diagnosis, NamesTheUnitNearestToTheLoss) {
  Bench bench(small_llama(24));
  comm::Communicator& world = bench.mesh.world();
  train::Diagnosis diagnosis(bench.plan(), bench.parts.description, bench.context.rank, world);
  const int last = world.size() - 1;
  const runtime::Arenas arenas = bench.state.memory().arenas();
  const plan::Action none;
  const Exec exec;
  const ActionBuffers buffers(bench.parts.programs.train, none, arenas, exec);
  const auto inspect = [&](int unit, int micro_batch, bool is_bad) {
    std::vector<float> values(
        static_cast<std::size_t>(bench.plan().padded(bench.plan().trained(unit))));
    if (is_bad) values.back() = std::numeric_limits<float>::quiet_NaN();
    const test::DeviceArray<float> gradients(values);
    plan::Action action;
    action.unit = unit;
    action.micro_batch = micro_batch;
    diagnosis.inspect(ActionBuffers(bench.parts.programs.train, action, arenas, exec), gradients,
                      {});
  };
  // Backward comes from the loss: what the first ranks find in a unit before is no news.
  inspect(2, 0, false);
  inspect(2, 1, world.rank() == last);
  inspect(1, 1, true);
  EXPECT_EQ(diagnosis.name_origin(buffers), "the gradient of block.1 is not finite on rank " +
                                                std::to_string(last) + " (micro-batch 1)");
  diagnosis.restart();
  inspect(1, 0, world.rank() == 0);
  EXPECT_EQ(diagnosis.name_origin(buffers),
            "the gradient of block.0 is not finite on rank 0 (micro-batch 0)");
}

/// The head's own gradient is nearer to the loss than what it writes of the embedding's.
TEST(Diagnosis, NamesAUnitThatIsTied) {
  Bench bench(small_gpt2(24));
  train::Diagnosis diagnosis(bench.plan(), bench.parts.description, bench.context.rank,
                             bench.mesh.world());
  const runtime::Arenas arenas = bench.state.memory().arenas();
  plan::Action head;
  head.unit = bench.parts.model->units() - 1;
  head.micro_batch = 0;
  const Exec exec;
  const ActionBuffers buffers(bench.parts.programs.train, head, arenas, exec);
  const auto gradients_of = [&](int unit) {
    return std::vector<float>(
        static_cast<std::size_t>(bench.plan().padded(bench.plan().trained(unit))));
  };
  std::vector<float> own = gradients_of(head.unit), tied = gradients_of(0);
  tied.front() = std::numeric_limits<float>::infinity();
  diagnosis.inspect(buffers, test::DeviceArray<float>(own), test::DeviceArray<float>(tied));
  EXPECT_EQ(diagnosis.name_origin(buffers).rfind("the gradient of embedding is not finite", 0), 0u);
  diagnosis.restart();
  own.back() = std::numeric_limits<float>::infinity();
  diagnosis.inspect(buffers, test::DeviceArray<float>(own), test::DeviceArray<float>(tied));
  EXPECT_EQ(diagnosis.name_origin(buffers).rfind("the gradient of head is not finite", 0), 0u);
}

TEST(Diagnosis, NamesSumsThatWereNoted) {
  Bench bench(small_llama(24));
  comm::Communicator& world = bench.mesh.world();
  train::Diagnosis diagnosis(bench.plan(), bench.parts.description, bench.context.rank, world);
  EXPECT_EQ(diagnosis.name_noted(), "a gradient is not finite");
  diagnosis.note_sum(2, 3);
  diagnosis.note_sum(1, 5);
  std::string expected =
      "the gradient of block.1 is not finite when summed over micro-batches and ranks (3 elements "
      "in the shard of rank 0";
  if (world.size() > 1)
    expected += ", more in " + std::to_string(world.size() - 1) +
                (world.size() == 2 ? " other" : " others");
  EXPECT_EQ(diagnosis.name_noted(), expected + ")");
  diagnosis.restart_notes();
  EXPECT_EQ(diagnosis.name_noted(), "a gradient is not finite");
}

/// Token t of sample s is 100 s + t.
class CountingSamples : public data::Dataset {
 public:
  CountingSamples(std::int64_t length, std::uint64_t broken) : Dataset(length), broken_(broken) {}
  void read(std::uint64_t index, std::int32_t* tokens) override {
    if (index == broken_) throw Error("the disk is gone");
    for (std::int64_t t = 0; t < length(); ++t)
      tokens[t] = static_cast<std::int32_t>(100 * static_cast<std::int64_t>(index) + t);
  }
  std::uint64_t samples() const override { return 1000; }

 private:
  std::uint64_t broken_;
};

constexpr std::uint64_t none_broken = 999;

TEST(LoadHandler, ReadsTheLeavesOfThisRank) {
  const config::Settings deck = small_llama(24);
  Bench bench(deck);
  train::LoadHandler load(bench.context, bench.parts.programs, bench.parts.settings,
                          bench.mesh.world());
  load.install(bench.executor);
  bench.copy_as_planned();
  CountingSamples samples(deck.training.sequence_length + 1, none_broken);
  bench.context.samples = &samples;
  bench.context.first_sample = 7;
  std::int64_t seen = 0;
  const std::int64_t tokens = deck.training.sequence_length, rows = 2 * tokens;
  bench.executor.on(Kind::forward, [&](const ActionBuffers& buffers) {
    if (buffers.action.unit != 0) return;
    ++seen;
    const auto batch = buffers.host_view<std::int32_t>(Role::batch);
    const std::int64_t leaf = bench.plan().leaf(bench.context.rank, buffers.action.micro_batch);
    for (std::int64_t s = 0; s < 2; ++s)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t expected = 100 * (7 + 2 * leaf + s) + t;
        ASSERT_EQ(batch[s * tokens + t], expected);
        ASSERT_EQ(batch[rows + s * tokens + t], expected + 1);
      }
  });
  bench.run();
  EXPECT_EQ(seen, 24 / bench.mesh.world().size());
  EXPECT_EQ(bench.context.load_error, "");
  EXPECT_TRUE(bench.context.is_intact);
}

TEST(LoadHandler, NotesAnErrorAndContinues) {
  const config::Settings deck = small_llama(24);
  Bench bench(deck);
  train::LoadHandler load(bench.context, bench.parts.programs, bench.parts.settings,
                          bench.mesh.world());
  load.install(bench.executor);
  const std::int64_t leaf = bench.plan().leaf(bench.context.rank, 0);
  CountingSamples samples(deck.training.sequence_length + 1,
                          static_cast<std::uint64_t>(2 * leaf + 1));
  bench.context.samples = &samples;
  EXPECT_NO_THROW(bench.run());
  EXPECT_EQ(bench.context.load_error, "the disk is gone");
}

TEST(LoadHandler, WithEarlyUpdatesRanksAgreeBeforeThem) {
  config::Settings deck = small_llama(24);
  deck.parallel.offload = plan::Offload::all;
  deck.optimizer.clip_norm = 0.0;
  Bench bench(deck);
  train::LoadHandler load(bench.context, bench.parts.programs, bench.parts.settings,
                          bench.mesh.world());
  load.install(bench.executor);
  CountingSamples broken(deck.training.sequence_length + 1, 0);  // on one rank
  bench.context.samples = &broken;
  EXPECT_THROW(bench.run(), CollectiveError);
  EXPECT_TRUE(bench.context.is_intact);
  CountingSamples samples(deck.training.sequence_length + 1, none_broken);
  bench.context.samples = &samples;
  bench.context.load_error.clear();
  bench.run();
  EXPECT_FALSE(bench.context.is_intact);
}

TEST(MoveHandlers, GatherTheParametersOfAllRanks) {
  for (const DType compute : {DType::fp32, DType::bf16}) {
    config::Settings deck = small_llama(24);
    deck.precision.gather = compute;
    Bench bench(deck);
    train::Channels channels(bench.parts.programs, bench.context.rank, bench.mesh);
    const train::EmptyExchanges empty_exchanges(bench.parts.programs);
    train::MoveHandlers move(bench.context, channels, empty_exchanges, compute, DType::fp32);
    move.install(bench.executor);
    std::int64_t seen = 0;
    bench.executor.on(Kind::forward, [&](const ActionBuffers& buffers) {
      const int flat = bench.plan().trained(buffers.action.unit).first;
      const test::DeviceArray<float> initial(bench.plan().flats[flat].padded);
      train::make_initial_values(Exec(), bench.parts.layout.slices_of_part(flat, {}), 0,
                                 bench.parts.settings.seed, initial);
      const std::vector<float> expected = initial.host();
      const auto in_fp32 = buffers.host_view<float>(Role::parameters);
      const auto in_bf16 = buffers.host_view<bf16>(Role::parameters);
      for (std::size_t i = 0; i < expected.size(); ++i, ++seen) {
        const auto element = static_cast<std::int64_t>(i);
        if (compute == DType::fp32)
          ASSERT_EQ(in_fp32[element], expected[i]);
        else
          ASSERT_EQ(static_cast<float>(in_bf16[element]), static_cast<float>(bf16(expected[i])));
      }
    });
    bench.run();
    EXPECT_GT(seen, 0);
  }
}

/// A model whose gradients are all ones, but for the gaps, which it leaves as they are.
class OnesModel : public model::Model {
 public:
  explicit OnesModel(const model::Model& like) : like_(like) {}
  DType dtype() const override { return like_.dtype(); }
  int units() const override { return like_.units(); }
  const std::vector<model::Parameter>& parameters(int unit) const override {
    return like_.parameters(unit);
  }
  plan::ModelDescription description() const override { return like_.description(); }
  model::LossTerms loss_terms() const override { return like_.loss_terms(); }
  void forward(int, const Exec&, const model::UnitBuffers<void>&) const override {}
  void backward(int unit, const Exec&, const model::UnitBuffers<void>& buffers, float,
                bool adds_gradients) const override {
    const View<float*> gradients = buffers.parameter_gradients;
    for (const model::Parameter& parameter : parameters(unit))
      for (std::int64_t i = 0; i < parameter.elements(); ++i)
        gradients[parameter.offset + i] =
            (adds_gradients ? gradients[parameter.offset + i] : 0) + 1.0f;
  }

 private:
  const model::Model& like_;
};

/// All of it but loads and updates, with a model of made-up gradients: the norm of a sum over 24
/// leaves is known.
TEST(SumHandlers, FindTheNormOfSummedGradients) {
  for (const auto offload : {plan::Offload::none, plan::Offload::all})
    for (const bool overflows : {false, true}) {
      config::Settings deck = small_llama(24);
      deck.parallel.offload = offload;
      Bench bench(deck);
      const OnesModel ones(*bench.parts.model);
      const train::ShardLayout layout(bench.parts.programs.stages, ones,
                                      bench.parts.settings.optimizer, bench.context.rank);
      train::Channels channels(bench.parts.programs, bench.context.rank, bench.mesh);
      comm::Communicator& world = bench.mesh.world();
      train::StepGuard guard(bench.parts.settings, DType::fp32, false);
      train::Diagnosis diagnosis(bench.plan(), bench.parts.description, bench.context.rank, world);
      const train::EmptyExchanges empty_exchanges(bench.parts.programs);
      train::MoveHandlers move(bench.context, channels, empty_exchanges, DType::fp32, DType::fp32);
      train::ComputeHandlers compute(bench.context, layout, bench.parts.settings, empty_exchanges,
                                     &diagnosis);
      train::SumHandlers sum(bench.context, layout, guard, diagnosis, world,
                             bench.parts.settings.step_terms());
      move.install(bench.executor);
      compute.install(bench.executor);
      bench.executor.on(Kind::loss, [](const ActionBuffers&) {});
      sum.install(bench.executor);
      if (overflows && world.rank() == 0) bench.context.inject_nonfinite = 1;
      bench.run();
      EXPECT_EQ(bench.context.result.loss, 0.0);
      EXPECT_EQ(bench.context.verdict.needs_diagnosis, overflows);
      EXPECT_EQ(bench.context.verdict.skip_update, overflows);
      if (overflows) continue;
      const auto elements = static_cast<double>(bench.parts.model->parameter_count());
      EXPECT_DOUBLE_EQ(bench.context.result.grad_norm, 24.0 * std::sqrt(elements));
      EXPECT_NEAR(bench.context.verdict.gradient_scale * bench.context.result.grad_norm, 1.0, 1e-5);
    }
}

/// In each layer so many as tokens have experts, on all ranks, where blocks are computed again.
TEST(SumHandlers, CountEachAssignmentOnce) {
  config::Settings deck = small_llama(24);
  deck.model.layers = 3;
  deck.model.experts.count = 5;
  deck.model.experts.per_token = 2;
  deck.model.experts.width = 8;
  deck.parallel.activation_checkpointing.every = 1;
  for (const std::int64_t blocks_per_unit : {1, 2}) {
    deck.model.blocks_per_unit = blocks_per_unit;
    Bench bench(deck);
    comm::Communicator& world = bench.mesh.world();
    const auto data =
        data::open_dataset(deck.data, data::Split::training, deck.training.sequence_length,
                           deck.model.vocabulary, deck.training.seed, world);
    bench.context.samples = data.get();
    train::Channels channels(bench.parts.programs, bench.context.rank, bench.mesh);
    train::StepGuard guard(bench.parts.settings, DType::fp32, false);
    train::Diagnosis diagnosis(bench.plan(), bench.parts.description, bench.context.rank, world);
    const train::EmptyExchanges empty_exchanges(bench.parts.programs);
    train::MoveHandlers move(bench.context, channels, empty_exchanges, DType::fp32, DType::fp32);
    train::LoadHandler load(bench.context, bench.parts.programs, bench.parts.settings, world);
    train::ComputeHandlers compute(bench.context, bench.parts.layout, bench.parts.settings,
                                   empty_exchanges, &diagnosis);
    train::SumHandlers sum(bench.context, bench.parts.layout, guard, diagnosis, world,
                           bench.parts.settings.step_terms());
    move.install(bench.executor);
    load.install(bench.executor);
    compute.install(bench.executor);
    sum.install(bench.executor);
    std::vector<std::int64_t> counts(15);
    bench.executor.on(Kind::clip, [&](const ActionBuffers& buffers) {
      const train::ExpertCounts all(bench.parts.description);
      EXPECT_EQ(all.sums(), train::step_sums + 15);
      std::copy_n(buffers.host_view<std::int64_t>(Role::sums).data() + train::step_sums,
                  counts.size(), counts.begin());
    });
    bench.run();
    world.all_reduce_sum(counts.data(), counts.size());
    const std::int64_t assignments =
        deck.training.global_batch_size * deck.training.sequence_length * 2;
    for (int layer = 0; layer < 3; ++layer)
      EXPECT_EQ(std::accumulate(&counts[5 * layer], &counts[5 * layer] + 5, std::int64_t{0}),
                assignments);
  }
}

TEST(UpdateHandlers, UpdateUnlessTheStepIsSkipped) {
  config::Settings deck = small_llama(24);
  deck.optimizer.kind = optim::OptimizerKind::sgd;
  deck.optimizer.momentum = 0.0;
  deck.optimizer.weight_decay = 0.5;
  Bench bench(deck);
  const std::uint64_t before = bench.state.digest();
  train::UpdateHandlers update(bench.context, bench.parts.layout, bench.parts.settings);
  update.install(bench.executor);
  // Without a gradient, weights shrink by the decay.
  const auto clear = [&](const ActionBuffers& buffers) {
    const int unit = buffers.action.unit;
    const std::int64_t count =
        bench.plan().elements(bench.plan().trained(unit), bench.plan().layouts.gradient.divided);
    std::fill_n(buffers.host_view<float>(Role::gradient_shard).range(0, count).data(), count, 0.0f);
  };
  bench.executor.on(Kind::norm, clear);
  bench.context.verdict.skip_update = true;
  bench.run();
  EXPECT_EQ(bench.state.digest(), before);
  bench.context.verdict.skip_update = false;
  const auto values = bench.state.memory().view<float, OnHost>(bench.plan().units[1].masters);
  std::map<std::int64_t, float> expected;
  for (const train::UpdateRange& range : bench.parts.layout.update_ranges(1, DType::fp32, 1)) {
    const double rate =
        optim::learning_rate(deck.schedule, deck.optimizer.learning_rate, 1, deck.training.steps);
    const double decay = range.param_group.weight_decay;
    for (std::int64_t i = range.offset; i < range.offset + range.count; ++i)
      expected[i] = static_cast<float>(static_cast<double>(values[i]) * (1.0 - rate * decay));
  }
  bench.run();
  EXPECT_NE(bench.state.digest(), before);
  for (const auto& [i, value] : expected)
    EXPECT_NEAR(values[i], value, 1e-6f * std::abs(value) + 1e-9f);
}

}  // namespace
}  // namespace ostrakon::tests
