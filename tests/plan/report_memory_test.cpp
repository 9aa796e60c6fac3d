// SPDX-License-Identifier: Apache-2.0

// What a report says of memory: of the device and the host, at the peak and over time.

#include <cmath>
#include <ostrakon/model/decoder.hpp>
#include <utility>

#include "plan/report_fixture.hpp"

namespace ostrakon::tests::reports {
namespace {

using Json = nlohmann::json;

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
  const auto model = make_model(blocks);
  EXPECT_EQ(make(model, 1, make_policy(Sharding::none, 8)).report.device.state_bytes, 4 * once);
  const Planned evaluation = make(model, 4, make_policy(Sharding::full, 8), 0, Purpose::evaluate);
  EXPECT_EQ(evaluation.report.device.state_bytes, 0);
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
      const std::string text = planned.text();
      const std::string words =
          "  copy for checkpoints            27.00 KiB  in host memory, written while training "
          "continues\n";
      ASSERT_EQ(saved, 27 << 10);
      EXPECT_EQ(text.find(words) != std::string::npos, saves);
      const Json json = planned.json();
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
  // The step's sums, as copied from the device and with one number more; without a batch, which is
  // less.
  constexpr std::int64_t both_sums = 2816;
  EXPECT_EQ(planned.report.host.lower_bound_bytes, both_sums);
  EXPECT_EQ(planned.report.host.arena_bytes, planned.host_memory.arena_bytes);
  std::int64_t most = 0;
  for (const CategoryBytes& live : live_bytes(planned.plan, Space::host))
    most = std::max(most, sum(live));
  EXPECT_EQ(most, both_sums);
}

TEST(Report, UnitsAtThePeakAreThoseInDeviceMemory) {
  Planned planned = make(make_model(2), 4, make_policy(Sharding::full, 8));
  const StepPlan& plan = planned.plan;
  // No action with buffers in host memory is at the peak: here each of them is taken for it.
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    if (plan.actions[a].kind != Kind::load && plan.actions[a].kind != Kind::clip) continue;
    planned.memory.peak_action = static_cast<int>(a);
    const Report report = make_report(plan, planned.memory, planned.host_memory, 0);
    std::int64_t bytes = 0;
    for (const UnitBytes& unit : report.device.peak_by_unit) bytes += unit.bytes;
    EXPECT_EQ(bytes, sum(live_bytes(plan)[a])) << report.device.peak_action;
  }
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

}  // namespace
}  // namespace ostrakon::tests::reports
