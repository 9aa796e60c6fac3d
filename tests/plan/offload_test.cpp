// SPDX-License-Identifier: Apache-2.0
// What is kept in host memory, what is frozen, and what is updated as whole matrices: the plans.
#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

/// A model of which the embedding, or parts of blocks, are frozen, and blocks have two matrices
/// that are updated as wholes.
ModelDescription make_mixed_model(int blocks, bool tied, int frozen, bool matrices, bool halves) {
  ModelDescription model = make_model(blocks, tied, 5);
  for (int u = 0; u < blocks + 2; ++u) {
    UnitDescription& unit = model.units[u];
    unit.recomputes = unit.saved_bytes > 0;
    unit.parameter_elements += 64 * 40;
    if (frozen > 0 && u == 0) unit.frozen_elements = unit.parameter_elements;
    if (frozen > 1 && u == 1) unit.frozen_elements = unit.parameter_elements;
    if (frozen > 2 && u > 1 && u <= blocks) unit.frozen_elements = 64 * 5;
    const std::int64_t trained = unit.parameter_elements - unit.frozen_elements;
    if (matrices && u > 0 && u <= blocks && trained > 0) {
      unit.whole_matrices = {{64, 64 * 9, 100.0}, {64 * 11, trained - 64 * 12, 1000.0}};
      unit.orthogonalize_workspace_bytes = 4096;
    }
  }
  model.units.back().tied_gradients = frozen == 0;
  if (halves) model.element_bytes = 2;
  return model;
}

/// Neither where state is nor when a unit is updated changes what is computed and sent: the same
/// work in the same order, and the same bytes to other ranks but for where parameters are shared.
TEST(Offload, ComputesTheSameInTheSameOrder) {
  Random random(12);
  for (int trial = 0; trial < trials(1200); ++trial) {
    const RandomPlan made = random_plan(random, 4, 6, 3);
    if (made.purpose != Purpose::train || made.policy.offload == Offload::none) continue;
    SCOPED_TRACE(made.described);
    Policy policy = made.policy;
    policy.accumulation = made.plan.layouts.accumulation;
    policy.offload = Offload::none;
    policy.offload_activations = false;
    const StepPlan plain = train_plan(made.model, made.ranks, policy);
    const auto work = [](const StepPlan& of) {
      std::vector<std::string> found;
      for (const Action& action : of.actions)
        if (action.flops > 0.0 && action.kind != Kind::orthogonalize)
          found.push_back(of.describe(action));
      return found;
    };
    EXPECT_EQ(work(made.plan), work(plain));
    EXPECT_EQ(made.plan.flops(), plain.flops());
    const auto reduced = [](const StepPlan& of) {
      std::int64_t bytes = 0;
      for (std::size_t a : actions_of(of, of_kind(Kind::reduce_scatter)))
        bytes += of.bytes_sent(of.actions[a]);
      return bytes;
    };
    EXPECT_EQ(reduced(made.plan), reduced(plain));
  }
}

TEST(Offload, DeviceHoldsOneUnitAtATimeWhereNothingIsAhead) {
  for (Accumulation accumulation :
       {Accumulation::reduce_each, Accumulation::shard_each, Accumulation::reduce_last})
    for (bool halves : {false, true}) {
      ModelDescription model = make_mixed_model(12, false, 0, false, halves);
      Policy policy = make_policy(8);
      policy.accumulation = accumulation;
      policy.offload = Offload::all;
      policy.offload_activations = true;
      policy.forward_prefetch.depth = policy.backward_prefetch.depth = 0;
      policy.in_flight_reductions = 0;
      policy.activation_checkpointing.every = 1;
      policy.moment_count = 2;
      const StepPlan plan = train_plan(model, 2, policy);
      std::int64_t most = 0;
      for (std::size_t u = 0; u < model.units.size(); ++u) {
        const UnitDescription& unit = model.units[u];
        // Gathered and its shard; gradients, packed nothing, staging and shard; activations of the
        // unit, inputs and outputs around it.
        const std::int64_t parameters = plan.padded(plan.trained(static_cast<int>(u)));
        most = std::max(most, parameters * (model.element_bytes + model.element_bytes / 2) +
                                  parameters * (4 + 4 + 2) + unit.saved_bytes +
                                  std::max(unit.forward.front().workspace_bytes,
                                           unit.backward.front().workspace_bytes) +
                                  5 * model.gradient_bytes + unit.output_bytes);
      }
      std::int64_t largest_saved = 0;
      for (const UnitDescription& unit : model.units)
        largest_saved = std::max(largest_saved, unit.saved_bytes);
      const MemoryPlan memory = plan_memory(plan);
      EXPECT_LE(memory.peak_live_bytes,
                most + 2 * largest_saved + model.sums_bytes + model.batch_bytes + 256 * 16);
    }
}

