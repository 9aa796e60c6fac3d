// SPDX-License-Identifier: Apache-2.0
// The bits of a run don't depend on its layout: all layouts, on 8 ranks. Minutes; for
// --gtest_also_run_disabled_tests.
//
// Many layouts have the same plan, such as all prefetch depths of a model that is not sharded. A
// plan is the program, so it runs once on each mesh and with each kind of streams; what it sends is
// compared with the formulas for each layout.
#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <ostrakon/plan/build.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <set>
#include <tuple>
#include <vector>

#include "trainer/comparison.hpp"
#include "trainer/layouts.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::tests;

std::vector<Layout> every_layout() {
  std::vector<Layout> layouts;
  Layout layout(factors, 0);
  for (int f = 0; f < factors;) {
    if (is_valid(layout)) layouts.push_back(layout);
    for (f = 0; f < factors; ++f) {
      // These alternate, or the matrix would be twelve times as large.
      if (f == reductions_factor || f == blocks_factor || f == windows_factor) continue;
      if (++layout[f] < choices_of[f]) break;
      layout[f] = 0;
    }
    const auto count = static_cast<int>(layouts.size());
    layout[reductions_factor] = count % 3;
    layout[blocks_factor] = count / 3 % 2;
    layout[windows_factor] = count % 2;
  }
  return layouts;
}

/// Hashes of the plans to train and to validate with, made as a Trainer would.
using Hashes = std::array<std::uint64_t, 2>;

Hashes plan_hashes(const Layout& layout, const config::Settings& settings) {
  const std::unique_ptr<model::Model> decoder = train::make_decoder(settings);
  const plan::ModelDescription model = train::describe(*decoder, settings.optimizer);
  plan::Policy policy = config::policy_of(settings);
  policy.shard_group = shard_group_of(layout);
  policy.ranks_per_node =
      settings.ranks_per_node > 0 ? static_cast<int>(settings.ranks_per_node) : ranks_of(layout);
  policy.node_windows = train::expected_windows(policy.node_windows, has_device);
  const auto plan = [&](plan::Purpose purpose) {
    return plan::build_step_plan(model, ranks_of(layout), policy, purpose);
  };
  const plan::StepPlan train = plan(plan::Purpose::train);
  SCOPED_TRACE(describe(layout));
  expect_traffic_by_formula(settings, train);
  return {train.hash(), plan(plan::Purpose::evaluate).hash()};
}

/// Returns the hashes of all layouts; each rank plans some of them.
std::vector<Hashes> all_hashes(const std::vector<Layout>& layouts, const Comparison& comparison) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Hashes> hashes(layouts.size(), Hashes{});
  for (std::size_t i = static_cast<std::size_t>(rank); i < layouts.size();
       i += static_cast<std::size_t>(ranks))
    hashes[i] = plan_hashes(layouts[i], comparison.settings(layouts[i]));
  MPI_Allreduce(MPI_IN_PLACE, hashes.data(),
                static_cast<int>(hashes.size() * std::tuple_size<Hashes>::value), MPI_UINT64_T,
                MPI_SUM, MPI_COMM_WORLD);
  return hashes;
}

TEST(Layout, DISABLED_TrulyEveryLayoutGivesTheSameBits) {
  const Comparison comparison;
  const std::vector<Layout> layouts = every_layout();
  const std::vector<Hashes> hashes = all_hashes(layouts, comparison);
  std::set<std::tuple<int, int, int, int, Hashes>> seen;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const Layout& layout = layouts[i];
    const bool is_new = seen.insert({layout[model_factor], layout[ranks_factor],
                                     layout[group_factor], layout[streams_factor], hashes[i]})
                            .second;
    if (!is_new || !comparison.has_me(layout)) continue;
    const History run = comparison.run(layout);
    EXPECT_EQ(hashes[i], (Hashes{run.plan_hash, run.validation_plan_hash})) << describe(layout);
  }
  std::printf("%zu layouts, %zu runs\n", layouts.size(), seen.size());
}

}  // namespace
