// SPDX-License-Identifier: Apache-2.0

// What a report says of communication and copies that overlap with computing.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostrakon/plan/proof/order.hpp>
#include <ostrakon/plan/report/report_json.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "random_plans.hpp"
#include "report_fixture.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests::reports;
using Json = nlohmann::json;

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

}  // namespace
