// SPDX-License-Identifier: Apache-2.0
#pragma once

// A plan of any kind.

#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <random>
#include <string>

#include "random_plans.hpp"

namespace ostrakon::tests {

struct RandomPlan {
  plan::StepPlan plan;
  std::string described;
};

/// A plan for a random model and policy with up to `most_blocks` blocks and `most_micro_batches` on
/// each of up to `most_ranks` ranks.
inline RandomPlan random_plan(std::mt19937_64& random, int most_blocks, int most_ranks,
                              int most_micro_batches) {
  const auto upto = [&](int most) {
    return static_cast<int>(1 + random() % static_cast<std::uint64_t>(most));
  };
  for (;;) {
    const std::uint64_t seed = random();
    const int blocks = upto(most_blocks), ranks = upto(most_ranks);
    plan::ModelDescription model = make_model(blocks, random() % 2 == 0, seed);
    model.units.back().sums_tied_apart = seed % 2 == 0;
    const bool varies = random() % 4 != 0;
    if (varies) vary(random, model);
    plan::Policy policy =
        random_policy(random, model, ranks, std::int64_t{ranks} * upto(most_micro_batches));
    if (varies) vary(random, model, policy);
    if (random() % 3 == 0) add_grain(random, ranks, policy);
    if (random() % 2 == 0) place_on_nodes(random, ranks, policy);
    const auto drawn = random() % 8;
    const plan::Purpose purpose = drawn == 0                ? plan::Purpose::evaluate
                                  : drawn == 1              ? plan::Purpose::export_parameters
                                  : drawn == 2 && ranks < 2 ? plan::Purpose::decode
                                                            : plan::Purpose::train;
    try {
      return {build_step_plan(model, ranks, policy, purpose),
              text("seed ", seed, ", ", blocks, " blocks, ", ranks, " ranks in groups of ",
                   policy.shard_group, ", purpose ", static_cast<int>(purpose))};
    } catch (const Error&) {
      // A limit that is below what one action needs.
    }
  }
}

}  // namespace ostrakon::tests
