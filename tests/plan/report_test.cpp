// SPDX-License-Identifier: Apache-2.0

// The figures of a plan against closed forms, and against what its JSON says of every buffer.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/plan/picture.hpp>
#include <ostrakon/plan/report.hpp>
#include <set>

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
    unit.forward_workspace_bytes = 1024;
    unit.backward_workspace_bytes = u == 0 ? 0 : 3072;
    unit.forward_flops = 10.0 + u;
    unit.backward_flops = 100.0 + u;
    unit.backward_reads_parameters = u != 0;
    model.units.push_back(unit);
  }
  return model;
}

struct Planned {
  StepPlan plan;
  MemoryPlan memory;
  Report report;
};

Planned make(const ModelDescription& model, int ranks, const Policy& policy, int ranks_per_node = 0,
             Purpose purpose = Purpose::train) {
  Planned planned;
  planned.plan = build_step_plan(model, ranks, policy, purpose);
  planned.memory = plan_memory(planned.plan);
  planned.report = make_report(planned.plan, planned.memory, ranks_per_node);
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
  const Planned planned =
      make(make_model(blocks), ranks, make_policy(Sharding::full, ranks * micro_batches), 2);
  const Traffic& traffic = planned.report.shard;
  // The embedding is gathered for forward only, the head once for both.
  const std::int64_t once = embedding + blocks * block + head;
  const std::int64_t gathered = once + blocks * block;
  EXPECT_EQ(traffic.bytes_sent, micro_batches * (gathered + once) / ranks * (ranks - 1));
  EXPECT_EQ(traffic.messages, micro_batches * (2 * (blocks + 1) + blocks + 2));
  EXPECT_EQ(traffic.smallest, block);
  EXPECT_EQ(traffic.median, block);
  EXPECT_EQ(traffic.largest, embedding);
  EXPECT_TRUE(traffic.spans_nodes);
  EXPECT_EQ(planned.report.replicate.messages, 0);
  EXPECT_EQ(planned.report.bytes_inside_nodes, 0);
  EXPECT_EQ(planned.report.bytes_across_nodes, traffic.bytes_sent);
  EXPECT_EQ(planned.report.nodes, 2);
}

TEST(Report, TrafficOfHybridsStaysInsideNodesButForTheReplicas) {
  constexpr int blocks = 2, ranks = 8, group = 4, micro_batches = 2;
  const Planned planned = make(make_model(blocks), ranks,
                               make_policy(Sharding::full, ranks * micro_batches, group), group);
  const Report& report = planned.report;
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(report.bytes_inside_nodes,
            micro_batches * (2 * once + blocks * block) / group * (group - 1));
  // An all-reduce of a rank's part over 2 replicas: 2 M (n - 1) / n.
  EXPECT_EQ(report.bytes_across_nodes, 2 * (once / group) / 2);
  EXPECT_EQ(report.replicate.messages, 2 * (blocks + 2));
  EXPECT_EQ(report.replicate.largest, embedding / group);
  EXPECT_EQ(report.bytes_inside_nodes + report.bytes_across_nodes, planned.plan.bytes_sent());
}

TEST(Report, ReplicationMovesTwiceTheModelInAStep) {
  constexpr int blocks = 2, ranks = 4;
  const Planned planned = make(make_model(blocks), ranks, make_policy(Sharding::none, 2 * ranks));
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(planned.report.shard.bytes_sent, 2 * once / ranks * (ranks - 1));
  EXPECT_EQ(planned.report.bytes_across_nodes, 0);
  EXPECT_EQ(planned.report.nodes, 1);
}

TEST(Report, GroupsSpanNodesWhereAnyOfTheirRanksAreApart) {
  for (int ranks : {1, 2, 4, 6, 8, 12})
    for (int group = 1; group <= ranks; ++group)
      for (int node = 1; node <= 2 * ranks; ++node) {
        if (ranks % group != 0) continue;
        bool shards = false, replicas = false;
        for (int a = 0; a < ranks; ++a)
          for (int b = 0; b < ranks; ++b) {
            if (a / node == b / node) continue;
            shards = shards || a / group == b / group;
            replicas = replicas || a % group == b % group;
          }
        const Report report =
            make(make_model(1), ranks, make_policy(Sharding::full, ranks, group), node).report;
        const std::string what = std::to_string(ranks) + " ranks, groups of " +
                                 std::to_string(group) + ", nodes of " + std::to_string(node);
        EXPECT_EQ(report.shard.spans_nodes, shards) << what;
        EXPECT_EQ(report.replicate.spans_nodes, replicas) << what;
      }
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
      EXPECT_EQ(sum(report.peak_by_category), report.lower_bound_bytes);
      CategoryBytes by_units{};
      std::int64_t bytes = 0;
      for (const UnitBytes& unit : report.peak_by_unit) {
        EXPECT_EQ(sum(unit.by_category), unit.bytes);
        bytes += unit.bytes;
        for (int c = 0; c < categories; ++c) by_units[c] += unit.by_category[c];
      }
      EXPECT_EQ(by_units, report.peak_by_category);
      EXPECT_EQ(bytes, report.lower_bound_bytes);
      const std::vector<CategoryBytes> live = live_bytes(planned.plan);
      std::vector<std::int64_t> totals;
      for (const CategoryBytes& at_action : live) totals.push_back(sum(at_action));
      EXPECT_EQ(*std::max_element(totals.begin(), totals.end()), report.lower_bound_bytes);
      EXPECT_EQ(live[planned.memory.peak_action], report.peak_by_category);
      EXPECT_EQ(report.peak_by_unit.size(), 6u);
      EXPECT_EQ(report.peak_by_unit.back().unit, "-");
      EXPECT_EQ(report.peak_by_unit.back().by_category[static_cast<int>(Category::parameters)], 0);
    }
}

