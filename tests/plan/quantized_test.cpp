// SPDX-License-Identifier: Apache-2.0

// Gathers in 8 bits: how many bytes they are, where they are, and that the proof sees what is
// wrong.

#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

/// The bytes of a part, counted granule by granule.
std::int64_t largest_part(const std::vector<FlatElements>& weights, std::int64_t padded,
                          std::int64_t parts) {
  std::int64_t most = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    std::int64_t bytes = 0;
    for (std::int64_t at = part * padded / parts; at < (part + 1) * padded / parts; at += 64) {
      bool has_code = false;
      for (const FlatElements& run : weights)
        has_code = has_code || (run.begin < at + 64 && at < run.end);
      bytes += has_code ? 64 + 2 : 2 * 64;
    }
    most = std::max(most, (bytes + 63) / 64 * 64);
  }
  return most;
}

TEST(Quantized, PartsHaveTheBytesOfTheLargest) {
  Random random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t parts = std::int64_t{1} << random() % 5;
    const std::int64_t padded = parts * 64 * static_cast<std::int64_t>(1 + random() % 40);
    std::vector<FlatElements> weights;
    for (std::int64_t at = 64 * static_cast<std::int64_t>(random() % 5); at < padded;) {
      const auto count = static_cast<std::int64_t>(1 + random() % 500);
      weights.push_back({at, std::min(padded, at + count)});
      at += (count + 63) / 64 * 64 + 64 * static_cast<std::int64_t>(random() % 3);
    }
    const QuantizedFlat flat(weights, padded, parts);
    EXPECT_EQ(flat.part_elements, padded / parts);
    EXPECT_EQ(flat.part_bytes, largest_part(weights, padded, parts));
  }
}

TEST(Quantized, ManyRunsAreRefused) {
  std::vector<FlatElements> weights;
  for (std::int64_t run = 0; run <= QuantizedFlat::most_runs; ++run)
    weights.push_back({128 * run, 128 * run + 64});
  EXPECT_HAS(refusal([&] { QuantizedFlat(weights, 64 * 1024, 2); }),
             "precision.gather = fp8: a unit has more than 128 runs of weights");
  weights.pop_back();
  EXPECT_EQ(QuantizedFlat(weights, 64 * 1024, 2).runs, QuantizedFlat::most_runs);
}

/// A model in 16 bits whose blocks have weights that are gathered in 8 bits, between others.
ModelDescription quantized_model(int blocks, std::uint64_t seed) {
  ModelDescription model = make_model(blocks, false, seed);
  model.element_bytes = 2;
  Random random(seed);
  for (std::size_t u = 1; u + 1 < model.units.size(); ++u) {
    UnitDescription& unit = model.units[u];
    unit.parameter_elements = 64 * (30 + static_cast<std::int64_t>(random() % 300));
    if (seed % 2 == 0) unit.frozen_elements = 640;
    unit.quantized = {{true, 64, 64 * 9}, {true, 64 * 12, 64 * 6 - 5}};
    if (seed % 4 == 0) unit.quantized.insert(unit.quantized.begin(), {false, 128, 256});
  }
  return model;
}

Policy full_policy(std::int64_t leaves) {
  Policy policy = make_policy(leaves);
  policy.sharding = Sharding::full;
  return policy;
}

TEST(Quantized, GathersAreOfBytesAndInStagingUntilTheyAreConverted) {
  const ModelDescription model = quantized_model(2, 7);
  const StepPlan plan = train_plan(model, 4, full_policy(4));
  expect_proven(plan);
  const FlatParameter& flat = plan.flats[plan.trained(1).first];
  const std::int64_t bytes =
      4 * largest_part({{64, 64 * 10}, {64 * 12, 64 * 18 - 5}}, flat.padded, 4);
  int gathers = 0;
  for (const Action& action : plan.actions) {
    if (action.kind != Kind::gather) continue;
    const Buffer& whole = buffer_of(plan, action, Role::parameters);
    const bool is_block = action.unit == 1 || action.unit == 2;
    EXPECT_EQ(whole.quantized, is_block);
    EXPECT_TRUE(action.converts);
    if (action.unit != 1) continue;
    ++gathers;
    EXPECT_EQ(action.elements * action.element_bytes, bytes);
    EXPECT_EQ(whole.bytes, bytes);
    EXPECT_EQ(whole.category, Category::staging);
    EXPECT_EQ(plan.bytes_sent(action), bytes / 4 * 3);
  }
  EXPECT_GE(gathers, 1);
  EXPECT_EQ(count_of(plan, Kind::dequantize),
            static_cast<int>(actions_of(plan, [](const Action& action) {
                               return action.kind == Kind::gather && action.element_bytes == 1;
                             }).size()));
  // Staging ends before the next block's backward: it takes no memory for the rest of the step.
  for (const Action& action : plan.actions) {
    if (action.kind != Kind::dequantize) continue;
    const Buffer& source = buffer_of(plan, action, Role::source);
    const Buffer& whole = buffer_of(plan, action, Role::parameters);
    EXPECT_EQ(source.category, Category::staging);
    EXPECT_EQ(whole.bytes, 2 * plan.elements(plan.units[action.unit].flats, {}));
    EXPECT_LT(source.last, whole.last);
  }
}

