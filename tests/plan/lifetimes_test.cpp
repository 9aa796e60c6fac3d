// SPDX-License-Identifier: Apache-2.0

// What keeps buffers in memory, against a plain search of the plan's actions.

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/report/lifetimes.hpp>

#include "plan/report_fixture.hpp"

namespace ostrakon::tests::reports {
namespace {

std::vector<Lifetime> find(const Planned& planned, const std::string& pattern) {
  return find_lifetimes(planned.plan, planned.memory, planned.host_memory, pattern);
}

TEST(Lifetimes, AtThePeakAddUpToItsBytes) {
  for (const Sharding sharding : {Sharding::none, Sharding::full}) {
    const Planned planned = make(make_model(3), 4, make_policy(sharding, 8));
    std::int64_t bytes = 0;
    for (const Lifetime& life : find(planned, "peak")) {
      const Buffer& buffer = planned.plan.buffers[life.buffer];
      EXPECT_TRUE(life.at_peak);
      if (buffer.space != Space::device) continue;
      bytes += (buffer.bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
      EXPECT_EQ(life.offset, planned.memory.offsets[life.buffer]);
    }
    EXPECT_EQ(bytes, planned.memory.peak_live_bytes);
  }
}

TEST(Lifetimes, NameTheUseThatTheBufferIsNeededFor) {
  const Planned planned = make(make_model(3), 4, make_policy(Sharding::full, 8));
  const int peak = planned.memory.peak_action;
  int needed = 0;
  for (const Lifetime& life : find(planned, "")) {
    int next = -1, last = -1;
    for (int a = 0; a < static_cast<int>(planned.plan.actions.size()); ++a)
      for (const Use& use : planned.plan.actions[a].uses)
        if (use.buffer == life.buffer && use.role != Role::released) {
          last = a;
          if (a >= peak && next < 0) next = a;
        }
    EXPECT_EQ(life.last_use, last);
    if (planned.plan.buffers[life.buffer].space == Space::host) continue;
    EXPECT_EQ(life.needed_by, life.at_peak ? next : -1);
    needed += life.needed_by >= 0 ? 1 : 0;
  }
  EXPECT_GT(needed, 0);
}

TEST(Lifetimes, OfABufferAreToldInWords) {
  const Planned planned = make(make_model(3), 4, make_policy(Sharding::full, 4));
  const std::vector<Lifetime> saved = find(planned, "block.1 saved");
  ASSERT_EQ(saved.size(), 1U);
  const std::string text =
      lifetimes_text(planned.plan, planned.memory, planned.host_memory, saved, 20);
  for (const char* const part :
       {"block.1 saved  8.00 KiB  activations, in device memory at byte ",
        "  live from   forward(block.1", "  freed       after backward(block.1",
        "memory.activation_checkpointing"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  const auto json = lifetimes_json(planned.plan, saved);
  EXPECT_EQ(json.at(0).at("bytes"), 8192);
  EXPECT_NE(lifetimes_text(planned.plan, planned.memory, planned.host_memory, find(planned, ""), 1)
                .find("smaller ones of"),
            std::string::npos);
  EXPECT_THROW(find(planned, "nonsense"), Error);
}

TEST(Lifetimes, OfCodesNameTheKeysOfGathers) {
  ModelDescription model = make_model(2);
  model.element_bytes = 2;
  model.units[1].quantized = {{true, 64, 512}};
  const Planned planned = make(model, 4, make_policy(Sharding::full, 4));
  const std::string text = lifetimes_text(planned.plan, planned.memory, planned.host_memory,
                                          find(planned, "block.0 quantized"), 1);
  EXPECT_HAS(text,
             "precision.gather, parallel.forward_prefetch, parallel.backward_prefetch, "
             "parallel.in_flight_gathers\n");
  EXPECT_LACKS(text, "precision.reduce") << text;
}

}  // namespace
}  // namespace ostrakon::tests::reports
