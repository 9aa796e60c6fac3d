// SPDX-License-Identifier: Apache-2.0
// What is kept in host memory, what is frozen, and what is updated as whole matrices: the plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

constexpr Offload offloads[] = {Offload::none, Offload::optimizer, Offload::parameters,
                                Offload::all};

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

/// Calls check(model, ranks, policy, name) for many of all combinations: every n-th.
template <class Check>
void for_many(int step, const Check& check) {
  int count = 0;
  for (int frozen = 0; frozen < 4; ++frozen)
    for (bool matrices : {false, true})
      for (bool halves : {false, true}) {
        const ModelDescription model = make_mixed_model(4, true, frozen, matrices, halves);
        for (int ranks : {1, 2, 4, 6})
          for (int group : groups_of(ranks))
            for (Offload offload : offloads)
              for (std::uint64_t choice = 0; choice < choices; ++choice) {
                if (count++ % step != 0) continue;
                Policy policy = make_policy(2 * ranks, choice);
                policy.shard_group = group;
                policy.offload = offload;
                policy.offload_activations = count % 3 == 0;
                policy.early_updates = count % 5 < 2;
                policy.activation_checkpointing.every = count / 7 % 3;
                policy.forward_prefetch.depth = count / 5 % 3;
                policy.in_flight_reductions = count / 3 % 3;
                policy.moment_count = 2;
                if (group % 2 == 0 && count % 4 == 0)
                  policy.reshard_after_forward = {Reshard::partly, 2};
                if (count % 7 == 0) policy.reduce = DType::bf16;
                check(model, ranks, policy,
                      "frozen " + std::to_string(frozen) + ", matrices " +
                          std::to_string(matrices) + ", 16 bits " + std::to_string(halves) +
                          ", ranks " + std::to_string(ranks) + ", group " + std::to_string(group) +
                          ", offload " + std::to_string(static_cast<int>(offload)) + ", choice " +
                          std::to_string(choice) + ", count " + std::to_string(count));
              }
      }
}

TEST(Offload, PlansOfAllKindsAreProvenAndShareTheirState) {
  for_many(takes_every_case() ? 31 : 97, [](const ModelDescription& model, int ranks,
                                            const Policy& policy, const std::string& name) {
    MemoryPlan first[spaces];
    for (Purpose purpose : purposes) {
      StepPlan plan;
      ASSERT_NO_THROW(plan = build_step_plan(model, ranks, policy, purpose)) << name;
      for (Space space : {Space::device, Space::host}) {
        const MemoryPlan memory = plan_memory(plan, space);
        ASSERT_NO_THROW(prove_memory(plan, memory)) << name;
        MemoryPlan& other = first[static_cast<int>(space)];
        if (purpose == Purpose::train) other = memory;
        for (std::size_t b = 0; b < plan.buffers.size() && plan.buffers[b].persistent; ++b)
          ASSERT_EQ(memory.offsets[b], other.offsets[b]) << name;
      }
    }
  });
}

/// Streams touch the memory that they can.
TEST(Offload, ActionsFindTheirBuffersWhereTheyRun) {
  for_many(101, [](const ModelDescription& model, int ranks, const Policy& policy,
                   const std::string& name) {
    for (Purpose purpose : purposes) {
      const StepPlan plan = build_step_plan(model, ranks, policy, purpose);
      for (const Action& action : plan.actions) {
        if (action.kind == Kind::release) continue;
        for (const Use& used : action.uses) {
          const bool on_host = plan.buffers[used.buffer].space == Space::host;
          const std::string what =
              name + ": " + plan.describe(action) + " and '" + plan.buffers[used.buffer].name + "'";
          if (used.role == Role::host_batch || used.role == Role::host_sums)
            EXPECT_TRUE(on_host) << what;
          else if (action.kind == Kind::clip && used.role == Role::gradient_shard)
            EXPECT_EQ(on_host, plan.layouts.update.space == Space::host) << what;
          else if (action.stream == Stream::host)
            EXPECT_TRUE(on_host) << what;
          else if (action.kind == Kind::copy_to_device)
            EXPECT_EQ(on_host, used.role == Role::source) << what;
          else if (action.kind == Kind::copy_to_host)
            EXPECT_EQ(on_host, used.role == Role::target) << what;
          else if (action.kind == Kind::release || used.role == Role::released)
            continue;
          else
            EXPECT_FALSE(on_host) << what;
        }
      }
    }
  });
}

