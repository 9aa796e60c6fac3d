// SPDX-License-Identifier: Apache-2.0

// The figures of a plan against closed forms, and against what its JSON says of every buffer.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/plan/order.hpp>
#include <ostrakon/plan/picture.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/report_json.hpp>
#include <ostrakon/plan/report_text.hpp>
#include <random>
#include <set>
#include <sstream>

#include "random_plans.hpp"
#include "traffic.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using Json = nlohmann::json;

/// Sizes that are multiples of what they are padded to for up to 8 ranks.
ModelDescription make_model(int blocks) {
  ModelDescription model;
  model.batch_bytes = 512;
  model.gradient_bytes = 2048;
  model.sums_bytes = 1280;
  for (int u = 0; u < blocks + 2; ++u) {
    UnitDescription unit;
    unit.name = u == 0 ? "embedding" : u == blocks + 1 ? "head" : "block." + std::to_string(u - 1);
    unit.parameter_elements = 512 * (u == 0 ? 7 : u == blocks + 1 ? 5 : 3);
    unit.output_bytes = u == blocks + 1 ? 256 : 2048;
    unit.saved_bytes = u == 0 || u == blocks + 1 ? 0 : 8192;
    unit.forward.front().workspace_bytes = 1024;
    unit.backward.front().workspace_bytes = u == 0 ? 0 : 3072;
    unit.forward.front().flops = 10.0 + u;
    unit.backward.front().flops = 100.0 + u;
    unit.backward_reads_parameters = u != 0;
    model.units.push_back(unit);
  }
  return model;
}

struct Planned {
  StepPlan plan;
  MemoryPlan memory;
  MemoryPlan host_memory;
  Report report;
};

Planned make(const ModelDescription& model, int ranks, const Policy& policy, int ranks_per_node = 0,
             Purpose purpose = Purpose::train) {
  Planned planned;
  planned.plan = build_step_plan(model, ranks, policy, purpose);
  planned.memory = plan_memory(planned.plan);
  planned.host_memory = plan_memory(planned.plan, Space::host);
  planned.report = make_report(planned.plan, planned.memory, planned.host_memory, ranks_per_node);
  return planned;
}

Policy make_policy(Sharding sharding, std::int64_t leaves, int shard_group = 0) {
  Policy policy;
  policy.sharding = sharding;
  policy.leaves = leaves;
  policy.shard_group = shard_group;
  return policy;
}

