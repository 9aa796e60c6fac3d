// SPDX-License-Identifier: Apache-2.0
// Random delays of streams change no bit of results.
#include <gtest/gtest.h>

#include "fake_device/results.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

TEST(Schedules, ThatAreDelayedAtRandomChangeNoBit) {
  const unsigned long schedules = takes_every_case() ? 100 : 12;
  for (const bool offloads : {true, false}) {
    config::Settings settings = small_llama(world_ranks() > 4 ? 8 : 4);
    settings.runtime.streams = config::StreamsChoice::automatic;
    if (offloads) {
      settings.parallel.offload = plan::Offload::all;
      settings.parallel.offload_activations = true;
    }
    SmallRun run(settings);
    const Result expected = result_of(run);
    ASSERT_EQ(std::get<0>(expected), "");
    for (unsigned long seed = 1; seed <= schedules; ++seed) {
      fake_shake(seed, 400.0);
      EXPECT_FALSE(differs_on_any_rank(run, expected)) << "seed " << seed;
    }
    fake_shake(0, 0.0);
  }
}

}  // namespace