TEST(Offload, StateIsWhereItIsSaidToBe) {
  for_many(103, [](const ModelDescription& model, int ranks, const Policy& policy,
                   const std::string& name) {
    const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
    const bool parameters = policy.offload == Offload::parameters || policy.offload == Offload::all;
    const bool updates = policy.offload == Offload::optimizer || policy.offload == Offload::all;
    EXPECT_EQ(plan.layouts.update.space == Space::host, updates) << name;
    for (std::size_t u = 0; u < model.units.size(); ++u) {
      const PlannedUnit& unit = plan.units[u];
      const auto on_host = [&](int buffer) { return plan.buffers[buffer].space == Space::host; };
      EXPECT_EQ(on_host(unit.masters), policy.offload != Offload::none) << name;
      if (plan.layouts.has_copies()) {
        EXPECT_EQ(on_host(unit.working), parameters) << name;
      }
      const bool trained = !plan.trained(static_cast<int>(u)).empty();
      for (int buffer : {unit.first_moments, unit.second_moments, unit.gradients}) {
        EXPECT_EQ(buffer >= 0, trained) << name;
        if (buffer >= 0) {
          EXPECT_EQ(on_host(buffer), updates) << name;
        }
      }
    }
    if (policy.offload != Offload::all) return;
    std::int64_t kept = 0;
    for (const Buffer& buffer : plan.buffers)
      if (buffer.persistent && buffer.space == Space::device) kept += buffer.bytes;
    EXPECT_EQ(kept, model.sums_bytes) << name;
  });
}

/// Neither where state is nor when a unit is updated changes what is computed and sent: the same
/// work in the same order, and the same bytes to other ranks but for where parameters are shared.
TEST(Offload, ComputesTheSameInTheSameOrder) {
  for_many(53,
           [](const ModelDescription& model, int ranks, Policy policy, const std::string& name) {
             const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
             policy.accumulation = plan.layouts.accumulation;
             policy.offload = Offload::none;
             policy.offload_activations = false;
             const StepPlan plain = build_step_plan(model, ranks, policy, Purpose::train);
             const auto work = [](const StepPlan& of) {
               std::vector<std::string> found;
               for (const Action& action : of.actions)
                 if (action.flops > 0.0 && action.kind != Kind::orthogonalize)
                   found.push_back(of.describe(action));
               return found;
             };
             EXPECT_EQ(work(plan), work(plain)) << name;
             EXPECT_EQ(plan.flops(), plain.flops()) << name;
             const auto reduced = [](const StepPlan& of) {
               std::int64_t bytes = 0;
               for (const Action& action : of.actions)
                 if (action.kind == Kind::reduce_scatter) bytes += of.bytes_sent(action);
               return bytes;
             };
             EXPECT_EQ(reduced(plan), reduced(plain)) << name;
           });
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
      const StepPlan plan = build_step_plan(model, 2, policy, Purpose::train);
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
  const StepPlan plan = build_step_plan(model, 2, policy, Purpose::train);
  for (const Action& action : plan.actions) {
    if (action.kind == Kind::forward || action.kind == Kind::gather || action.unit > 1) continue;
    EXPECT_TRUE(action.unit < 0 || action.kind == Kind::release) << plan.describe(action);
  }
  // A frozen unit between trained ones hands the gradient on, and has none of its own.
  model.units[0].frozen_elements = 0;
  const StepPlan other = build_step_plan(model, 2, policy, Purpose::train);
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
  const StepPlan plan = build_step_plan(model, 4, policy, Purpose::train);
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
  EXPECT_THROW(build_step_plan(model, 1, make_policy(1), Purpose::train), Error);
  EXPECT_NO_THROW(build_step_plan(model, 1, make_policy(1), Purpose::evaluate));
}

/// Counted element by element, for every rank.
TEST(WholeMatrices, SecondMomentsAndWorkAreThoseOfTheRankWithTheMost) {
  for (bool halves : {false, true})
    for (int ranks : {1, 2, 3, 4, 6, 16, 40}) {
      const ModelDescription model = make_mixed_model(3, false, 3, true, halves);
      Policy policy = make_policy(ranks);
      policy.moment_count = 2;
      const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::train);
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

TEST(EarlyUpdates, OverlapWithTheBackwardOfUnitsBefore) {
  const ModelDescription model = make_mixed_model(4, false, 0, false, false);
  Policy policy = make_policy(4);
  policy.offload = Offload::all;
  policy.early_updates = true;
  const StepPlan plan = build_step_plan(model, 2, policy, Purpose::train);
  int last_backward = -1, first_update = -1, updates = 0;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    if (plan.actions[a].kind == Kind::backward) last_backward = a;
    if (plan.actions[a].kind != Kind::optimize) continue;
    if (first_update < 0) first_update = a;
    ++updates;
  }
  EXPECT_LT(first_update, last_backward);
  EXPECT_EQ(updates, 6);
  policy.early_updates = false;
  const StepPlan late = build_step_plan(model, 2, policy, Purpose::train);
  for (const Action& action : late.actions) {
    if (action.kind == Kind::clip) break;
    EXPECT_NE(action.kind, Kind::optimize);
  }
}

}  // namespace