std::int64_t sum(const CategoryBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

constexpr std::int64_t embedding = 4 * 512 * 7, block = 4 * 512 * 3, head = 4 * 512 * 5;

TEST(Report, TrafficOfFullShardingIsThreeTimesTheModelPerMicroBatch) {
  constexpr int blocks = 3, ranks = 4, micro_batches = 2;
  Policy policy = make_policy(Sharding::full, ranks * micro_batches);
  policy.reshard_after_forward.kind = Reshard::always;
  const Planned planned = make(make_model(blocks), ranks, policy, 2);
  const Traffic& traffic = planned.report.shard;
  // The embedding is gathered for forward only, the head once for both.
  const std::int64_t once = embedding + blocks * block + head;
  const std::int64_t gathered = once + blocks * block;
  const int collectives = micro_batches * (2 * (blocks + 1) + blocks + 2);
  EXPECT_EQ(traffic.bytes_sent, micro_batches * (gathered + once) / ranks * (ranks - 1));
  EXPECT_EQ(traffic.collectives, collectives);
  EXPECT_EQ(traffic.array.smallest, block);
  EXPECT_EQ(traffic.array.median, block);
  EXPECT_EQ(traffic.array.largest, embedding);
  EXPECT_EQ(traffic.messages, collectives * (ranks - 1));
  EXPECT_EQ(traffic.message.smallest, block / ranks);
  EXPECT_EQ(traffic.message.median, block / ranks);
  EXPECT_EQ(traffic.message.largest, embedding / ranks);
  EXPECT_TRUE(traffic.spans_nodes);
  EXPECT_EQ(planned.report.replicate.collectives, 0);
  // Of three partners one is on the same node.
  EXPECT_EQ(planned.report.bytes_inside_nodes, traffic.bytes_sent / 3);
  EXPECT_EQ(planned.report.bytes_across_nodes, traffic.bytes_sent / 3 * 2);
  EXPECT_EQ(traffic.bytes_across_nodes, planned.report.bytes_across_nodes);
  EXPECT_EQ(planned.report.nodes, 2);
}

TEST(Report, TrafficOfHybridsStaysInsideNodesButForTheReplicas) {
  constexpr int blocks = 2, ranks = 8, group = 4, micro_batches = 2;
  Policy policy = make_policy(Sharding::full, ranks * micro_batches, group);
  policy.reshard_after_forward.kind = Reshard::always;
  const Planned planned = make(make_model(blocks), ranks, policy, group);
  const Report& report = planned.report;
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(report.bytes_inside_nodes,
            micro_batches * (2 * once + blocks * block) / group * (group - 1));
  // An all-reduce of a rank's part over 2 replicas: 2 M (n - 1) / n.
  EXPECT_EQ(report.bytes_across_nodes, 2 * (once / group) / 2);
  EXPECT_EQ(report.shard.bytes_across_nodes, 0);
  EXPECT_EQ(report.replicate.bytes_across_nodes, report.bytes_across_nodes);
  EXPECT_EQ(report.replicate.collectives, 2 * (blocks + 2));
  EXPECT_EQ(report.replicate.messages, 2 * (blocks + 2));
  EXPECT_EQ(report.replicate.array.largest, embedding / group);
  EXPECT_EQ(report.replicate.message.largest, embedding / group / 2);
  EXPECT_EQ(report.bytes_inside_nodes + report.bytes_across_nodes, planned.plan.bytes_sent());
}

/// The blocks keep a half of what was gathered, one of them a quarter.
Policy keeping_policy(std::int64_t leaves, int shard_group = 0,
                      const std::string& quarter = "block.0") {
  Policy policy = make_policy(Sharding::full, leaves, shard_group);
  policy.reshard_after_forward = {Reshard::partly, 2};
  UnitRule rule;
  rule.pattern = quarter;
  rule.reshard_after_forward = Reshard{Reshard::partly, 4};
  policy.units = {rule};
  return policy;
}

TEST(Report, KeptGroupsAreCountedByThemselves) {
  constexpr int blocks = 3, ranks = 8, micro_batches = 2;
  for (const char* quarter : {"block.0", "block.2"}) {
    const Policy policy = keeping_policy(ranks * micro_batches, 0, quarter);
    const Report report = make(make_model(blocks), ranks, policy, 2).report;
    EXPECT_EQ(report.kept.ranks, 4);
    EXPECT_TRUE(report.kept.spans_nodes);
    EXPECT_EQ(report.kept.collectives, micro_batches * blocks);
    EXPECT_EQ(report.kept.messages, micro_batches * (3 + (blocks - 1)));
    EXPECT_EQ(report.kept.bytes_sent, micro_batches * (block / 4 * 3 + (blocks - 1) * block / 2));
    EXPECT_EQ(report.kept.bytes_across_nodes, micro_batches * (block / 4 * 2));
    EXPECT_EQ(report.kept.message.smallest, block / 4);
    EXPECT_EQ(report.kept.message.median, block / 2);
    EXPECT_EQ(report.kept.array.smallest, block);
    EXPECT_EQ(report.shard.collectives, micro_batches * (2 * (blocks + 2)));
  }
}

TEST(Report, ReplicationMovesTwiceTheModelInAStep) {
  constexpr int blocks = 2, ranks = 4;
  const Planned planned = make(make_model(blocks), ranks, make_policy(Sharding::none, 2 * ranks));
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(planned.report.shard.bytes_sent, 2 * once / ranks * (ranks - 1));
  EXPECT_EQ(planned.report.bytes_across_nodes, 0);
  EXPECT_EQ(planned.report.nodes, 1);
}

/// Of each rank the bytes sent to other nodes, counted message by message.
std::vector<std::array<std::int64_t, groups>> count_across(const StepPlan& plan, int node) {
  const int ranks = plan.grid.ranks();
  std::vector<std::array<std::int64_t, groups>> across(ranks);
  for (const Action& action : plan.actions) {
    const Group group = tests::is_of_kept(plan, action)       ? Group::kept
                        : action.span.axis == Axis::replicate ? Group::replicate
                                                              : Group::shard;
    for (int a = 0; a < ranks; ++a)
      for (int b : tests::ranks_of_group(plan, action.span, a))
        if (a / node != b / node) across[a][static_cast<int>(group)] += message_bytes(action);
  }
  return across;
}

TEST(Report, NodesAreTakenAsTheyLie) {
  for (int ranks : {1, 2, 4, 6, 8, 12})
    for (int group = 1; group <= ranks; ++group)
      for (int node = 1; node <= 2 * ranks; ++node)
        for (const bool levels : {false, true}) {
          if (ranks % group != 0) continue;
          const std::string what = std::to_string(ranks) + " ranks, groups of " +
                                   std::to_string(group) + ", nodes of " + std::to_string(node);
          bool shards = false, replicas = false;
          for (int a = 0; a < ranks; ++a)
            for (int b = 0; b < ranks; ++b) {
              if (a / node == b / node) continue;
              shards = shards || a / group == b / group;
              replicas = replicas || a % group == b % group;
            }
          Policy policy = make_policy(Sharding::full, ranks, group);
          if (group % 4 == 0) policy = keeping_policy(ranks, group);
          policy.ranks_per_node = levels ? node : 0;
          policy.hierarchical.bytes = 1;
          const Planned planned = make(make_model(2), ranks, policy, node);
          const Report& report = planned.report;
          EXPECT_EQ(report.shard.spans_nodes, shards) << what;
          EXPECT_EQ(report.replicate.spans_nodes, replicas) << what;

          std::int64_t most = -1;
          std::array<std::int64_t, groups> of_most{};
          for (const auto& across : count_across(planned.plan, node)) {
            const std::int64_t sum = std::accumulate(across.begin(), across.end(), std::int64_t{0});
            if (sum <= most) continue;
            most = sum;
            of_most = across;
          }
          EXPECT_EQ(report.bytes_across_nodes, most) << what;
          EXPECT_EQ(report.bytes_inside_nodes, planned.plan.bytes_sent() - most) << what;
          EXPECT_EQ(report.shard.bytes_across_nodes, of_most[0]) << what;
          EXPECT_EQ(report.replicate.bytes_across_nodes, of_most[1]) << what;
          EXPECT_EQ(report.kept.bytes_across_nodes, of_most[2]) << what;
        }
}

// By hand: one block of M bytes on two nodes of four ranks, one leaf on each.
TEST(Report, ANodeSendsAsMuchAsARankWouldInTwoLevels) {
  Policy policy = make_policy(Sharding::full, 8);
  policy.ranks_per_node = 4;
  for (const bool levels : {false, true}) {
    policy.hierarchical.kind = levels ? Hierarchical::always : Hierarchical::never;
    const Report report = make(make_model(2), 8, policy, 4).report;
    // Gathered once or twice and reduced once, as the policy says.
    const std::int64_t whole = report.shard.bytes_sent * 8 / 7;
    EXPECT_EQ(report.shard.bytes_sent, whole / 8 * 7);
    // Half of it goes to the other node: from each rank, or from all four together.
    EXPECT_EQ(report.bytes_across_nodes, levels ? whole / 2 / 4 : whole / 2);
    ASSERT_EQ(report.shard.levels.size(), levels ? 2u : 0u);
    if (!levels) continue;
    const TrafficOfSpan& inside = report.shard.levels[0];
    const TrafficOfSpan& across = report.shard.levels[1];
    EXPECT_EQ(inside.span, (Span{Axis::shard, 4}));
    EXPECT_EQ(across.span, (Span{Axis::shard, 2, 4}));
    EXPECT_EQ(inside.bytes_sent, whole / 4 * 3);
    EXPECT_EQ(inside.bytes_across_nodes, 0);
    EXPECT_EQ(across.bytes_sent, whole / 2 / 4);
    EXPECT_EQ(across.bytes_across_nodes, whole / 2 / 4);
    EXPECT_FALSE(inside.spans_nodes);
    EXPECT_TRUE(across.spans_nodes);
  }
}

// ---- overlap

TEST(Report, OnlyTheEndsOfAStepSendWhileNothingComputes) {
  const Planned planned = make(make_model(6), 4, make_policy(Sharding::full, 8));
  const OverlapBytes& overlap = planned.report.overlap;
  // The embedding's first gather, for which all wait, and the reduction of its gradients, after
  // which the norm of all gradients can be known.
  EXPECT_EQ(overlap.collectives_while_nothing_computes, 2);
  EXPECT_EQ(overlap.bytes_while_nothing_computes, 2 * embedding / 4 * 3);
  EXPECT_EQ(overlap.collectives_while_computing, planned.report.shard.collectives - 2);
  EXPECT_EQ(overlap.bytes_while_computing + overlap.bytes_while_nothing_computes,
            planned.plan.bytes_sent());
  EXPECT_EQ(overlap.most_units_in_flight, 2);
  EXPECT_EQ(overlap.most_bytes_in_flight, embedding + block);
  const std::string text = report_text(planned.plan, planned.report);
  EXPECT_NE(text.find("sent while nothing computes"), std::string::npos) << text;
  // The embedding is gathered once, the head too, the blocks twice; all are reduced.
  const double once = embedding + 6 * block + head;
  const double percent = 100.0 - 100.0 * 2 * embedding / (2 * (2 * once + 5 * block));
  char shown[64];
  std::snprintf(shown, sizeof shown, " collectives, %.1f %% of the bytes: ", percent);
  EXPECT_NE(text.find(shown), std::string::npos) << shown << text;
  std::stringstream stream;
  write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
  EXPECT_NEAR(Json::parse(stream.str())["overlap"]["percent_of_bytes_while_computing"], percent,
              1e-9);
}

TEST(Report, WithoutPrefetchOrReductionsInFlightNothingOverlaps) {
  Policy policy = make_policy(Sharding::full, 8);
  policy.forward_prefetch.depth = 0;
  policy.backward_prefetch.depth = 0;
  policy.reshard_after_forward.kind = Reshard::always;
  policy.in_flight_reductions = 0;
  const Planned planned = make(make_model(3), 4, policy);
  const OverlapBytes& overlap = planned.report.overlap;
  EXPECT_EQ(overlap.bytes_while_computing, 0);
  EXPECT_EQ(overlap.bytes_while_nothing_computes, planned.plan.bytes_sent());
  EXPECT_EQ(overlap.most_units_in_flight, 1);
  EXPECT_EQ(overlap.most_units_gathered, 1);
}

TEST(Report, WhatStaysAfterForwardIsGatheredButNotInFlight) {
  constexpr int blocks = 5;
  Policy policy = make_policy(Sharding::full, 8);
  policy.reshard_after_forward.kind = Reshard::never;
  const OverlapBytes overlap = make(make_model(blocks), 4, policy).report.overlap;
  EXPECT_EQ(overlap.most_units_in_flight, 2);
  EXPECT_EQ(overlap.most_units_gathered, blocks + 1);  // the head or the embedding
  EXPECT_EQ(overlap.most_bytes_gathered, blocks * block + head);
}

TEST(Report, OverlapIsThatOfEveryCollectiveAndCopyWithEveryCompute) {
  const std::set<Kind> computing = {Kind::forward,   Kind::recompute,     Kind::backward,
                                    Kind::direction, Kind::orthogonalize, Kind::optimize};
  std::mt19937_64 random(7);
  int both = 0, both_of_copies = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const int ranks = 1 << (1 + random() % 3);
    ModelDescription model =
        tests::make_model(1 + static_cast<int>(random() % 4), random() % 2 == 0, random());
    if (trial % 2 == 0) tests::vary(random, model);
    Policy policy = tests::random_policy(random, model, ranks, 4 * ranks);
    if (trial % 2 == 0) tests::vary(random, model, policy);
    if (trial % 3 == 0) tests::add_grain(random, ranks, policy);
    const Purpose purpose = tests::purposes[random() % 3];
    const Planned planned = make(model, ranks, policy, 0, purpose);
    const StepPlan& plan = planned.plan;
    const OverlapBytes& overlap = planned.report.overlap;
    const Order order(plan);
    const int actions = static_cast<int>(plan.actions.size());
    std::int64_t hidden = 0, exposed = 0, copied_hidden = 0, copied_exposed = 0;
    for (int c = 0; c < actions; ++c) {
      bool overlaps = false;
      for (int a = 0; a < actions; ++a)
        overlaps = overlaps || (computing.count(plan.actions[a].kind) > 0 && a != c &&
                                !order.before(a, c) && !order.before(c, a));
      const Action& action = plan.actions[c];
      (overlaps ? hidden : exposed) += message_bytes(action) * (action.span.ranks - 1);
      if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host)
        (overlaps ? copied_hidden : copied_exposed) += action.elements * action.element_bytes;
    }
    EXPECT_EQ(overlap.bytes_while_computing, hidden) << trial;
    EXPECT_EQ(overlap.bytes_while_nothing_computes, exposed) << trial;
    EXPECT_EQ(overlap.copied_while_computing, copied_hidden) << trial;
    EXPECT_EQ(overlap.copied_while_nothing_computes, copied_exposed) << trial;
    EXPECT_EQ(planned.report.bytes_to_device + planned.report.bytes_to_host,
              copied_hidden + copied_exposed)
        << trial;
    both += hidden > 0 && exposed > 0;
    both_of_copies += copied_hidden > 0 && copied_exposed > 0;
    EXPECT_LE(overlap.most_units_in_flight, overlap.most_units_gathered);
    const GatherLimit& limit = policy.in_flight_gathers;
    if (purpose == Purpose::export_parameters) continue;  // gathers masters, one unit at a time
    if (limit.units > 0) {
      EXPECT_LE(overlap.most_units_in_flight, limit.units) << trial;
    }
    if (limit.bytes > 0) {
      EXPECT_LE(overlap.most_bytes_in_flight, limit.bytes) << trial;
    }
  }
  EXPECT_GT(both, 20);
  EXPECT_GT(both_of_copies, 10);
}

