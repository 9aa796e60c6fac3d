// SPDX-License-Identifier: Apache-2.0
// These tests are of which parameters are gathered when: prefetch, limits, and what stays after
// forward.
#include <map>
#include <ostrakon/plan/proof/happens_before.hpp>

#include "plan/random_plans.hpp"
#include "plan/traffic.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

Reshard reshard_of(const Policy& policy, const std::string& unit) {
  Reshard reshard = policy.reshard_after_forward;
  for (const UnitRule& rule : policy.units)
    if (rule.reshard_after_forward && matches(rule.pattern, unit))
      reshard = *rule.reshard_after_forward;
  return reshard;
}

struct InFlight {
  std::int64_t units = 0, bytes = 0;
};

/// The most gathered parameters that are live at one action beyond those that stay after forward
/// because the policy says `never`: from the plan's actions alone.
InFlight most_in_flight(const StepPlan& plan, const Policy& policy) {
  std::vector<InFlight> change(plan.actions.size() + 1);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
    const Buffer& buffer = plan.buffers[b];
    const Action& gather = plan.actions[std::max(buffer.first, 0)];
    if (buffer.persistent || gather.kind != Kind::gather ||
        gather.buffer(Role::parameters) != static_cast<int>(b) || !buffer.divided.empty())
      continue;
    // The units that compute with it, in the order of the plan.
    std::vector<int> visits;
    for (int a = buffer.first + 1; a <= buffer.last; ++a) {
      const Action& action = plan.actions[a];
      const bool computes = action.kind == Kind::forward || action.kind == Kind::backward ||
                            action.kind == Kind::export_parameters;
      for (const Use& use : action.uses)
        if (computes && use.buffer == static_cast<int>(b)) visits.push_back(a);
    }
    int end = buffer.last;
    const Reshard::Kind kind = reshard_of(policy, plan.units[gather.unit].name).kind;
    const bool stays = kind == Reshard::never || kind == Reshard::end_of_step;
    if (stays && visits.size() > 1) end = visits.front();
    change[buffer.first].units += 1;
    change[buffer.first].bytes += buffer.bytes;
    change[end + 1].units -= 1;
    change[end + 1].bytes -= buffer.bytes;
  }
  InFlight now, most;
  for (const InFlight& step : change) {
    now.units += step.units;
    now.bytes += step.bytes;
    most.units = std::max(most.units, now.units);
    most.bytes = std::max(most.bytes, now.bytes);
  }
  return most;
}

Policy sharded(std::int64_t leaves) {
  Policy policy;
  policy.leaves = leaves;
  policy.reshard_after_forward.kind = Reshard::always;
  return policy;
}

TEST(Gathers, NeverExceedTheirLimitWhateverThePolicy) {
  Random random(31), random_nodes(32);
  int limited = 0, full = 0;
  for (int trial = 0; trial < trials(4000); ++trial) {
    const int ranks = 1 << random() % 4;
    const std::int64_t leaves = ranks * static_cast<std::int64_t>(1 + random() % 4);
    ModelDescription model = make_model(static_cast<int>(random() % 7), false, random());
    if (trial % 4 > 0) tie_units(random, model);
    Policy policy = random_policy(random, model, ranks, leaves);
    policy.sharding = Sharding::full;
    place_on_nodes(random_nodes, ranks, policy);
    for (Purpose purpose : purposes) {
      const StepPlan plan = build_step_plan(model, ranks, policy, purpose);
      const InFlight most = most_in_flight(plan, policy);
      const GatherLimit& limit = policy.in_flight_gathers;
      if (limit.units > 0) {
        ++limited;
        full += most.units == limit.units;
        ASSERT_LE(most.units, limit.units) << "trial " << trial;
      }
      if (limit.bytes > 0) {
        ASSERT_LE(most.bytes, limit.bytes) << "trial " << trial;
      }
    }
  }
  EXPECT_GT(limited, trials(1000));
  EXPECT_GT(full, trials(300)) << "a limit that is never met shows nothing";
}

// A unit stays for the next micro-batch only where the limit allows what comes before its use: also
// for the one that it is tied to, which stays from forward to backward, and no longer.
TEST(Gathers, StayOnlyWithWhatTheUnitIsTiedTo) {
  ModelDescription model = make_model(1, false, 38);
  model.units[1].tied_to = 0;
  Policy policy = sharded(4);
  policy.reshard_after_forward.kind = Reshard::automatic;
  policy.forward_prefetch.depth = 0;
  policy.backward_prefetch.depth = 3;
  UnitRule rule;
  rule.pattern = "embedding";
  rule.reshard_after_forward = Reshard{Reshard::never, 0};
  policy.units = {rule};
  const auto gathers_of_block = [&] {
    const StepPlan plan = train_plan(model, 2, policy);
    expect_proven(plan);
    return actions_of(plan, of_kind(Kind::gather, 1)).size();
  };
  EXPECT_EQ(gathers_of_block(), 1u);
  policy.in_flight_gathers.units = 2;
  EXPECT_EQ(gathers_of_block(), 2u);
  EXPECT_LE(most_in_flight(train_plan(model, 2, policy), policy).units, 2);
}

