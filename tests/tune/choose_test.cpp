// SPDX-License-Identifier: Apache-2.0
// The layout that is chosen by simulated time: found in little time, and as good as any.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/tune/choose.hpp>
#include <random>
#include <string>

#include "support/messages.hpp"
#include "support/trials.hpp"

namespace ostrakon::tune {
namespace {

double random_between(std::mt19937& random, double least, double most) {
  const double part = static_cast<double>(random() % 1001) / 1000.0;
  return least * std::pow(most / least, part);
}

/// From fast to slow networks, on which a small model is limited by this or that.
simulate::Machine random_machine(std::mt19937& random) {
  simulate::Machine machine;
  machine.name = "random";
  machine.fp32.products = random_between(random, 1e9, 1e11);
  machine.kernels.row_bytes_per_second = random_between(random, 1e9, 1e11);
  machine.kernels.row_kernel_seconds = 1e-6;
  machine.inside_nodes.bytes_per_second = random_between(random, 1e7, 1e10);
  machine.inside_nodes.base_seconds = random_between(random, 1e-7, 1e-4);
  machine.across_nodes.bytes_per_second = random_between(random, 1e6, 1e9);
  machine.across_nodes.base_seconds = random_between(random, 1e-6, 1e-3);
  machine.across_nodes.step_seconds = random_between(random, 1e-7, 1e-4);
  machine.host_bytes_per_second = 1e10;
  machine.upload_bytes_per_second = machine.download_bytes_per_second = 1e9;
  machine.slowdown = 0.1;
  return machine;
}

config::Settings small_deck(int layers, int batch) {
  config::Settings deck = config::read_settings(
      "ostrakon:\n"
      "  model: {layers: " +
          std::to_string(layers) +
          ", width: 32, heads: 4, vocabulary: 61, tensor_grain: 2}\n"
          "  data: {dataset: synthetic}\n"
          "  training: {global_batch_size: " +
          std::to_string(batch) + ", micro_batch_size: 1, sequence_length: 16}\n",
      "deck.yaml", {});
  deck.processor.is_device = true;  // as the machines are
  return deck;
}

Request request_on(const simulate::Machine& machine, int ranks, int ranks_per_node) {
  Request request;
  request.on = {machine, ranks, ranks_per_node};
  // What leaves some thousand settings to plan for the comparison.
  request.kept = {"memory.offload",
                  "memory.activations",
                  "parallel.schedule",
                  "parallel.hierarchical_collectives",
                  "parallel.in_flight_reductions",
                  "memory.activation_checkpointing"};
  return request;
}

constexpr config::Varied pipeline{"parallel", "pipeline"};
constexpr config::Varied how{"parallel", "schedule"};
constexpr config::Varied chunks{"parallel", "pipeline_chunks"};
constexpr config::Varied checkpointing{"memory", "activation_checkpointing"};
constexpr config::Varied state_on_host{"memory", "offload"};
constexpr config::Varied prefetch{"parallel", "forward_prefetch"};

TEST(Tune, SearchIsAsGoodAsPlanningAllSettings) {
  std::mt19937 random(7);
  double worst = 0.0;
  for (int i = 0; i < 24; ++i) {
    const int ranks = 4 << (i % 3), layers = i % 6 == 5 ? 8 : 2;
    const config::Settings deck = small_deck(layers, i % 6 == 5 ? 32 : 16);
    Request request = request_on(random_machine(random), ranks, i % 5 == 0 ? ranks : ranks / 2);
    if (i % 3 == 1) request.kept.erase("memory.activation_checkpointing");
    request.kept.insert("parallel.tensor_chunks");
    if (i % 3 == 1) request.kept.insert("parallel.reshard_after_forward");
    if (i % 2 == 1) request.kept.insert("parallel.shard_group");
    if (i % 4 == 0) request.kept.insert("parallel.pipeline");
    // Among these six are those in which searches that were tried did not find the best.
    constexpr int of_each_run[] = {0, 1, 7, 14, 20, 23};
    if (!tests::takes_every_case() &&
        std::find(std::begin(of_each_run), std::end(of_each_run), i) == std::end(of_each_run))
      continue;
    const Result any = choose(deck, request);
    // Then with too little memory for that.
    if (i % 2 == 1) request.room.device = any.best.front().arenas.device * 3 / 4;
    Request all = request;
    all.is_exhaustive = true;
    try {
      const Result best = choose(deck, all), found = choose(deck, request);
      const double off =
          found.best.front().prediction.step_seconds / best.best.front().prediction.step_seconds;
      worst = std::max(worst, off);
      EXPECT_GE(off, 1.0 - 1e-3) << i;
      EXPECT_LE(off, 1.02) << i << ": " << config::set_options(found.best.front().changes)
                           << " instead of " << config::set_options(best.best.front().changes);
      if (request.room.device > 0) {
        EXPECT_LE(found.best.front().arenas.device, request.room.device);
      }
    } catch (const Error& error) {
      EXPECT_THROW(choose(deck, request), Error) << i;
    }
  }
  RecordProperty("most_slower_per_mille", static_cast<int>(1000.0 * (worst - 1.0)));
  std::cout << "slower than the best by at most " << 100.0 * (worst - 1.0) << " %\n";
}

void expect_same_at_each_call(const config::Settings& deck, Request request) {
  const Result one = choose(deck, request);
  for (const int threads : {1, 2, 3, 3}) {
    request.threads = threads;
    const Result other = choose(deck, request);
    EXPECT_EQ(one.estimated, other.estimated) << threads;
    ASSERT_EQ(one.best.size(), other.best.size()) << threads;
    for (std::size_t i = 0; i < one.best.size(); ++i) {
      EXPECT_EQ(one.best[i].changes, other.best[i].changes) << threads;
      EXPECT_EQ(one.best[i].prediction.step_seconds, other.best[i].prediction.step_seconds);
    }
  }
}

TEST(Tune, IsTheSameAtEachCall) {
  std::mt19937 random(3);
  expect_same_at_each_call(small_deck(2, 16), request_on(random_machine(random), 4, 2));
}

// The model has many layers, with more prefetch than the shorter steps show, and with all
// schedules.
TEST(Tune, IsTheSameAtEachCallWithShorterSteps) {
  std::mt19937 random(5);
  config::Settings deck = small_deck(20, 32);
  config::set(deck, {{&prefetch, "4"}});
  Request request = request_on(random_machine(random), 4, 2);
  request.kept.erase("parallel.schedule");
  expect_same_at_each_call(deck, request);
}

TEST(Tune, BoundsAreNoMoreThanWhatPlansTake) {
  std::mt19937 random(11);
  int bounded = 0;
  for (int i = 0; i < 120; ++i) {
    MachineRanks on{random_machine(random), 8, 4};
    // Computing decides, so that bounds are close.
    if (i % 2 == 0) {
      on.machine.inside_nodes = {1e12, 0.0, 0.0};
      on.machine.across_nodes = on.machine.inside_nodes;
      on.machine.kernels.backward_products = 0.8;
    }
    config::Settings deck = small_deck(6, 32);
    Freedom freedom;
    freedom.ranks = 8;
    freedom.ranks_per_node = 4;
    const Space space = make_space(deck, freedom);
    LayoutCandidates candidates(deck, space, on, {});
    Point point;
    for (const int size : candidates.sizes())
      point.push_back(static_cast<int>(random() % static_cast<unsigned>(size)));
    const std::optional<Cost> bound = candidates.bound(point);
    const std::optional<double> seconds = bound ? candidates.seconds(point) : std::nullopt;
    if (!seconds) continue;
    // Units that stages exchange, so that less memory is needed, may shorten a pipeline.
    EXPECT_LE(bound->seconds, *seconds * (candidates.settings(point).pipeline > 1 ? 1.01 : 1.0))
        << i;
    const Memory memory = candidates.memory(point);
    EXPECT_LE(bound->memory.device, memory.device);
    EXPECT_LE(bound->memory.host, memory.host);
    bounded += bound->seconds > 0.5 * *seconds ? 1 : 0;
  }
  EXPECT_GT(bounded, 10);
}

void expect_close_estimate(const config::Settings& deck, int ranks, double seconds_off,
                           double bytes_off) {
  std::mt19937 random(8);
  for (int i = 0; i < 3; ++i) {
    const MachineRanks on{random_machine(random), ranks, 4};
    const Space space;
    LayoutCandidates candidates(deck, space, on, {});
    const std::optional<Cost> cost = candidates.estimate({});
    const std::optional<double> seconds = candidates.seconds({});
    ASSERT_TRUE(cost.has_value() && seconds.has_value());
    EXPECT_NEAR(cost->seconds / *seconds, 1.0, seconds_off) << i;
    const Memory memory = candidates.memory({});
    const auto share = [](std::int64_t one, std::int64_t other) {
      return static_cast<double>(one) / static_cast<double>(other);
    };
    EXPECT_NEAR(share(cost->memory.device, memory.device), 1.0, bytes_off) << i;
    if (deck.parallel.offload != plan::Offload::none) {
      EXPECT_NEAR(share(cost->memory.host, memory.host), 1.0, bytes_off) << i;
    }
  }
}

TEST(Tune, EstimatesLongStepsByShorterOnes) {
  config::Settings deck = small_deck(20, 64);
  expect_close_estimate(deck, 4, 0.01, 0.03);
  config::set(deck, {{&checkpointing, "every 3"}});
  expect_close_estimate(deck, 4, 0.03, 0.05);
  for (const char* offload : {"optimizer", "all"}) {
    config::set(deck, {{&state_on_host, offload}});
    expect_close_estimate(deck, 4, 0.05, 0.05);
  }
}

// Layers with experts are two units.
TEST(Tune, EstimatesLongStepsWithExperts) {
  config::Settings deck = config::read_settings(
      "ostrakon:\n"
      "  model: {layers: 16, width: 32, heads: 4, vocabulary: 61, experts: 4, experts_per_token: "
      "2}\n"
      "  data: {dataset: synthetic}\n"
      "  parallel: {expert: 2, expert_capacity: 2}\n"
      "  training: {global_batch_size: 64, micro_batch_size: 1, sequence_length: 16}\n",
      "deck.yaml", {});
  deck.processor.is_device = true;
  expect_close_estimate(deck, 4, 0.02, 0.10);
}

TEST(Tune, EstimatesStagesOfManyLayers) {
  for (const char* policy : {"none", "every 2", "full"})
    for (const char* number : {"1", "2"}) {
      SCOPED_TRACE(policy + std::string(" ") + number);
      config::Settings deck = small_deck(46, 32);
      config::set(deck, {{&checkpointing, policy}, {&pipeline, "4"}});
      if (*number == '2') config::set(deck, {{&how, "interleaved"}, {&chunks, number}});
      expect_close_estimate(deck, 8, 0.05, 0.10);
    }
}

TEST(Tune, EstimatesLongPipelinesByShorterOnes) {
  for (const int batch : {16, 32, 64, 128}) {
    if (!tests::takes_every_case() && batch != 16 && batch != 128) continue;
    for (const char* schedule : {"1f1b", "interleaved", "zero_bubble"}) {
      SCOPED_TRACE(schedule + std::to_string(batch));
      config::Settings deck = small_deck(30, batch);
      config::set(deck, {{&pipeline, "16"}, {&how, schedule}});
      if (deck.parallel.schedule == plan::ScheduleKind::interleaved)
        config::set(deck, {{&chunks, "2"}});
      expect_close_estimate(deck, 32, 0.07, 0.16);
    }
  }
}

TEST(Tune, KeepsWhatIsSaid) {
  std::mt19937 random(4);
  Request request = request_on(random_machine(random), 8, 4);
  for (const char* key : {"parallel.sharding", "parallel.tensor", "parallel.pipeline"})
    request.kept.insert(key);
  for (const Chosen& one : choose(small_deck(2, 16), request).best) {
    EXPECT_EQ(one.settings.parallel.sharding, plan::Sharding::full);
    EXPECT_EQ(one.settings.tensor, 1);
    EXPECT_EQ(one.settings.pipeline, 1);
  }
}

TEST(Tune, LeavesOutWhatChangesBits) {
  std::mt19937 random(5);
  Request request = request_on(random_machine(random), 4, 2);
  config::Settings deck = small_deck(2, 16);
  deck.tensor_grain = 1;
  for (const Chosen& one : choose(deck, request).best) {
    EXPECT_EQ(one.settings.tensor, 1);
    EXPECT_EQ(one.settings.context, 1);
    EXPECT_EQ(one.settings.training.micro_batch_size, 1);
  }
  // Gradients that are rounded to be sent: another order of sums would have other bits.
  deck.parallel.reduce = DType::bf16;
  for (const Chosen& one : choose(deck, request).best) {
    EXPECT_EQ(one.settings.parallel.sharding, deck.parallel.sharding);
    EXPECT_EQ(one.settings.parallel.accumulation, deck.parallel.accumulation);
    EXPECT_EQ(one.settings.shard_group, deck.shard_group);
    EXPECT_EQ(one.settings.pipeline, 1);
  }
}

TEST(Tune, ComparesWithTheDeckAsItStands) {
  std::mt19937 random(9);
  config::Settings deck = small_deck(2, 16);
  Request request = request_on(random_machine(random), 4, 2);
  const Result found = choose(deck, request);
  ASSERT_TRUE(found.deck.has_value());
  EXPECT_TRUE(found.deck->changes.empty());
  EXPECT_GE(found.deck->prediction.step_seconds, found.best.front().prediction.step_seconds);
  request.room.device = found.deck->arenas.device - 1;
  EXPECT_FALSE(choose(deck, request).deck->fits);
  // Micro-batches of two samples are too few for these ranks.
  deck = small_deck(2, 8);
  request.on.ranks = 8;
  request.on.ranks_per_node = 4;
  deck.training.micro_batch_size = 2;
  request.any_precision = true;
  const Result other = choose(deck, request);
  EXPECT_FALSE(other.deck.has_value());
  EXPECT_NE(other.why_not_deck, "");
}

TEST(Tune, ChoosesWhatCanBeAudited) {
  std::mt19937 random(9);
  config::Settings deck = small_deck(2, 16);
  config::set(deck, {{&pipeline, "2"}});
  deck.runtime.audit = 10;
  const Result found = choose(deck, request_on(random_machine(random), 4, 2));
  EXPECT_EQ(found.why_not_deck,
            "runtime.audit: parallel.pipeline = 2: expected 1, as ranks compute whole leaves "
            "again");
  for (const Chosen& one : found.best) EXPECT_EQ(one.settings.pipeline, 1);
}

// What is kept on the host is a last resort, bounded by its memory, and none where ranks compute
// there.
TEST(Tune, KnowsTheMemoryOfTheHost) {
  std::mt19937 random(12);
  config::Settings deck = small_deck(2, 16);
  Request request = request_on(random_machine(random), 4, 2);
  const auto fits = [&](const Request& one) {
    try {
      choose(deck, one);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  // Too little for any settings without the host.
  request.room.device = 1 << 20;
  while (fits(request)) request.room.device = request.room.device * 9 / 10;
  request.kept.erase("memory.offload");
  request.kept.erase("memory.activations");
  const auto smallest = [&] {
    Request tiny = request;
    tiny.room.device = 1;
    return testing::error_of([&] { choose(deck, tiny); });
  };
  const Chosen offloaded = choose(deck, request).best.front();
  EXPECT_NE(offloaded.settings.parallel.offload, plan::Offload::none);
  EXPECT_LE(offloaded.arenas.device, request.room.device);
  request.room.host = offloaded.arenas.host;
  EXPECT_LE(choose(deck, request).best.front().arenas.host, request.room.host);
  request.room.host = 1;
  EXPECT_FALSE(fits(request));
  EXPECT_NE(smallest().find(" of the host's memory"), std::string::npos) << smallest();
  request.room.host = 0;
  deck.processor.is_device = false;
  EXPECT_FALSE(fits(request));
  EXPECT_EQ(smallest().find("memory.offload"), std::string::npos) << smallest();
  // Both arenas are in one memory.
  request.room.device = 0;
  const Chosen any = choose(deck, request).best.front();
  ASSERT_GT(any.arenas.host, 0);
  request.kept = {};
  for (const char* key : {"parallel.sharding", "parallel.shard_group", "parallel.pipeline"})
    request.kept.insert(key);
  request.room.device = any.arenas.device;
  EXPECT_TRUE(fits(request));
  for (const Chosen& one : choose(deck, request).best)
    EXPECT_LE(one.arenas.device + one.arenas.host, request.room.device);
}

TEST(Tune, ChangesBitsOnlyWhereThatIsAskedFor) {
  std::mt19937 random(13);
  simulate::Machine machine = random_machine(random);
  machine.bits16.products = 10.0 * machine.fp32.products;
  Request request = request_on(machine, 4, 2);
  const config::Settings deck = small_deck(2, 16);
  for (const Chosen& one : choose(deck, request).best) {
    EXPECT_EQ(one.settings.precision.gather, DType::fp32);
    EXPECT_TRUE(one.bits_of_one_rank);
  }
  request.any_precision = true;
  const Chosen any = choose(deck, request).best.front();
  EXPECT_EQ(any.settings.precision.gather, DType::bf16);
  request.kept.insert("precision.gather");
  EXPECT_EQ(choose(deck, request).best.front().settings.precision.gather, DType::fp32);
}

TEST(Tune, SaysTheSmallestWhereNothingFits) {
  std::mt19937 random(6);
  Request request = request_on(random_machine(random), 4, 2);
  request.room.device = 1000;
  EXPECT_HAS(testing::error_of([&] { choose(small_deck(2, 16), request); }),
             "the smallest arena that was found takes");
}

}  // namespace
}  // namespace ostrakon::tune