// ---- host memory

Policy offloading_policy(Offload offload, std::int64_t leaves) {
  Policy policy = make_policy(Sharding::full, leaves);
  policy.offload = offload;
  policy.reshard_after_forward.kind = Reshard::always;
  return policy;
}

TEST(Report, OffloadedStateIsOnTheHost) {
  constexpr int blocks = 3, ranks = 4;
  const std::int64_t once = embedding + blocks * block + head, part = once / ranks;
  const auto states = [&](Offload offload) {
    const Report report = make(make_model(blocks), ranks, offloading_policy(offload, ranks)).report;
    return std::pair(report.device.state_bytes, report.host.state_bytes);
  };
  EXPECT_EQ(states(Offload::none), std::pair(4 * part, std::int64_t{0}));
  EXPECT_EQ(states(Offload::optimizer), std::pair(part, 4 * part));
  EXPECT_EQ(states(Offload::parameters), std::pair(3 * part, part));
  EXPECT_EQ(states(Offload::all), std::pair(std::int64_t{0}, 4 * part));
}

TEST(Report, CountsWhatIsCopiedAndWhatTheHostUpdates) {
  constexpr int blocks = 3, ranks = 4, micro_batches = 2;
  const std::int64_t part = (embedding + blocks * block + head) / ranks;
  // The embedding is gathered for forward only, the head once for both.
  const std::int64_t gathered = micro_batches * (part + blocks * block / ranks);
  const auto report = [&](Offload offload) {
    return make(make_model(blocks), ranks, offloading_policy(offload, ranks * micro_batches))
        .report;
  };
  const Report none = report(Offload::none);
  EXPECT_EQ(none.bytes_to_device + none.bytes_to_host + none.bytes_on_host, 0);
  // Each micro-batch's gradients go down, where two are added; masters, gradients and two moments
  // are updated, and the squares of gradients summed.
  const Report optimizer = report(Offload::optimizer);
  EXPECT_EQ(optimizer.bytes_to_device, part);
  EXPECT_EQ(optimizer.bytes_to_host, micro_batches * part);
  EXPECT_EQ(optimizer.bytes_on_host, (2 + 4 + 1) * part);
  // Masters go up for each gather, and up and down for the update.
  const Report parameters = report(Offload::parameters);
  EXPECT_EQ(parameters.bytes_to_device, gathered + part);
  EXPECT_EQ(parameters.bytes_to_host, part);
  EXPECT_EQ(parameters.bytes_on_host, 0);
  const Report all = report(Offload::all);
  EXPECT_EQ(all.bytes_to_device, gathered);
  EXPECT_EQ(all.bytes_to_host, micro_batches * part);
  EXPECT_EQ(all.bytes_on_host, optimizer.bytes_on_host);
}