TEST(Report, StateIsParametersGradientsAndTwoMoments) {
  constexpr int blocks = 2;
  const std::int64_t once = embedding + blocks * block + head;
  EXPECT_EQ(make(make_model(blocks), 4, make_policy(Sharding::full, 8)).report.state_bytes, once);
  EXPECT_EQ(make(make_model(blocks), 1, make_policy(Sharding::none, 8)).report.state_bytes,
            4 * once);
  EXPECT_EQ(make(make_model(blocks), 4, make_policy(Sharding::full, 8), 0, Purpose::evaluate)
                .report.state_bytes,
            0);
}

TEST(Report, JsonIsTheWholePlan) {
  const Planned planned = make(make_model(3), 4, make_policy(Sharding::full, 8, 2), 2);
  const StepPlan& plan = planned.plan;
  std::stringstream stream;
  write_report_json(stream, plan, planned.memory, planned.report);
  const Json json = Json::parse(stream.str());
  EXPECT_EQ(json["purpose"], "train");
  EXPECT_EQ(json["memory"]["arena_bytes"], planned.memory.arena_bytes);
  EXPECT_EQ(json["traffic"]["bytes_across_nodes"], plan.bytes_sent(Group::replicate));
  ASSERT_EQ(json["buffers"].size(), plan.buffers.size());
  ASSERT_EQ(json["actions"].size(), plan.actions.size());

  // From the lists alone: the arena, the lower bound, bytes sent, flops, lifetimes.
  std::int64_t arena = 0, persistent = 0;
  std::vector<std::int64_t> live(plan.actions.size(), 0);
  for (const Json& buffer : json["buffers"]) {
    const std::int64_t bytes = (buffer["bytes"].get<std::int64_t>() + buffer_alignment - 1) /
                               buffer_alignment * buffer_alignment;
    arena = std::max(arena, buffer["offset"].get<std::int64_t>() + bytes);
    const bool lasts = buffer["persistent"];
    if (lasts) persistent += bytes;
    const std::size_t first = lasts ? 0 : buffer["first_action"].get<std::size_t>();
    const std::size_t last = lasts ? live.size() - 1 : buffer["last_action"].get<std::size_t>();
    for (std::size_t a = first; a <= last; ++a) live[a] += bytes;
  }
  EXPECT_EQ(arena, planned.memory.arena_bytes);
  EXPECT_EQ(persistent, planned.memory.persistent_bytes);
  EXPECT_EQ(*std::max_element(live.begin(), live.end()), planned.memory.peak_live_bytes);

  double flops = 0.0;
  std::int64_t sent = 0;
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Json& action = json["actions"][a];
    EXPECT_EQ(action["name"], plan.describe(plan.actions[a]));
    EXPECT_EQ(action["stream"], name(plan.actions[a].stream));
    flops += action["flops"].get<double>();
    // Shard groups and replicate groups both have two ranks.
    sent += action["message_bytes"].get<std::int64_t>() / 2;
    EXPECT_EQ(action["group"].is_null(), action["message_bytes"] == 0);
    for (const Json& use : action["uses"]) {
      const Json& buffer = json["buffers"][use["buffer"].get<std::size_t>()];
      EXPECT_LE(buffer["first_action"], a);
      EXPECT_GE(buffer["last_action"], a);
      EXPECT_EQ(std::set<std::string>({"read", "write", "read_write"}).count(use["access"]), 1u);
    }
  }
  EXPECT_EQ(flops, plan.flops());
  EXPECT_EQ(sent, plan.bytes_sent());
}

TEST(Report, TextNamesThePeakAndFoldsEqualUnits) {
  const Planned planned = make(make_model(12), 2, make_policy(Sharding::full, 4));
  const std::string text = report_text(planned.plan, planned.report);
  EXPECT_NE(text.find("most at " + planned.report.peak_action), std::string::npos) << text;
  EXPECT_NE(text.find("block.0 ... block.11, each of 12"), std::string::npos) << text;
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
    return static_cast<double>(
        make(decoder.description(), ranks, make_policy(Sharding::full, 512)).report.state_bytes);
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
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(count(svg, "<g>"), planned.plan.actions.size());
  EXPECT_EQ(count(svg, "<g>"), count(svg, "</g>"));
  EXPECT_EQ(count(svg, "<text"), count(svg, "</text>"));
  EXPECT_EQ(count(svg, "left out"), 0u);
  EXPECT_NE(svg.find("small &amp; short"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_EQ(svg.find("a<b"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.peak_action), std::string::npos);
}

TEST(Picture, LeavesTheMiddleOfALongPlanOut) {
  const Planned planned = make(make_model(20), 2, make_policy(Sharding::full, 200));
  ASSERT_GT(planned.plan.actions.size(), 10000u);
  const std::string svg = picture_svg(planned.plan, planned.memory, "long");
  EXPECT_GT(count(svg, "left out"), 0u);
  EXPECT_LE(count(svg, "<g>"), 3000u);
  EXPECT_NE(svg.find("(embedding, micro-batch 0)"), std::string::npos);
  EXPECT_NE(svg.find("(embedding, micro-batch 99)"), std::string::npos);
  EXPECT_NE(svg.find("at " + planned.report.peak_action), std::string::npos);
  EXPECT_LT(svg.size(), 2000000u);
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
