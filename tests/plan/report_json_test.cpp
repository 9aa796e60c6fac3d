// SPDX-License-Identifier: Apache-2.0

// A plan as JSON: its figures follow from what it says of every buffer and action.

#include <map>
#include <set>

#include "plan/report_fixture.hpp"
#include "plan/traffic.hpp"

namespace ostrakon::tests::reports {
namespace {

using Json = nlohmann::json;

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
  const Json json = planned.json();
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
  EXPECT_EQ(json["traffic"]["bytes_across_nodes"], bytes_sent(plan, Axis::replicate));
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

}  // namespace
}  // namespace ostrakon::tests::reports