TEST(Report, ShowsTheHostWhereUnitsHaveSomethingThere) {
  const auto text_of = [](const Policy& policy) {
    const Planned planned = make(make_model(3), 4, policy);
    return report_text(planned.plan, planned.report);
  };
  const std::string none = text_of(offloading_policy(Offload::none, 8));
  for (const char* words : {"host memory of a rank", "between host and device", "copied", "frozen"})
    EXPECT_EQ(none.find(words), std::string::npos) << words << none;
  EXPECT_NE(none.find("arena on the host"), std::string::npos) << none;
  const std::string all = text_of(offloading_policy(Offload::all, 8));
  for (const char* words :
       {"\nhost memory of a rank, most at ", "\nbetween host and device in a step\n",
        "  copied to the device ", "  copied to the host ", "  updated on the host ",
        "  copied while computing ", "  copied while nothing computes ", " copies, "})
    EXPECT_NE(all.find(words), std::string::npos) << words << all;
  EXPECT_EQ(all.find("arena on the host"), std::string::npos) << all;
}

TEST(Report, ShowsTheCopyThatCheckpointsAreWrittenFrom) {
  constexpr int blocks = 2, ranks = 4;
  const std::int64_t saved = 3 * (embedding + blocks * block + head) / ranks;
  for (Offload offload : {Offload::none, Offload::all})
    for (bool saves : {false, true}) {
      Policy policy = make_policy(Sharding::none, 8);
      policy.offload = offload;
      policy.checkpoint_staging = saves;
      const Planned planned = make(make_model(blocks), ranks, policy);
      EXPECT_EQ(planned.report.checkpoint_bytes, saves ? saved : 0);
      const std::string text = report_text(planned.plan, planned.report);
      const std::string words =
          "  copy for checkpoints            27.00 KiB  in host memory, written while training "
          "continues\n";
      ASSERT_EQ(saved, 27 << 10);
      EXPECT_EQ(text.find(words) != std::string::npos, saves) << text;
      std::stringstream stream;
      write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
      const Json json = Json::parse(stream.str());
      int copies = 0;
      for (const Json& buffer : json["buffers"]) {
        if (buffer["name"] != "checkpoint") continue;
        ++copies;
        EXPECT_EQ(buffer["space"], "host");
        EXPECT_EQ(buffer["category"], "other");
        EXPECT_EQ(buffer["bytes"], saved);
        EXPECT_TRUE(buffer["persistent"]);
      }
      EXPECT_EQ(copies, saves ? 1 : 0);
    }
}

TEST(Report, SaysWhereUpdatesBeginEarly) {
  for (const Offload offload :
       {Offload::none, Offload::optimizer, Offload::parameters, Offload::all})
    for (const bool early : {false, true}) {
      Policy policy = offloading_policy(offload, 8);
      policy.early_updates = early;
      const bool expected = early && (offload == Offload::optimizer || offload == Offload::all);
      const Planned planned = make(make_model(3), 4, policy);
      EXPECT_EQ(updates_early(planned.plan), expected);
      const std::string line = std::string("\n  updates                      ") + early_updates;
      EXPECT_EQ(report_text(planned.plan, planned.report).find(line) != std::string::npos,
                expected);
    }
}