/// The compute action of a unit's first visit of a kind.
int find(const StepPlan& plan, Kind kind, const std::string& unit) {
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    if (plan.actions[a].kind == kind && plan.units[plan.actions[a].unit].name == unit)
      return static_cast<int>(a);
  return -1;
}

/// The gather of what action `visit` computes with.
int gather_for(const StepPlan& plan, int visit) {
  const int buffer = plan.actions[visit].buffer(Role::parameters);
  return plan.buffers[buffer].first;
}

// A gather runs while as many earlier units compute as the depth says, and not while more do.
TEST(Gathers, OverlapWithAsManyUnitsAsThePrefetchIsDeep) {
  const ModelDescription model = make_model(6, false, 32);
  for (int depth = 0; depth <= 3; ++depth) {
    Policy policy = sharded(2);
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
    const StepPlan plan = train_plan(model, 2, policy);
    const HappensBefore order(plan);
    for (Kind kind : {Kind::forward, Kind::backward}) {
      std::vector<int> visits;
      for (std::size_t a = 0; a < plan.actions.size(); ++a)
        if (plan.actions[a].kind == kind && plan.actions[a].buffer(Role::parameters) >= 0)
          visits.push_back(static_cast<int>(a));
      ASSERT_GE(visits.size(), 6u);
      for (std::size_t v = 4; v < visits.size(); ++v) {
        const int gather = gather_for(plan, visits[v]);
        EXPECT_TRUE(order.before(gather, visits[v]));
        for (std::size_t d = 1; d <= 4; ++d)
          EXPECT_EQ(order.before(visits[v - d], gather), static_cast<int>(d) > depth)
              << "depth " << depth << ", " << d << " units before";
      }
    }
  }
}

TEST(Gathers, ListsSayWhichUnitsArePrefetched) {
  const ModelDescription model = make_model(4, false, 33);
  Policy policy = sharded(2);
  UnitRule nothing, rule;
  nothing.pattern = "*";
  nothing.forward_prefetch = Prefetch{0, {}};
  rule.pattern = "block.0";
  rule.forward_prefetch = Prefetch{0, {"block.2", "block.1"}};
  policy.units = {nothing, rule};
  const StepPlan plan = train_plan(model, 2, policy);
  const HappensBefore order(plan);
  const auto gather_of = [&](const char* unit) {
    return gather_for(plan, find(plan, Kind::forward, unit));
  };
  const int forward = find(plan, Kind::forward, "block.0");
  EXPECT_LT(gather_of("block.0"), gather_of("block.2"));
  EXPECT_LT(gather_of("block.2"), gather_of("block.1"));
  EXPECT_LT(gather_of("block.1"), forward);
  EXPECT_FALSE(order.before(forward, gather_of("block.2")));
  EXPECT_TRUE(order.before(forward, gather_of("block.3")));

  // A list that would take the space of the unit that comes before its use is not followed.
  policy.in_flight_gathers.units = 2;
  const StepPlan limited = train_plan(model, 2, policy);
  EXPECT_LE(most_in_flight(limited, policy).units, 2);
  EXPECT_FALSE(
      HappensBefore(limited).before(find(limited, Kind::forward, "block.0"),
                                    gather_for(limited, find(limited, Kind::forward, "block.2"))));
}

