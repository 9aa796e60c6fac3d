// SPDX-License-Identifier: Apache-2.0

// What a report says that a step sends, copies and computes, and what of that overlaps, against
// closed forms.

#include <array>
#include <cstdio>

#include "plan/report_fixture.hpp"
#include "plan/traffic.hpp"

namespace ostrakon::tests::reports {
namespace {

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
  // One of three partners is on the same node.
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

/// Returns the bytes that each rank sends to other nodes, counted message by message.
std::vector<std::array<std::int64_t, groups>> count_across(const StepPlan& plan, int node) {
  const int ranks = plan.grid.ranks();
  std::vector<std::array<std::int64_t, groups>> across(ranks);
  for (const Action& action : plan.actions) {
    const Group group = is_of_kept(plan, action)              ? Group::kept
                        : action.span.axis == Axis::replicate ? Group::replicate
                                                              : Group::shard;
    for (int a = 0; a < ranks; ++a)
      for (int b : ranks_of_group(plan, action.span, a))
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

TEST(Report, CountsWhatIsCopiedAndWhatTheHostUpdates) {
  constexpr int blocks = 3, ranks = 4, micro_batches = 2;
  const std::int64_t part = (embedding + blocks * block + head) / ranks;
  // The embedding is gathered for forward only, the head once for both.
  const std::int64_t gathered = micro_batches * (part + blocks * block / ranks);
  const ModelDescription model = make_model(blocks);
  // Batches go up in any case, and the step's sums come down.
  const std::int64_t batches = micro_batches * model.batch_bytes, sums = model.sums_bytes;
  const auto report = [&](Offload offload) {
    Report made = make(model, ranks, offloading_policy(offload, ranks * micro_batches)).report;
    made.bytes_to_device -= batches;
    made.bytes_to_host -= sums;
    return made;
  };
  const Report none = report(Offload::none);
  EXPECT_EQ(none.bytes_to_device, 0);
  EXPECT_EQ(none.bytes_to_host, 0);
  EXPECT_EQ(none.bytes_on_host, 0);
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
  const std::string text = planned.text();
  EXPECT_HAS(text, "sent while nothing computes");
  // The embedding is gathered once, the head too, the blocks twice; all are reduced.
  const double once = embedding + 6 * block + head;
  const double percent = 100.0 - 100.0 * 2 * embedding / (2 * (2 * once + 5 * block));
  char shown[64];
  std::snprintf(shown, sizeof shown, " collectives, %.1f %% of the bytes: ", percent);
  EXPECT_HAS(text, shown);
  EXPECT_NEAR(planned.json()["overlap"]["percent_of_bytes_while_computing"], percent, 1e-9);
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

}  // namespace
}  // namespace ostrakon::tests::reports