TEST(Report, FrozenElementsArePadded) {
  ModelDescription model = make_model(2);
  model.units[1].frozen_elements = 64;
  model.units[1].frozen_count = 60;
  const Planned planned = make(model, 4, make_policy(Sharding::full, 8));
  const std::string text = report_text(planned.plan, planned.report);
  // 64 and 1,472 are padded to 256 and 1,536.
  EXPECT_NE(text.find("  padded                              9,472  256 elements of padding"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  frozen                                 60  of them, never updated\n"),
            std::string::npos)
      << text;
  std::stringstream stream;
  write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
  const Json json = Json::parse(stream.str());
  EXPECT_EQ(json["padded_elements"], 9472);
  EXPECT_EQ(json["frozen_parameters"], 60);
  EXPECT_EQ(json["padded_frozen_elements"], 256);
  EXPECT_EQ(json["units"][1]["padded_elements"], 1792);
  EXPECT_EQ(json["units"][1]["padded_frozen_elements"], 256);
  EXPECT_EQ(json["layouts"]["update"]["space"], "device");
  // Each flat parameter is gathered by itself, and both are told apart.
  int frozen = 0;
  for (const Json& action : json["actions"]) frozen += action["name"] == "gather(block.0, frozen)";
  EXPECT_GT(frozen, 0);
}

TEST(Report, FlopsAndActionsOfEachKind) {
  constexpr int blocks = 2, micro_batches = 3;
  const Planned planned = make(make_model(blocks), 1, make_policy(Sharding::full, micro_batches));
  const auto forward = static_cast<int>(Kind::forward), backward = static_cast<int>(Kind::backward);
  EXPECT_EQ(planned.report.flops[forward], micro_batches * (10.0 + 11.0 + 12.0));
  EXPECT_EQ(planned.report.flops[backward], micro_batches * (100.0 + 101.0 + 102.0 + 103.0));
  EXPECT_EQ(planned.report.actions[forward], micro_batches * 3);
  EXPECT_EQ(planned.report.actions[static_cast<int>(Kind::optimize)], blocks + 2);
  EXPECT_EQ(planned.report.actions[static_cast<int>(Kind::gather)], 0);
}

TEST(Report, BytesAtThePeakAreTheSameByCategoryByUnitAndOverTime) {
  for (Sharding sharding :
       {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::full})
    for (int group : {0, 2}) {
      const Planned planned = make(make_model(3), 4, make_policy(sharding, 12, group));
      const Report& report = planned.report;
      EXPECT_EQ(sum(report.device.peak_by_category), report.device.lower_bound_bytes);
      CategoryBytes by_units{};
      std::int64_t bytes = 0;
      for (const UnitBytes& unit : report.device.peak_by_unit) {
        EXPECT_EQ(sum(unit.by_category), unit.bytes);
        bytes += unit.bytes;
        for (int c = 0; c < categories; ++c) by_units[c] += unit.by_category[c];
      }
      EXPECT_EQ(by_units, report.device.peak_by_category);
      EXPECT_EQ(bytes, report.device.lower_bound_bytes);
      const std::vector<CategoryBytes> live = live_bytes(planned.plan);
      std::vector<std::int64_t> totals;
      for (const CategoryBytes& at_action : live) totals.push_back(sum(at_action));
      EXPECT_EQ(*std::max_element(totals.begin(), totals.end()), report.device.lower_bound_bytes);
      EXPECT_EQ(live[planned.memory.peak_action], report.device.peak_by_category);
      EXPECT_EQ(report.device.peak_by_unit.size(), 6u);
      EXPECT_EQ(report.device.peak_by_unit.back().unit, "-");
      EXPECT_EQ(
          report.device.peak_by_unit.back().by_category[static_cast<int>(Category::parameters)], 0);
    }
}

TEST(Report, HostMemoryIsCountedByItself) {
  const Planned planned = make(make_model(2), 4, make_policy(Sharding::full, 8));
  // A batch, and the step's sums with one number more; never both.
  EXPECT_EQ(planned.report.host.lower_bound_bytes, 1536);
  EXPECT_EQ(planned.report.host.arena_bytes, planned.host_memory.arena_bytes);
  std::int64_t most = 0;
  for (const CategoryBytes& live : live_bytes(planned.plan, Space::host))
    most = std::max(most, sum(live));
  EXPECT_EQ(most, 1536);
}

TEST(Report, UnitsAtThePeakAreThoseInDeviceMemory) {
  Planned planned = make(make_model(2), 4, make_policy(Sharding::full, 8));
  const StepPlan& plan = planned.plan;
  // Of the actions with buffers in host memory, none is at the peak: as if it were.
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    if (plan.actions[a].kind != Kind::load && plan.actions[a].kind != Kind::clip) continue;
    planned.memory.peak_action = static_cast<int>(a);
    const Report report = make_report(plan, planned.memory, planned.host_memory, 0);
    std::int64_t bytes = 0;
    for (const UnitBytes& unit : report.device.peak_by_unit) bytes += unit.bytes;
    EXPECT_EQ(bytes, sum(live_bytes(plan)[a])) << report.device.peak_action;
  }
}

TEST(Report, NamesOfActionsSayWhen) {
  const Planned planned = make(make_model(3), 4, make_policy(Sharding::full, 8));
  const StepPlan& plan = planned.plan;
  std::set<std::string> names;
  int gathers = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const std::string name = describe_at(plan, a);
    const Kind kind = plan.actions[a].kind;
    if (kind == Kind::gather) {
      EXPECT_TRUE(names.insert(name).second) << name;
      ++gathers;
    }
    if (kind == Kind::backward || kind == Kind::clip || kind == Kind::optimize) {
      EXPECT_EQ(name, plan.describe(plan.actions[a]));
    }
    if (kind == Kind::reduce_scatter && a + 1 < static_cast<int>(plan.actions.size())) {
      EXPECT_NE(name.find(") after "), std::string::npos) << name;
      EXPECT_NE(name.find("micro-batch "), std::string::npos) << name;
    }
  }
  EXPECT_EQ(gathers, static_cast<int>(names.size()));
  EXPECT_EQ(names.count("gather(embedding) after begin"), 1u);
  EXPECT_EQ(names.count("gather(block.0) after backward(block.2, micro-batch 1)"), 1u);
}

TEST(Report, StateIsParametersGradientsAndTwoMoments) {
  constexpr int blocks = 2;
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(make(make_model(blocks), 4, make_policy(Sharding::full, 8)).report.device.state_bytes,
            once);
  EXPECT_EQ(make(make_model(blocks), 1, make_policy(Sharding::none, 8)).report.device.state_bytes,
            4 * once);
  EXPECT_EQ(make(make_model(blocks), 4, make_policy(Sharding::full, 8), 0, Purpose::evaluate)
                .report.device.state_bytes,
            0);
}

/// With half of the second unit frozen, or as it is.
Planned plan_with_everything(bool offloads) {
  ModelDescription model = make_model(3);
  Policy policy = keeping_policy(16, 4);
  if (offloads) {
    model.units[1].frozen_elements = 512;
    policy.offload = Offload::all;
    policy.offload_activations = true;
    policy.checkpoint_staging = true;
  }
  return make(model, 8, policy, 4);
}