TEST(Quantized, SendLessThanTwoThirdsOf16Bits) {
  ModelDescription model = quantized_model(3, 5);
  for (UnitDescription& unit : model.units)
    if (!unit.quantized.empty()) unit.quantized = {{true, 64, unit.parameter_elements - 128}};
  const auto sent = [&] {
    std::int64_t bytes = 0;
    const StepPlan plan = train_plan(model, 2, full_policy(2));
    for (const Action& action : plan.actions)
      if (action.kind == Kind::gather && action.unit == 1) bytes += plan.bytes_sent(action);
    return bytes;
  };
  const std::int64_t in_8_bits = sent();
  for (UnitDescription& unit : model.units) unit.quantized.clear();
  EXPECT_LT(3 * in_8_bits, 2 * sent());
}

/// Changes gather `g` so that it no longer brings codes where codes are read, or brings them where
/// parameters are.
void expect_other_bytes_are_refused(const StepPlan& plan, std::size_t g) {
  const auto changed = [&](const auto& change) {
    StepPlan other = plan;
    change(other, other.actions[g]);
    return refused(other);
  };
  const Action& gather = plan.actions[g];
  const auto other_kind = [&](Role role) {
    return changed([=](StepPlan& p, Action& x) {
      Buffer& buffer = buffer_of(p, x, role);
      buffer.quantized = !buffer.quantized;
    });
  };
  EXPECT_NE(other_kind(Role::parameters), "");
  if (gather.buffer(Role::shard) >= 0) {
    EXPECT_NE(other_kind(Role::shard), "");
  }
  if (buffer_of(plan, gather, Role::parameters).quantized) {
    EXPECT_HAS(changed([](StepPlan&, Action& x) { x.converts = !x.converts; }),
               "is quantized, otherwise than by rounding masters");
  }
}

/// Plans of all that is allowed with full sharding are proven; changed ones are not.
TEST(Quantized, EveryPlanIsProven) {
  Random random(11);
  int in_levels = 0, kept = 0;
  for (int trial = 0; trial < trials(300); ++trial) {
    const int ranks = trial % 3 == 0 ? static_cast<int>(1 + random() % 8) : 8;
    const ModelDescription model = quantized_model(1 + static_cast<int>(random() % 3), random());
    Policy policy = random_policy(random, model, ranks, 2 * ranks);
    policy.sharding = Sharding::full;
    if (trial % 4 == 1) policy.shard_group = 0, policy.reshard_after_forward = {Reshard::partly, 2};
    if (random() % 2 == 0) place_on_nodes(random, ranks, policy);
    const Purpose purpose = purposes[random() % 3];
    StepPlan plan;
    if (!refusal([&] { plan = build_step_plan(model, ranks, policy, purpose); }).empty()) continue;
    SCOPED_TRACE(trial);
    expect_proven(plan);
    in_levels += plan.grid.has_levels();
    kept += count_of(plan, Kind::keep) > 0;
    const std::vector<std::size_t> found = actions_of(plan, of_kind(Kind::dequantize));
    if (found.empty()) continue;
    const std::size_t a = found[random() % found.size()];
    const auto changed = [&](const auto& change) {
      StepPlan other = plan;
      change(other, other.actions[a]);
      return refused(other) + memory_refused(other);
    };
    EXPECT_NE(changed([](StepPlan&, Action& x) { x.elements -= 64; }), "");
    EXPECT_NE(
        changed([](StepPlan& p, Action& x) { buffer_of(p, x, Role::source).quantized = false; }),
        "");
    EXPECT_NE(changed([](StepPlan&, Action& x) { x.waits.clear(), x.stream = Stream::reduce; }),
              "");
    EXPECT_NE(changed([](StepPlan&, Action& x) { x.kind = Kind::release; }), "");
    const std::vector<std::size_t> gathers = actions_of(plan, of_kind(Kind::gather));
    expect_other_bytes_are_refused(plan, gathers[random() % gathers.size()]);
  }
  EXPECT_GT(in_levels, 0);
  EXPECT_GT(kept, 0);
}

TEST(Quantized, LimitsInBytesCountCodes) {
  ModelDescription model = quantized_model(1, 7);
  model.units.front().parameter_elements = model.units.back().parameter_elements = 64;
  Policy policy = full_policy(2);
  const StepPlan plan = train_plan(model, 2, policy);
  const FlatRange block = plan.units[1].flats;
  policy.in_flight_gathers.bytes = 2 * plan.elements(block, {}) + plan.quantized_bytes(block, {});
  expect_proven(train_plan(model, 2, policy));
  --policy.in_flight_gathers.bytes;
  EXPECT_HAS(refusal([&] { train_plan(model, 2, policy); }), "parallel.in_flight_gathers = ");
}

TEST(Quantized, LevelsAreChosenByTheBytesThatAreSent) {
  ModelDescription model = quantized_model(1, 7);
  for (UnitDescription& unit : model.units) unit.parameter_elements = 64;
  model.units[1].parameter_elements = 64 * 100;
  model.units[1].quantized = {{true, 64, 64 * 99}};
  Policy policy = full_policy(4);
  policy.ranks_per_node = 2;
  policy.hierarchical = {Hierarchical::by_size, 2 * 64 + 99 * (64 + 2)};
  EXPECT_TRUE(make_grid(model, 4, policy).has_levels());
  ++policy.hierarchical.bytes;
  EXPECT_FALSE(make_grid(model, 4, policy).has_levels());
}

TEST(Quantized, PlansHaveAnotherHashForOtherWeights) {
  ModelDescription model = quantized_model(1, 7);
  const auto hash = [&] { return train_plan(model, 2, full_policy(2)).hash(); };
  const std::uint64_t before = hash();
  // As many codes, elsewhere.
  model.units[1].quantized.front().offset += 64;
  EXPECT_NE(hash(), before);
}

}  // namespace
}  // namespace ostrakon::tests
