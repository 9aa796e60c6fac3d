// SPDX-License-Identifier: Apache-2.0
// A model whose gradients are so small that squares of them are subnormal numbers: one result for
// every layout where they are flushed, and another one where they are kept.
#include <gtest/gtest.h>

#include <functional>
#include <ostrakon/base/float_mode.hpp>
#include <string>
#include <utility>
#include <vector>

#include "trainer/small_runs.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

config::Settings settings_with(Subnormals subnormals) {
  config::Settings settings = small_gpt2(8);
  settings.model.initializer_deviation = 1e-9;
  settings.training.steps = 3;
  settings.runtime.subnormals = subnormals;
  return settings;
}

using Change = std::function<void(config::Settings&)>;

std::vector<std::pair<std::string, Change>> layouts() {
  return {{"none", [](config::Settings& s) { s.parallel.sharding = plan::Sharding::none; }},
          {"gradients, updates on the host",
           [](config::Settings& s) {
             s.parallel.sharding = plan::Sharding::gradients;
             s.parallel.offload = plan::Offload::optimizer;
           }},
          {"full, on threads", [](config::Settings& s) {
             s.parallel.sharding = plan::Sharding::full;
             s.runtime.streams = on_threads;
           }}};
}

TEST(Subnormals, GiveTheSameBitsInEveryLayoutFlushedOrKept) {
  if (!math::kernels_can_flush) GTEST_SKIP() << "kernels of this build keep subnormal numbers";
  const FloatMode before = FloatMode::of_this_thread();
  std::vector<std::uint64_t> ends;
  for (const Subnormals subnormals : {Subnormals::flush, Subnormals::keep}) {
    SCOPED_TRACE(name_in(subnormals_names, subnormals));
    const History alone = train_alone(settings_with(subnormals));
    for (const auto& [name, change] : layouts()) {
      SCOPED_TRACE(name);
      config::Settings settings = settings_with(subnormals);
      change(settings);
      const History run = train_history(settings, MPI_COMM_WORLD);
      EXPECT_EQ(run.losses, alone.losses);
      EXPECT_EQ(run.norms, alone.norms);
      EXPECT_EQ(run.digests, alone.digests);
    }
    ends.push_back(alone.digests.back());
    EXPECT_EQ(FloatMode::of_this_thread(), before);
  }
  // Else none of the numbers was subnormal.
  EXPECT_NE(ends.front(), ends.back());
}

TEST(Subnormals, AreFlushedWhateverTheProgramDoes) {
  if (!math::kernels_can_flush) GTEST_SKIP() << "kernels of this build keep subnormal numbers";
  const History plain = train_history(settings_with(Subnormals::flush), MPI_COMM_WORLD);
  {
    const FloatModeScope of_the_program(Subnormals::flush);
    const History kept = train_history(settings_with(Subnormals::keep), MPI_COMM_WORLD);
    EXPECT_EQ(FloatMode::of_this_thread().subnormals(), Subnormals::flush);
    EXPECT_NE(kept.digests, plain.digests);
    EXPECT_EQ(train_history(settings_with(Subnormals::flush), MPI_COMM_WORLD).digests,
              plain.digests);
  }
}

}  // namespace