void expect_json_is_the_whole_plan(const Planned& planned) {
  const StepPlan& plan = planned.plan;
  const Report& report = planned.report;
  std::stringstream stream;
  write_report_json(stream, plan, planned.memory, planned.host_memory, report);
  const Json json = Json::parse(stream.str());
  EXPECT_EQ(json["format"], 3);
  EXPECT_EQ(json["purpose"], "train");
  EXPECT_EQ(json["memory"]["arena_bytes"], planned.memory.arena_bytes);
  EXPECT_EQ(json["memory"]["peak_action_name"], report.device.peak_action);
  for (const char* space : {"memory", "host_memory"}) {
    std::int64_t gradients = 0;
    for (const char* what : {"in_flight", "partial_sums", "sums"})
      gradients += json[space]["peak_gradients"].at(what).get<std::int64_t>();
    EXPECT_EQ(gradients, json[space]["peak_by_category"]["gradients"]);
  }
  EXPECT_EQ(json["host_memory"]["arena_bytes"], planned.host_memory.arena_bytes);
  EXPECT_EQ(json["host_memory"]["lower_bound_bytes"], planned.host_memory.peak_live_bytes);
  EXPECT_EQ(json["traffic"]["bytes_across_nodes"], tests::bytes_sent(plan, Axis::replicate));
  EXPECT_EQ(json["overlap"]["bytes_sent_while_computing"].get<std::int64_t>() +
                json["overlap"]["bytes_sent_while_nothing_computes"].get<std::int64_t>(),
            plan.bytes_sent());
  EXPECT_EQ(json["overlap"]["most_units_in_flight"], report.overlap.most_units_in_flight);
  ASSERT_EQ(json["units"].size(), plan.units.size());
  EXPECT_EQ(json["units"][1]["padded_elements"], plan.padded(plan.units[1].flats));
  const Json& update = json["layouts"]["update"];
  EXPECT_EQ(update["space"], name(plan.layouts.update.space));
  ASSERT_EQ(update["divided_over"].size(),
            static_cast<std::size_t>(plan.layouts.update.divided.size()));
  ASSERT_EQ(json["buffers"].size(), plan.buffers.size());
  ASSERT_EQ(json["actions"].size(), plan.actions.size());

  // From the lists alone: the arenas, the lower bounds, traffic, flops, lifetimes.
  std::map<std::string, std::int64_t> arena, persistent;
  std::map<std::string, std::vector<std::int64_t>> live;
  for (const Json& buffer : json["buffers"]) {
    const std::string space = buffer["space"];
    const std::int64_t bytes = (buffer["bytes"].get<std::int64_t>() + buffer_alignment - 1) /
                               buffer_alignment * buffer_alignment;
    arena[space] = std::max(arena[space], buffer["offset"].get<std::int64_t>() + bytes);
    EXPECT_GE(buffer["offset"], 0);
    const bool lasts = buffer["persistent"];
    if (lasts) persistent[space] += bytes;
    live[space].resize(plan.actions.size());
    const std::size_t first = lasts ? 0 : buffer["first_action"].get<std::size_t>();
    const std::size_t last =
        lasts ? plan.actions.size() - 1 : buffer["last_action"].get<std::size_t>();
    for (std::size_t a = first; a <= last; ++a) live[space][a] += bytes;
  }
  EXPECT_EQ(arena.size(), 2u);
  EXPECT_EQ(arena["device"], planned.memory.arena_bytes);
  EXPECT_EQ(arena["host"], planned.host_memory.arena_bytes);
  EXPECT_EQ(persistent["device"], planned.memory.persistent_bytes);
  EXPECT_EQ(persistent["host"], planned.host_memory.persistent_bytes);
  EXPECT_EQ(json["host_memory"]["persistent_bytes"], planned.host_memory.persistent_bytes);
  std::int64_t on_host = 0;
  for (const Json& bytes : json["host_memory"]["peak_by_category"])
    on_host += bytes.get<std::int64_t>();
  EXPECT_EQ(on_host, planned.host_memory.peak_live_bytes);
  for (const MemoryPlan* memory : {&planned.memory, &planned.host_memory}) {
    const auto& bytes = live[name(memory->space)];
    EXPECT_EQ(*std::max_element(bytes.begin(), bytes.end()), memory->peak_live_bytes);
  }

  double flops = 0.0;
  std::map<std::string, std::int64_t> sent, messages, largest, copied;
  std::size_t waits = 0;
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Json& action = json["actions"][a];
    EXPECT_EQ(action["name"], plan.describe(plan.actions[a]));
    EXPECT_EQ(action["stream"], name(plan.actions[a].stream));
    EXPECT_EQ(action["waits"].get<std::vector<int>>(), plan.actions[a].waits);
    waits += action["waits"].size();
    flops += action["flops"].get<double>();
    copied[action["kind"]] += action["copied_bytes"].get<std::int64_t>();
    const std::int64_t message = action["message_bytes"];
    EXPECT_EQ(action["group"].is_null(), message == 0 && action["kind"] != "keep");
    EXPECT_EQ(action["group_ranks"].is_null(), action["group"].is_null());
    if (action["kind"] == "keep") {
      EXPECT_EQ(action["group"], "kept");
    }
    if (message > 0) {
      const std::string group =
          action["group"].get<std::string>() + (action["group"] == "kept" ? "_groups" : "_group");
      const std::int64_t ranks = action["group_ranks"];
      EXPECT_EQ(action["array_bytes"], ranks * message);
      sent[group] += (ranks - 1) * message;
      messages[group] += ranks - 1;
      largest[group] = std::max(largest[group], message);
    }
    for (const Json& use : action["uses"]) {
      const Json& buffer = json["buffers"][use["buffer"].get<std::size_t>()];
      EXPECT_LE(buffer["first_action"], a);
      EXPECT_GE(buffer["last_action"], a);
      EXPECT_NE(use["role"], "?");
      EXPECT_EQ(std::set<std::string>({"read", "write", "read_write"}).count(use["access"]), 1u);
    }
  }
  EXPECT_EQ(flops, plan.flops());
  EXPECT_GT(waits, 0u);
  EXPECT_EQ(json.at("bytes_on_host"), bytes_on_host(plan));
  EXPECT_EQ(json["copies"]["bytes_to_device"], copied["copy_to_device"]);
  EXPECT_EQ(json["copies"]["bytes_to_host"], copied["copy_to_host"]);
  EXPECT_EQ(json["overlap"]["bytes_copied_while_computing"].get<std::int64_t>() +
                json["overlap"]["bytes_copied_while_nothing_computes"].get<std::int64_t>(),
            copied["copy_to_device"] + copied["copy_to_host"]);
  EXPECT_EQ(sent.size(), 3u);
  for (const auto& [group, bytes] : sent) {
    EXPECT_EQ(json["traffic"][group]["bytes_sent"], bytes) << group;
    EXPECT_EQ(json["traffic"][group]["messages"], messages[group]) << group;
    EXPECT_EQ(json["traffic"][group]["largest_message_bytes"], largest[group]) << group;
  }
}

TEST(Report, JsonIsTheWholePlan) {
  for (bool offloads : {false, true}) expect_json_is_the_whole_plan(plan_with_everything(offloads));
}

bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

TEST(Report, PaddingIsShown) {
  ModelDescription model = make_model(2);
  model.units[0].parameter_elements = 1000;
  model.units[1].parameter_elements = 513;
  const Planned planned = make(model, 8, make_policy(Sharding::full, 8));
  const std::int64_t true_elements = 1000 + 513 + 512 * (3 + 5);
  const std::int64_t padded = 1024 + 1024 + 512 * (3 + 5);
  const std::string text = report_text(planned.plan, planned.report);
  EXPECT_TRUE(has(text, "  parameters                          5,609  in 4 units\n")) << text;
  EXPECT_TRUE(has(text,
                  "  padded                              6,144  535 elements of padding, "
                  "9.54 %\n"))
      << text;
  std::stringstream stream;
  write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
  const Json json = Json::parse(stream.str());
  EXPECT_EQ(json["parameter_elements"], true_elements);
  EXPECT_EQ(json["padded_elements"], padded);
  EXPECT_EQ(json["units"][1]["parameter_elements"], 513);
  EXPECT_EQ(json["units"][1]["padded_elements"], 1024);
}