TEST(Frozen, UnitsWithoutTrainedParametersHaveNoBackwardBelowTheFirstTrained) {
  ModelDescription model = make_mixed_model(4, false, 2, false, false);
  for (UnitDescription& unit : model.units) unit.tied_gradients = true;
  Policy policy = make_policy(4);
  policy.moment_count = 2;
  const StepPlan plan = train_plan(model, 2, policy);
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::forward || action.kind == Kind::gather || action.unit > 1) continue;
    EXPECT_TRUE(action.unit < 0 || action.kind == Kind::release) << plan.describe(action);
  }
  // A frozen unit between trained ones hands the gradient on, and has none of its own.
  model.units[0].frozen_elements = 0;
  const StepPlan other = train_plan(model, 2, policy);
  int backwards = 0;
  for (const Action& action : other.actions)
    if (action.unit == 1 && action.kind == Kind::backward) {
      ++backwards;
      EXPECT_LT(action.buffer(Role::parameter_gradients), 0);
      EXPECT_GE(action.buffer(Role::gradient), 0);
    } else if (action.unit == 1) {
      EXPECT_TRUE(action.kind == Kind::forward || action.kind == Kind::gather ||
                  action.kind == Kind::release)
          << other.describe(action);
    }
  EXPECT_EQ(backwards, 2);
}

TEST(Frozen, TrafficAndStateAreOfWhatIsTrained) {
  const ModelDescription model = make_mixed_model(4, false, 3, false, false);
  Policy policy = make_policy(4);
  policy.reshard_after_forward.kind = Reshard::always;
  policy.accumulation = Accumulation::reduce_each;
  const StepPlan plan = train_plan(model, 4, policy);
  std::int64_t gathered = 0, reduced = 0, trained = 0, all = 0, read_backward = 0;
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::gather) gathered += action.elements;
    if (action.kind == Kind::reduce_scatter) reduced += action.elements;
  }
  const auto padded = [](std::int64_t elements) { return (elements + 255) / 256 * 256; };
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const UnitDescription& unit = model.units[u];
    const std::int64_t whole =
        padded(unit.frozen_elements) + padded(unit.parameter_elements - unit.frozen_elements);
    trained += padded(unit.parameter_elements - unit.frozen_elements);
    all += whole;
    if (u >= 2 && u + 1 < model.units.size()) read_backward += whole;
    if (u < 2)
      EXPECT_EQ(plan.units[u].first_moments, -1);
    else
      EXPECT_EQ(plan.buffers[plan.units[u].first_moments].bytes * 4,
                padded(unit.parameter_elements - unit.frozen_elements) * 4);
  }
  EXPECT_EQ(gathered, all + read_backward);
  EXPECT_EQ(reduced, trained);
}

TEST(Frozen, NothingLeftToTrainIsRefused) {
  ModelDescription model = make_mixed_model(1, false, 0, false, false);
  for (UnitDescription& unit : model.units) unit.frozen_elements = unit.parameter_elements;
  EXPECT_THROW(train_plan(model, 1, make_policy(1)), Error);
  EXPECT_NO_THROW(build_step_plan(model, 1, make_policy(1), Purpose::evaluate));
}

/// Counted element by element, for every rank.
TEST(WholeMatrices, SecondMomentsAndWorkAreThoseOfTheRankWithTheMost) {
  for (bool halves : {false, true})
    for (int ranks : {1, 2, 3, 4, 6, 16, 40}) {
      const ModelDescription model = make_mixed_model(3, false, 3, true, halves);
      Policy policy = make_policy(ranks);
      policy.moment_count = 2;
      const StepPlan plan = train_plan(model, ranks, policy);
      for (std::size_t u = 0; u < model.units.size(); ++u) {
        const FlatRange trained = plan.trained(static_cast<int>(u));
        if (trained.empty()) continue;
        std::int64_t most = 0;
        double most_flops = 0.0;
        const std::int64_t part = plan.padded(trained) / ranks;
        for (int rank = 0; rank < ranks; ++rank) {
          std::int64_t outside = 0;
          double flops = 0.0;
          std::vector<bool> seen(2, false);
          for (std::int64_t e = rank * part; e < (rank + 1) * part; ++e) {
            bool inside = false;
            for (std::size_t m = 0; m < model.units[u].whole_matrices.size(); ++m) {
              const WholeMatrix& matrix = model.units[u].whole_matrices[m];
              if (e < matrix.offset || e >= matrix.offset + matrix.elements) continue;
              inside = true;
              if (!seen[m]) flops += matrix.flops;
              seen[m] = true;
            }
            outside += !inside;
          }
          most = std::max(most, outside);
          most_flops = std::max(most_flops, flops);
        }
        EXPECT_EQ(plan.buffers[plan.units[u].second_moments].bytes, 4 * most)
            << ranks << ", unit " << u;
        for (const Action& action : plan.actions)
          if (action.kind == Kind::orthogonalize && action.unit == static_cast<int>(u)) {
            EXPECT_EQ(action.flops, most_flops) << ranks << ", unit " << u;
          }
      }
    }
}

}  // namespace
}  // namespace ostrakon::tests
