// SPDX-License-Identifier: Apache-2.0
// What a step computes has the same bits if the device is given it as graphs, in fewer submissions.
#include <fake_device/runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/device/graph.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/transfer.hpp>
#include <ostrakon/runtime/queue.hpp>
#include <string>
#include <vector>

#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

TEST(Graph, DoesItsWorkOnceForEachLaunch) {
  const device::Stream stream;
  const Exec exec(stream.handle());
  const device::DeviceBytes bytes(sizeof(float));
  const View<float*> x(reinterpret_cast<float*>(bytes.data()), 1);
  math::clear(exec, x);
  const auto add_one = [&](const KernelSpace&) { *x.data() += 1.0F; };
  launch(exec, "add_one", add_one);
  const device::Graph graph = device::Graph::capture(stream.handle(), [&] {
    launch(exec, "add_one", add_one);
    launch(exec, "add_one", add_one);
  });
  float value = 0.0F;
  math::copy_to_host(exec, View<const float*>(x), HostView<float*>(&value, 1));
  EXPECT_EQ(value, 1.0F) << "what is captured must not be done";
  graph.launch(stream.handle());
  graph.launch(stream.handle());
  math::copy_to_host(exec, View<const float*>(x), HostView<float*>(&value, 1));
  EXPECT_EQ(value, 5.0F);
}

TEST(Graph, LeavesTheStreamAsItWasIfItCanNotBeCaptured) {
  const device::Stream stream;
  const Exec exec(stream.handle());
  const auto waits = [&] { exec.fence(); };
  EXPECT_THROW(device::Graph::capture(stream.handle(), waits), Error);
  EXPECT_NO_THROW(exec.fence());
}

TEST(Graph, OfAnActionThatWaitsIsNotMade) {
  plan::StepPlan plan;
  plan::Action forward;
  forward.kind = plan::Kind::forward;
  forward.unit = 0;
  plan.actions = {forward};
  runtime::Program program;
  program.plan = std::move(plan);
  runtime::Executor executor({nullptr, nullptr}, runtime::Streams::device);
  int calls = 0;
  executor.on(plan::Kind::forward, [&](const runtime::ActionBuffers& buffers) {
    ++calls;
    for (int i = 0; i < 3; ++i) launch(buffers.exec, "nothing", [](const KernelSpace&) {});
    if (calls > 1) buffers.exec.fence();  // not where launches are only counted
  });
  executor.submit_as_graph(plan::Kind::forward, [](const runtime::ActionBuffers&) { return 0; });
  executor.capture(program);
  const runtime::GraphCount count = executor.graphs(program);
  EXPECT_EQ(count.graphs, 0);
  EXPECT_NE(count.refused.find("cudaStreamSynchronize"), std::string::npos) << count.refused;
  calls = 0;
  executor.run(program);
  EXPECT_EQ(calls, 1);
}

/// What a run of some steps gives, and how it was submitted.
struct Steps {
  std::vector<double> numbers;
  std::uint64_t digest = 0;
  runtime::GraphCount graphs;
  long launched = 0;  ///< graphs launched in the last step
  std::vector<std::string> skipped;
};

/// Five steps with a validation after the second; the gradient of the third is not finite, if
/// `injects`.
Steps run_of(config::Settings settings, config::GraphsChoice graphs, bool injects) {
  settings.runtime.streams = config::StreamsChoice::automatic;
  settings.runtime.graphs = graphs;
  settings.stability.skip_non_finite = true;
  SmallRun run(settings);
  Steps all;
  all.graphs = run.trainer.graphs();
  for (std::int64_t step = 1; step <= 5; ++step) {
    if (injects && step == 3) run.trainer.inject_nonfinite(1, 0);
    const long before = fake_calls("cudaGraphLaunch");
    const train::StepResult one = run.step(step);
    all.launched = fake_calls("cudaGraphLaunch") - before;
    const double norm = std::isnan(one.grad_norm) ? -1.0 : one.grad_norm;
    all.numbers.insert(all.numbers.end(), {one.loss, norm, one.loss_scale});
    all.skipped.push_back(one.skipped);
    if (step == 2) all.numbers.push_back(run.trainer.evaluate(*run.validation, 2));
  }
  all.digest = run.trainer.state_digest();
  return all;
}

void expect_same(const config::Settings& settings, bool injects = false) {
  const Steps with = run_of(settings, config::GraphsChoice::automatic, injects);
  const Steps without = run_of(settings, config::GraphsChoice::never, injects);
  EXPECT_EQ(with.numbers, without.numbers);
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_EQ(with.skipped, without.skipped);
  EXPECT_EQ(without.launched, 0);
  EXPECT_EQ(without.graphs.graphs, 0);
  EXPECT_GT(with.graphs.kernels, 30);
  EXPECT_GE(with.graphs.actions, with.graphs.graphs);
  EXPECT_EQ(with.launched, with.graphs.actions);
}

TEST(Graphs, ChangeNoBit) {
  expect_same(small_gpt2(4));
  config::Settings llama = small_llama(4);
  llama.precision.gather = DType::bf16;
  llama.parallel.activation_checkpointing.every = 1;
  expect_same(llama);
  llama.parallel.sharding = plan::Sharding::none;
  llama.parallel.updates = plan::Updates::optimistic;
  expect_same(llama);
}

TEST(Graphs, AreLeftOutWhereAGradientIsChanged) { expect_same(small_llama(4), true); }

TEST(Graphs, AreLeftOutWhereTheLossScaleIsAnother) {
  config::Settings settings = small_llama(4);
  settings.precision.gather = DType::fp16;
  settings.precision.loss_scale.initial = 64.0;
  settings.precision.loss_scale.growth_interval = 2;
  const Steps with = run_of(settings, config::GraphsChoice::automatic, false);
  const Steps without = run_of(settings, config::GraphsChoice::never, false);
  EXPECT_EQ(with.numbers, without.numbers);
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_LT(with.launched, with.graphs.actions) << "the head's backward was to be called";
  EXPECT_GT(with.launched, 0);
}

TEST(Graphs, OfExpertsAreNotMade) {
  config::Settings settings = small_llama(4);
  settings.model.experts.count = 4;
  settings.model.experts.per_token = 2;
  settings.model.experts.width = 24;
  const Steps with = run_of(settings, config::GraphsChoice::automatic, false);
  const Steps without = run_of(settings, config::GraphsChoice::never, false);
  EXPECT_EQ(with.numbers, without.numbers);
  EXPECT_EQ(with.digest, without.digest);
  EXPECT_LT(with.launched, 20) << "blocks have experts";
}

}  // namespace