TEST(Report, SaysWhetherTheBitsAreThoseOfOneRank) {
  for (int ranks : {2, 3, 4, 6}) {
    // Micro-batches, then ranks: 3 ranks come last, 6 after 3 micro-batches.
    const Planned planned =
        make(make_model(1), ranks, make_policy(Sharding::none, ranks == 6 ? 18 : 2 * ranks));
    const bool same = ranks != 6;
    EXPECT_EQ(planned.plan.has_the_bits_of_one_rank(), same);
    const std::string text = report_text(planned.plan, planned.report);
    EXPECT_EQ(has(text, "  sums over leaves             bit for bit those of one rank\n"), same);
    EXPECT_EQ(has(text, "  sums over leaves             those of one rank but for rounding\n"),
              !same);
    std::stringstream stream;
    write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
    EXPECT_EQ(Json::parse(stream.str())["has_the_bits_of_one_rank"], same);
  }
}

TEST(Report, SaysInWhichOrderAGrainSums) {
  Policy policy = make_policy(Sharding::full, 64);
  policy.sum_grain = 4;
  const auto text_of = [&] {
    const Planned planned = make(make_model(1), 8, policy);
    return report_text(planned.plan, planned.report);
  };
  const std::string order =
      "  order of sums                trees over 4 leaves, accumulated in "
      "order\n";
  EXPECT_TRUE(
      has(text_of(), "  sums over leaves             bit for bit those of one rank\n" + order))
      << text_of();
  policy.accumulation = Accumulation::reduce_last;
  const std::string why =
      "  sums over leaves             those of one rank but for rounding\n"
      "                               training.sum_grain = 4: ranks of a shard "
      "group add sums of 8 leaves each by a tree, not in order; "
      "parallel.accumulation = shard_each sums as one rank does\n";
  EXPECT_TRUE(has(text_of(), why + order)) << text_of();
  policy.shard_group = 4;
  policy.accumulation = Accumulation::shard_each;
  EXPECT_TRUE(has(text_of(),
                  "training.sum_grain = 4: replicas add sums of 32 leaves each by a "
                  "tree, not in order; parallel.accumulation = reduce_each "
                  "sums as one rank does\n"))
      << text_of();
  policy.sum_grain = 64;
  EXPECT_FALSE(has(text_of(), "order of sums")) << text_of();
}

TEST(Report, ShowsTheStrategyThatTheCallerNames) {
  Planned planned = make(make_model(2), 2, make_policy(Sharding::none, 4));
  EXPECT_FALSE(has(report_text(planned.plan, planned.report), "strategy\n"));
  const std::string rules(400, 'x');
  planned.report.strategy = {{"sharding", "none"}, {"units", rules}, {"reshard", ""}};
  std::string text = report_text(planned.plan, planned.report);
  EXPECT_TRUE(has(text, "strategy\n  sharding                     none\n")) << text;
  EXPECT_TRUE(has(text, "  units                        " + rules + "\n")) << text;
  EXPECT_TRUE(has(text, "  reshard                      none\n")) << text;
  EXPECT_FALSE(has(text, "no effect")) << text;
  planned.report.strategy[1].has_effect = planned.report.strategy[2].has_effect = false;
  text = report_text(planned.plan, planned.report);
  EXPECT_TRUE(has(text, "  no effect with this sharding units, reshard\n")) << text;
  std::stringstream stream;
  write_report_json(stream, planned.plan, planned.memory, planned.host_memory, planned.report);
  const Json json = Json::parse(stream.str());
  EXPECT_EQ(json["strategy"]["sharding"], "none");
  EXPECT_EQ(json["strategy"]["units"], rules);
  EXPECT_EQ(json["strategy"]["reshard"], "");
  EXPECT_EQ(json["without_effect"], Json({"units", "reshard"}));
}

TEST(Report, FlopsAreInTheUnitThatKeepsThemShort) {
  EXPECT_EQ(format_flops(0.0), "0 GFLOP");
  EXPECT_EQ(format_flops(1.25e7), "0.0125 GFLOP");
  EXPECT_EQ(format_flops(9.9999e13), "99999 GFLOP");
  EXPECT_EQ(format_flops(1e14), "100 TFLOP");
  EXPECT_EQ(format_flops(3.44353e15), "3443.53 TFLOP");
  EXPECT_EQ(format_flops(2.5e17), "250 PFLOP");
  EXPECT_EQ(format_flops(1e20), "100 EFLOP");
  EXPECT_EQ(format_flops(1e40), "1e+19 ZFLOP");
  ModelDescription model = make_model(1);
  for (UnitDescription& unit : model.units) unit.forward.front().flops = 0.0;
  model.units[1].forward.front().flops = 6e13;
  model.units[1].backward.front().flops = 1.2e14;
  const Planned planned = make(model, 1, make_policy(Sharding::full, 1));
  const std::string text = report_text(planned.plan, planned.report);
  EXPECT_TRUE(has(text, "        number        TFLOP\n")) << text;
  EXPECT_TRUE(has(text, "  forward                                 2           60\n")) << text;
  EXPECT_TRUE(has(text, "          180\n")) << text;
  EXPECT_FALSE(has(text, "GFLOP")) << text;
}

TEST(Report, TextNamesThePeakAndFoldsEqualUnits) {
  const Planned planned = make(make_model(12), 2, make_policy(Sharding::full, 4));
  const std::string text = report_text(planned.plan, planned.report);
  EXPECT_NE(text.find("most at " + planned.report.device.peak_action), std::string::npos) << text;
  EXPECT_NE(text.find("block.0 ... block.10, each of 11"), std::string::npos) << text;
  const GradientBytes& gradients = planned.report.device.peak_gradients;
  EXPECT_GT(gradients.in_flight, 0);
  EXPECT_NE(text.find("\n    of units in flight"), std::string::npos) << text;
  EXPECT_EQ(text.find("\n    partial sums") != std::string::npos, gradients.partial_sums > 0)
      << text;
  EXPECT_EQ(text.find("\n    sums") != std::string::npos, gradients.sums > 0) << text;
  EXPECT_NE(text.find("inside a node"), std::string::npos) << text;
}