TEST(Gathers, ReshardSaysWhatIsGatheredAgain) {
  const ModelDescription model = make_model(4, false, 34);
  const auto sent = [&](Reshard reshard, int depth, std::vector<UnitRule> rules = {}) {
    Policy policy = sharded(8);
    policy.reshard_after_forward = reshard;
    policy.forward_prefetch.depth = policy.backward_prefetch.depth = depth;
    policy.units = std::move(rules);
    const StepPlan plan = train_plan(model, 8, policy);
    std::map<std::string, std::int64_t> gathers;
    for (const Action& action : plan.actions)
      if (action.kind == Kind::gather)
        gathers[plan.units[action.unit].name] +=
            plan.bytes_sent(action) * 8 /
            (plan.padded(plan.trained(action.unit)) * plan.layouts.gathered.element_bytes);
    return gathers;  // in eighths of the unit
  };
  using Sent = std::map<std::string, std::int64_t>;
  const Sent again = {{"embedding", 7}, {"block.0", 14}, {"block.1", 14},
                      {"block.2", 14},  {"block.3", 14}, {"head", 7}};
  Sent once = again, last_once = again, partly = again;
  for (const char* block : {"block.0", "block.1", "block.2", "block.3"}) {
    once[block] = 7;
    partly[block] = 7 + 4;
  }
  last_once["block.3"] = 7;
  EXPECT_EQ(sent({Reshard::always, 0}, 1), again);
  EXPECT_EQ(sent({Reshard::never, 0}, 1), once);
  EXPECT_EQ(sent({Reshard::automatic, 0}, 1), last_once);
  EXPECT_EQ(sent({Reshard::end_of_step, 0}, 1), once);
  EXPECT_EQ(sent({Reshard::automatic, 0}, 0), again);
  EXPECT_EQ(sent({Reshard::partly, 2}, 1), partly);
  EXPECT_EQ(sent({Reshard::partly, 8}, 1), again) << "its parts are the shards";
  EXPECT_EQ(sent({Reshard::partly, 16}, 1), again);
  UnitRule rule;
  rule.pattern = "block.?";
  EXPECT_THROW(sent({Reshard::always, 0}, 1, {rule}), Error) << "only * stands for something";
  rule.pattern = "*3";
  rule.reshard_after_forward = Reshard{Reshard::never, 0};
  EXPECT_EQ(sent({Reshard::always, 0}, 1, {rule}), last_once);
}

TEST(Gathers, RefuseWhatCannotBeKept) {
  const auto refused_for = [](int ranks, bool tied, auto change) {
    Policy policy = sharded(ranks == 1 ? 4 : ranks);
    change(policy);
    return refusal([&] { train_plan(make_model(2, tied, 36), ranks, policy); });
  };
  const auto one_unit = [](Policy& policy) { policy.in_flight_gathers.units = 1; };
  EXPECT_EQ(refused_for(4, false, one_unit), "");
  EXPECT_EQ(refused_for(1, true, one_unit), "") << "one rank gathers nothing";
  EXPECT_HAS(refused_for(4, true, one_unit),
             "parallel.in_flight_gathers = 1: head and embedding are gathered together");
  EXPECT_HAS(refused_for(4, false, [](Policy& policy) { policy.in_flight_gathers.bytes = 1000; }),
             " alone has ");
  EXPECT_HAS(refused_for(6, false,
                         [](Policy& policy) {
                           policy.reshard_after_forward = {Reshard::partly, 4};
                         }),
             "reshard_after_forward = 4 does not divide the 6 ranks of a shard group");
  UnitRule rule;
  const auto with_rule = [&](Policy& policy) { policy.units = {rule}; };
  rule.pattern = "blocks.*";
  EXPECT_HAS(refused_for(4, false, with_rule),
             "parallel.units: blocks.* matches none of the model's units, which are embedding, "
             "block.0, ... head");
  rule.pattern = "block.*";
  rule.backward_prefetch = Prefetch{1, {"block.7"}};
  EXPECT_HAS(refused_for(4, false, with_rule),
             "parallel.units: backward_prefetch block.7: the model has no such unit");
}

TEST(Reductions, OverlapWithAsManyUnitsAsTheLimitSays) {
  const ModelDescription model = make_model(6, false, 37);
  for (int most = 0; most <= 3; ++most) {
    Policy policy = sharded(2);
    policy.in_flight_reductions = most;
    const StepPlan plan = train_plan(model, 2, policy);
    const HappensBefore order(plan);
    for (int block = 5; block > most; --block) {
      const int reduction = find(plan, Kind::reduce_scatter, "block." + std::to_string(block));
      for (int later = block - 1; later >= 0; --later) {
        const int backward = find(plan, Kind::backward, "block." + std::to_string(later));
        EXPECT_EQ(order.before(reduction, backward), block - later > most)
            << most << " in flight, " << block - later << " units later";
      }
    }
  }
}

TEST(Patterns, StarsStandForAnyText) {
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"block.*", "block.12"},
                                                        {"block.*", "block."},
                                                        {"*", ""},
                                                        {"*", "head"},
                                                        {"*.1*", "block.12"},
                                                        {"b*k*2", "block.1-2"},
                                                        {"h**d", "head"}})
    EXPECT_TRUE(matches(pattern, text)) << pattern;
  for (const auto& [pattern, text] :
       std::vector<std::pair<const char*, const char*>>{{"block.*", "block"},
                                                        {"b*k*2", "block.1-3"},
                                                        {"", "head"},
                                                        {"hea", "head"},
                                                        {"head*d", "head"}})
    EXPECT_FALSE(matches(pattern, text)) << pattern;
}

}  // namespace
}  // namespace ostrakon::tests