TEST(Report, StateOfLlama3With8And128Ranks) {
  model::DecoderSettings settings;
  settings.layers = 32;
  settings.width = 4096;
  settings.heads = 32;
  settings.kv_heads = 8;
  settings.ffn_width = 14336;
  settings.vocabulary = 128256;
  settings.tie_embeddings = false;
  const model::Decoder<float> decoder(settings, {1, 8192});
  ASSERT_EQ(decoder.parameter_count(), 8030261248);
  const auto state = [&](int ranks) {
    return static_cast<double>(make(decoder.description(), ranks, make_policy(Sharding::full, 512))
                                   .report.device.state_bytes);
  };
  const double gib = std::ldexp(1.0, 30);
  EXPECT_NEAR((state(8) - state(128)) / gib, 8030261248.0 * 16.0 * (1.0 / 8 - 1.0 / 128) / gib,
              0.001);
  EXPECT_NEAR((state(8) - state(128)) / gib, 14.0, 0.05);
}

// ---- the picture

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t times = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++times;
  return times;
}

TEST(Picture, ShowsEveryActionOfAShortPlan) {
  ModelDescription model = make_model(2);
  model.units[1].name = "a<b & \"c\"";
  const Planned planned = make(model, 2, make_policy(Sharding::full, 4));
  const std::string svg = picture_svg(planned.plan, planned.memory, "small & short");
  std::size_t waits = 0;
  for (const Action& action : planned.plan.actions) waits += action.waits.size();
  EXPECT_GT(waits, 0u);
  EXPECT_EQ(count(svg, "class=\"wait\""), waits);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(count(svg, "<g>"), planned.plan.actions.size());
  EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "left out"), 0u);
  EXPECT_NE(svg.find("small &amp; short"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.device.peak_action), std::string::npos);
}

TEST(Picture, HasALaneForEachStreamInWhichSomethingHappens) {
  const auto lanes = [](int ranks, Offload offload) {
    const Planned planned = make(make_model(2), ranks, offloading_policy(offload, 2 * ranks));
    const std::string svg = picture_svg(planned.plan, planned.memory, "lanes");
    std::vector<std::string> shown;
    for (int stream = 0; stream < streams; ++stream) {
      const std::string lane = name(static_cast<Stream>(stream));
      if (count(svg, ">" + lane + "</text>\n<rect class=\"lane\"") == 1) shown.push_back(lane);
    }
    EXPECT_EQ(count(svg, "class=\"lane\""), shown.size());
    return shown;
  };
  using Lanes = std::vector<std::string>;
  EXPECT_EQ(lanes(1, Offload::none), Lanes({"compute"}));
  EXPECT_EQ(lanes(2, Offload::none), Lanes({"compute", "gather", "reduce"}));
  EXPECT_EQ(lanes(1, Offload::parameters), Lanes({"compute", "upload", "download"}));
  EXPECT_EQ(lanes(2, Offload::all),
            Lanes({"compute", "gather", "reduce", "upload", "download", "host"}));
}

TEST(Picture, LeavesTheMiddleOfALongPlanOut) {
  const Planned planned = make(make_model(20), 2, make_policy(Sharding::full, 200));
  ASSERT_GT(planned.plan.actions.size(), 10000u);
  const std::string svg = picture_svg(planned.plan, planned.memory, "long");
  EXPECT_GT(count(svg, "left out"), 0u);
  EXPECT_LE(count(svg, "<g>"), static_cast<std::size_t>(most_drawn_actions));
  EXPECT_EQ(count(svg, "class=\"wait\""), 0u);
  EXPECT_NE(svg.find("(embedding, micro-batch 0)"), std::string::npos);
  EXPECT_NE(svg.find("(embedding, micro-batch 99)"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.device.peak_action), std::string::npos);
  EXPECT_LT(svg.size(), 2000000u);
}

TEST(Picture, NeverDrawsMoreThanItsMost) {
  std::size_t most = 0;
  for (int blocks : {30, 60, 100, 120, 140, 170, 230, 300, 500, 900})
    for (int leaves : {1, 3, 6, 8}) {
      const Planned planned = make(make_model(blocks), 2, make_policy(Sharding::full, 2 * leaves));
      const std::string svg = picture_svg(planned.plan, planned.memory, "long");
      const std::size_t drawn = count(svg, "<g>");
      EXPECT_LE(drawn, static_cast<std::size_t>(most_drawn_actions)) << blocks << ' ' << leaves;
      EXPECT_NE(svg.find("<circle class=\"back strong\""), std::string::npos)
          << "the peak with " << blocks << ' ' << leaves;
      most = std::max(most, drawn);
    }
  EXPECT_GT(most, static_cast<std::size_t>(most_drawn_actions) / 2);
}

TEST(Picture, ReplacesWhatIsNoCharacter) {
  const Planned planned = make(make_model(1), 1, make_policy(Sharding::full, 1));
  const auto title = [&](const std::string& text) {
    const std::string svg = picture_svg(planned.plan, planned.memory, text);
    const std::size_t begin = svg.find("class=\"title ink\"");
    const std::size_t end = svg.find("</text>", begin);
    return svg.substr(svg.find('>', begin) + 1, end - svg.find('>', begin) - 1);
  };
  const std::string no = "\xef\xbf\xbd";
  for (const char* good : {"deck", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x8f\xba", "\xef\xbf\xbd"})
    EXPECT_EQ(title(good), good);
  EXPECT_EQ(title("<a>&\"b\""), "&lt;a&gt;&amp;&quot;b&quot;");
  for (const char* bad : {"\x01", "\n", "\x1f", "\x7f", "\x80", "\xff", "\xc3"})
    EXPECT_EQ(title("a" + std::string(bad) + "b"), "a" + no + "b");
  EXPECT_EQ(title(std::string("a\0b", 3)), "a" + no + "b");
  EXPECT_EQ(title("a\xe2\x82"), "a" + no + no);             // cut off
  EXPECT_EQ(title("\xc0\xaf"), no + no);                    // a longer form of '/'
  EXPECT_EQ(title("\xc2\x85"), no + no);                    // a control character
  EXPECT_EQ(title("\xed\xa0\x80"), no + no + no);           // half of a pair of UTF-16
  EXPECT_EQ(title("\xef\xbf\xbf"), no + no + no);           // never a character
  EXPECT_EQ(title("\xf4\x90\x80\x80"), no + no + no + no);  // above the last one
}

TEST(Picture, DrawsPlansOfAllPurposes) {
  for (Purpose purpose :
       {Purpose::train, Purpose::evaluate, Purpose::export_parameters, Purpose::decode}) {
    const Planned planned = make(make_model(1), 1, make_policy(Sharding::full, 1), 0, purpose);
    EXPECT_EQ(count(picture_svg(planned.plan, planned.memory, "plan"), "<g>"),
              planned.plan.actions.size());
    EXPECT_FALSE(report_text(planned.plan, planned.report).empty());
  }
}

}  // namespace
