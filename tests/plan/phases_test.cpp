// SPDX-License-Identifier: Apache-2.0

// Units that compute in several phases, with exchanges of activations between them: what is
// planned, where it lies in memory, and what is refused. tests/runtime/phases_test.cpp runs such a
// unit.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <stdexcept>

#include "plan/oracle.hpp"
#include "plan/random_pipelines.hpp"
#include "plan/rank_mutants.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

/// A block in two phases on a shard group of four: forward ends each with partial sums of what it
/// computes, which are added up and divided over the ranks; backward gathers what it starts from.
struct TwoPhases {
  static constexpr int ranks = 4;
  ModelDescription model = make_model(2, false, 7);
  Policy policy = make_policy(2 * ranks);

  TwoPhases() {
    UnitDescription& block = model.units[1];
    block.recomputes = true;
    block.forward = {{100.0, 60.0, 512, sum()}, {10.0, 4.0, 256, {}, {0}}};
    block.backward = {{20.0, 0.0, 128, all()}, {200.0, 0.0, 1024, {}, {0}}};
  }
  static Exchange sum() { return {ExchangeKind::reduce_scatter, {Axis::shard, ranks}, 4000, 4}; }
  static Exchange all() { return {ExchangeKind::gather, {Axis::shard, ranks}, 8000, 4}; }

  StepPlan build() const { return build_step_plan(model, ranks, policy, Purpose::train); }
};

/// What is done with a unit for a micro-batch, but for parameters and gradients.
std::vector<std::string> computed(const StepPlan& plan, int unit, int micro_batch) {
  std::vector<std::string> found;
  for (const Action& action : plan.actions)
    if (action.unit == unit && action.micro_batch == micro_batch)
      found.push_back(plan.describe(action));
  return found;
}

TEST(Phases, StandInThePlanWithTheirExchangesBetween) {
  TwoPhases two;
  const std::vector<std::string> phases = {
      "forward(block.0, micro-batch 1, phase 0)",  "exchange(block.0, micro-batch 1, phase 0)",
      "forward(block.0, micro-batch 1, phase 1)",  "backward(block.0, micro-batch 1, phase 0)",
      "exchange(block.0, micro-batch 1, phase 0)", "backward(block.0, micro-batch 1, phase 1)"};
  EXPECT_EQ(computed(two.build(), 1, 1), phases);
  // A unit of one phase is described as ever.
  EXPECT_EQ(computed(two.build(), 2, 1),
            (std::vector<std::string>{"forward(block.1, micro-batch 1)",
                                      "backward(block.1, micro-batch 1)"}));
  two.policy.activation_checkpointing.every = 1;
  const std::vector<std::string> again = {"recompute(block.0, micro-batch 1, phase 0)",
                                          "exchange(block.0, micro-batch 1, phase 0)",
                                          "recompute(block.0, micro-batch 1, phase 1)"};
  const std::vector<std::string> all = computed(two.build(), 1, 1);
  ASSERT_EQ(all.size(), 9u);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), all.begin() + 3));
}

const Action& find(const StepPlan& plan, const std::string& described) {
  for (const Action& action : plan.actions)
    if (plan.describe(action) == described) return action;
  throw std::logic_error("no " + described);
}

TEST(Phases, HandOverThroughPlannedBuffers) {
  const StepPlan plan = TwoPhases().build();
  const Action& before = find(plan, "forward(block.0, micro-batch 0, phase 0)");
  const Action& exchange = find(plan, "exchange(block.0, micro-batch 0, phase 0)");
  const Action& after = find(plan, "forward(block.0, micro-batch 0, phase 1)");
  const auto bytes = [&](const Action& action, Role role) {
    return plan.buffers[static_cast<std::size_t>(action.buffer(role))].bytes;
  };
  EXPECT_EQ(before.buffer(Role::send_buffer), exchange.buffer(Role::send_buffer));
  EXPECT_EQ(after.buffer(Role::recv_buffer), exchange.buffer(Role::recv_buffer));
  EXPECT_EQ(bytes(exchange, Role::send_buffer), 16000);
  EXPECT_EQ(bytes(exchange, Role::staging), 16000);
  EXPECT_EQ(bytes(exchange, Role::recv_buffer), 4000);
  EXPECT_EQ(exchange.stream, Stream::exchange);
  EXPECT_EQ(plan.bytes_sent(exchange), 12000);
  // Each phase has its flops and its workspace; the last writes the output, all share what is
  // saved.
  EXPECT_EQ(before.flops, 100.0);
  EXPECT_EQ(after.flops, 10.0);
  EXPECT_EQ(bytes(before, Role::workspace), 512);
  EXPECT_EQ(bytes(after, Role::workspace), 256);
  EXPECT_EQ(before.buffer(Role::output), -1);
  EXPECT_GE(after.buffer(Role::output), 0);
  EXPECT_EQ(before.buffer(Role::saved), after.buffer(Role::saved));
  EXPECT_EQ(after.buffer(Role::send_buffer), -1);
}

TEST(Phases, OverOneRankNothingIsExchanged) {
  TwoPhases two;
  two.model.units[1].forward[0].then->span.ranks = 1;
  two.model.units[1].backward[0].then->span.ranks = 1;
  const StepPlan plan = two.build();
  EXPECT_TRUE(std::none_of(plan.actions.begin(), plan.actions.end(),
                           [](const Action& action) { return action.kind == Kind::exchange; }));
  EXPECT_EQ(find(plan, "forward(block.0, micro-batch 0, phase 0)").buffer(Role::send_buffer),
            find(plan, "forward(block.0, micro-batch 0, phase 1)").buffer(Role::recv_buffer));
}

TEST(Phases, MayFollowEachOtherWithoutAnExchange) {
  TwoPhases two;
  two.model.units[1].forward[0].then.reset();
  two.model.units[1].forward[1].reads.clear();
  const StepPlan plan = two.build();
  const Action& first = find(plan, "forward(block.0, micro-batch 0, phase 0)");
  const Action& second = find(plan, "forward(block.0, micro-batch 0, phase 1)");
  EXPECT_EQ(first.buffer(Role::send_buffer), -1);
  EXPECT_EQ(second.buffer(Role::recv_buffer), -1);
  EXPECT_EQ(first.buffer(Role::saved), second.buffer(Role::saved));
}

/// Two exchanges: the first runs while phase 1 computes, both while phase 2 does. Phases 1 and 2
/// share a workspace.
struct Overlapping {
  TwoPhases two;
  StepPlan plan;

  explicit Overlapping(bool again = false) {
    UnitDescription& block = two.model.units[1];
    block.forward = {{1.0, 1.0, 64, TwoPhases::sum()},
                     {2.0, 2.0, 256, TwoPhases::all()},
                     {4.0, 4.0, 128, {}},
                     {8.0, 8.0, 32, {}, {0, 1}}};
    block.forward[1].keeps_workspace = true;
    two.policy.activation_checkpointing.every = again ? 1 : 0;
    plan = two.build();
  }
  const Action& phase(int p) const {
    return find(plan, text("forward(block.0, micro-batch 0, phase ", p, ")"));
  }
};

TEST(Phases, OverlapWithExchangesThatLaterOnesRead) {
  const Overlapping over;
  std::vector<std::string> found;
  for (const Action& action : over.plan.actions)
    if (action.unit == 1 && action.kind != Kind::gather)
      found.push_back(over.plan.describe(action));
  found.resize(8);
  const std::vector<std::string> expected = {"forward(block.0, micro-batch 0, phase 0)",
                                             "exchange(block.0, micro-batch 0, phase 0)",
                                             "forward(block.0, micro-batch 0, phase 1)",
                                             "exchange(block.0, micro-batch 0, phase 1)",
                                             "forward(block.0, micro-batch 0, phase 2)",
                                             "release(block.0)",
                                             "release(block.0)",
                                             "forward(block.0, micro-batch 0, phase 3)"};
  EXPECT_EQ(found, expected);
  for (int p : {1, 2}) {
    EXPECT_TRUE(over.phase(p).waits.empty()) << p;
    EXPECT_EQ(over.phase(p).buffer(Role::recv_buffer), -1);
  }
  const Action& last = over.phase(3);
  EXPECT_EQ(last.buffer(Role::recv_buffer),
            find(over.plan, "exchange(block.0, micro-batch 0, phase 0)").buffer(Role::recv_buffer));
  EXPECT_EQ(last.buffer(Role::second_recv_buffer),
            find(over.plan, "exchange(block.0, micro-batch 0, phase 1)").buffer(Role::recv_buffer));
}

TEST(Phases, ShareAWorkspaceThatIsKept) {
  const Overlapping over;
  const int shared = over.phase(1).buffer(Role::workspace);
  EXPECT_EQ(over.phase(2).buffer(Role::workspace), shared);
  EXPECT_EQ(over.plan.buffers[static_cast<std::size_t>(shared)].bytes, 256);
  EXPECT_NE(over.phase(0).buffer(Role::workspace), shared);
  EXPECT_NE(over.phase(3).buffer(Role::workspace), shared);
}

TEST(Phases, ProofRefusesAnotherWorkspaceThanTheKeptOne) {
  const Overlapping over;
  const auto refusal = [&](const std::function<void(StepPlan&, Use&)>& change) {
    StepPlan mutant = over.plan;
    for (Action& action : mutant.actions)
      if (action.kind == Kind::forward && action.unit == 1 && action.phase == 2)
        for (Use& use : action.uses)
          if (use.role == Role::workspace) change(mutant, use);
    return refused_by([&] { prove_stages({&mutant}); });
  };
  EXPECT_EQ(refusal([](StepPlan&, Use&) {}), "");
  const char* const words = "does not work in the workspace that the phase before it has kept";
  expect_has(refusal([](StepPlan&, Use& use) { use.access = Access::write; }), words);
  expect_has(refusal([](StepPlan& its, Use& use) {
               its.buffers.push_back(its.buffers[static_cast<std::size_t>(use.buffer)]);
               use.buffer = static_cast<int>(its.buffers.size()) - 1;
             }),
             words);
}

/// Without any one of the waits, or with the exchanges read in the other order.
TEST(Phases, ProofRefusesOverlapThatIsNotWaitedFor) {
  for (const bool again : {false, true}) {
    const Overlapping over(again);
    const MemoryPlan memory = plan_memory(over.plan);
    ASSERT_EQ(refused_by([&] { prove_memory(over.plan, memory); }), "");
    ASSERT_EQ(refused_by([&] { prove_stages({&over.plan}); }), "");
    int mutants = 0;
    for (std::size_t a = 0; a < over.plan.actions.size(); ++a) {
      const Action& action = over.plan.actions[a];
      const bool is_exchange = action.kind == Kind::exchange;
      const bool ends_one =
          action.kind == Kind::release &&
          std::any_of(action.waits.begin(), action.waits.end(), [&](int other) {
            return over.plan.actions[static_cast<std::size_t>(other)].kind == Kind::exchange;
          });
      if (!is_exchange && !ends_one) continue;
      StepPlan mutant = over.plan;
      mutant.actions[a].waits.clear();
      EXPECT_NE(refused_by([&] { prove_memory(mutant, memory); }), "")
          << over.plan.describe(action);
      ++mutants;
    }
    EXPECT_GE(mutants, 8);
    StepPlan swapped = over.plan;
    for (Action& action : swapped.actions)
      if (action.buffer(Role::second_recv_buffer) >= 0)
        for (Use& use : action.uses) {
          if (use.role == Role::recv_buffer)
            use.role = Role::second_recv_buffer;
          else if (use.role == Role::second_recv_buffer)
            use.role = Role::recv_buffer;
        }
    expect_has(refused_by([&] { prove_stages({&swapped}); }),
               "what it reads did not come of the exchange of phase 0");
  }
}

TEST(Phases, RecomputeThoseThatBackwardNeeds) {
  const auto phases = [](const std::vector<bool>& recomputes,
                         const std::vector<std::vector<int>>& reads) {
    Phases all(recomputes.size());
    for (std::size_t p = 0; p < all.size(); ++p) {
      all[p].recomputes = recomputes[p];
      all[p].reads = reads[p];
    }
    return recomputed_phases(all);
  };
  using Numbers = std::vector<int>;
  Phases kept(3);
  kept[0].keeps_workspace = true;
  kept[0].recomputes = kept[2].recomputes = false;
  EXPECT_EQ(recomputed_phases(kept), (Numbers{0, 1}));
  EXPECT_EQ(phases({true, true, true}, {{}, {0}, {1}}), (Numbers{0, 1, 2}));
  // Those between that leave nothing are left out, unless one that does reads them.
  EXPECT_EQ(phases({true, false, true, false}, {{}, {0}, {0}, {1}}), (Numbers{0, 2}));
  EXPECT_EQ(phases({true, false, true, false}, {{}, {0}, {1}, {1}}), (Numbers{0, 1, 2}));
  EXPECT_EQ(phases({false, false}, {{}, {0}}), (Numbers{0}));
}

TEST(Phases, RefuseReadsOfWhatIsNotHandedOver) {
  const auto refusal = [](const std::function<void(Phases&)>& change) {
    Phases phases(4);
    phases[0].then = TwoPhases::sum();
    phases[1].then = TwoPhases::all();
    phases[3].reads = {0, 1};
    change(phases);
    try {
      check_reads(phases, "u", "forward");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal([](Phases&) {}), "");
  EXPECT_EQ(refusal([](Phases& all) { all[2].reads = {2}; }),
            "unit u: phase 2 of forward reads an exchange of phase 2; expected an earlier phase "
            "that has one");
  EXPECT_EQ(refusal([](Phases& all) {
              all[2].reads = {0, 1};
              all[3].reads = {0, 2};
            }),
            "unit u: phase 3 of forward reads an exchange of phase 2; expected an earlier phase "
            "that has one");
  EXPECT_EQ(refusal([](Phases& all) {
              all[2].reads = {0, 1};
              all[3].reads = {0, -1};
            }),
            "unit u: phase 3 of forward reads an exchange of phase -1; expected an earlier phase "
            "that has one");
  EXPECT_EQ(refusal([](Phases& all) {
              all[3].reads = {0, 1, 0};
            }),
            "unit u: phase 3 of forward reads 3 exchanges; expected at most 2");
  EXPECT_EQ(refusal([](Phases& all) { all[3].reads = {0}; }),
            "unit u: phase 1 of forward hands over an exchange that no later phase reads "
            "(Phase::reads)");
  EXPECT_EQ(refusal([](Phases& all) { all[3].keeps_workspace = true; }),
            "unit u: phase 3 of forward is the last, but keeps its workspace for a next one");
}

TEST(Phases, AreWrittenForModelsOfAllKinds) {
  std::mt19937_64 random(31);
  int exchanges = 0, recomputed = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const RandomPipeline made = random_pipeline(random, {1, 4, 3, 3});
    const StepPlan& plan = made.stages[0];
    const PlacedPlan placed = place(plan);
    for (const MemoryPlan& memory : placed.memory) ASSERT_NO_THROW(prove_memory(plan, memory));
    ASSERT_NO_THROW(prove_stages(made.stages)) << made.described;
    ASSERT_FALSE(is_broken(placed)) << made.described;
    const Outcome meant = meaning(placed);
    SymbolicMachine machine(placed);
    for (int i = 0; i < 10; ++i)
      ASSERT_EQ(machine.run(random_order(plan, random)), meant) << made.described;
    for (const Action& action : plan.actions) {
      exchanges += action.kind == Kind::exchange ? 1 : 0;
      recomputed += action.kind == Kind::recompute && action.phase > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(exchanges, 100);
  EXPECT_GT(recomputed, 10);
}

// ---- what is refused

std::string refused_plan(const TwoPhases& two) {
  try {
    two.build();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Phases, RefuseExchangesThatDivideNothing) {
  const auto refusal = [](const std::function<void(UnitDescription&)>& change) {
    TwoPhases two;
    change(two.model.units[1]);
    return refused_plan(two);
  };
  EXPECT_EQ(refusal([](UnitDescription&) {}), "");
  EXPECT_EQ(
      refusal([](UnitDescription& unit) { unit.forward[0].then->span.ranks = 3; }),
      "unit block.0: the exchange after phase 0 of forward is over 3 ranks, which do not divide "
      "the 4 along shard");
  EXPECT_EQ(
      refusal([](UnitDescription& unit) { unit.backward[0].then->elements = 4001; }),
      "unit block.0: the exchange after phase 0 of backward is of 4001 elements, which are no "
      "equal parts for 4 ranks");
  EXPECT_EQ(
      refusal([](UnitDescription& unit) { unit.forward[0].then->span.axis = Axis::pipeline; }),
      "unit block.0: the exchange after phase 0 of forward is along pipeline, expected an axis "
      "of ranks of a stage");
  EXPECT_EQ(refusal([](UnitDescription& unit) { unit.backward.pop_back(); }),
            "unit block.0: phase 0 of backward hands over an exchange that no later phase reads "
            "(Phase::reads)");
  EXPECT_EQ(refusal([](UnitDescription& unit) { unit.backward.clear(); }),
            "unit block.0: backward has no phase");
}

/// One rank's plan, or all ranks', are changed.
TEST(Phases, ProofRefusesExchangesThatDoNotFit) {
  const StepPlan plan = TwoPhases().build();
  const auto refusal = [&](const std::function<void(StepPlan&, Action&)>& change, bool all) {
    RankPlans ranks = all_ranks({plan});
    StepPlan& mutant = all ? ranks.plans[0] : ranks.own_plan(2);
    for (Action& action : mutant.actions)
      if (action.kind == Kind::exchange) {
        change(mutant, action);
        break;
      }
    return refused(ranks);
  };
  const auto expect_refused = [&](const std::function<void(StepPlan&, Action&)>& change, bool all,
                                  const std::string& reason) {
    const std::string found = refusal(change, all);
    EXPECT_NE(found.find(reason), std::string::npos) << "'" << found << "', not '" << reason << "'";
  };
  EXPECT_EQ(refusal([](StepPlan&, Action&) {}, false), "");
  expect_refused([](StepPlan&, Action& exchange) { exchange.elements /= 2; }, true,
                 "not as many as its buffers have");
  expect_refused([](StepPlan&, Action& exchange) { exchange.micro_batch = 1; }, false,
                 "they are not the same");
  expect_refused(
      [](StepPlan& its, Action& exchange) {
        exchange.span.ranks = 2;
        its.buffers[static_cast<std::size_t>(exchange.buffer(Role::recv_buffer))].bytes *= 2;
      },
      false, "submits no more");
  expect_refused(
      [](StepPlan& its, Action& exchange) {
        exchange.elements *= 2;
        for (Role role : {Role::send_buffer, Role::recv_buffer})
          its.buffers[static_cast<std::size_t>(exchange.buffer(role))].bytes *= 2;
      },
      false, "elements of 4 bytes, and");
  // A gather of a quarter of the elements it would fit its buffers.
  expect_refused(
      [](StepPlan& its, Action& exchange) {
        exchange.exchange = ExchangeKind::all_to_all;
        its.buffers[static_cast<std::size_t>(exchange.buffer(Role::recv_buffer))].bytes *= 4;
      },
      false, "reduce_scatter and all_to_all");
  expect_refused([](StepPlan&, Action& exchange) { exchange.may_be_empty = true; }, false,
                 "only one of them may be empty");
}

/// All ranks do the same, and all do it wrong.
TEST(Phases, ProofRefusesExchangesThatAllRanksGetWrong) {
  TwoPhases two;
  two.policy.leaves = 8 * TwoPhases::ranks;  // two micro-batches on each rank of four groups
  two.policy.shard_group = TwoPhases::ranks;
  two.policy.activation_checkpointing.every = 1;
  const StepPlan plan =
      build_step_plan(two.model, 4 * TwoPhases::ranks, two.policy, Purpose::train);
  ASSERT_NO_THROW(prove_stages({&plan}));
  const auto exchanges = actions_of(plan, of_kind(Kind::exchange));
  ASSERT_EQ(exchanges.size(), 6u);  // forward, recompute and backward of two micro-batches
  const auto refusal = [&](std::size_t a, const std::function<void(StepPlan&, Action&)>& change) {
    StepPlan mutant = plan;
    change(mutant, mutant.actions[a]);
    return refused_by([&] { prove_stages({&mutant}); });
  };
  const auto buffer_of = [](StepPlan& its, const Action& action, Role role) -> Buffer& {
    return its.buffers[static_cast<std::size_t>(action.buffer(role))];
  };
  for (std::size_t a : exchanges) {
    StepPlan dropped = plan;
    remove_action(dropped, a);
    expect_has(refused_by([&] { prove_stages({&dropped}); }),
               "what it reads did not come of the exchange of phase");
    expect_has(refusal(a, [](StepPlan&, Action& action) { action.span.axis = Axis::replicate; }),
               "its unit asks for");
    for (int stride : {1, 2})
      expect_has(
          refusal(a,
                  [&](StepPlan& its, Action& action) {
                    const bool gathers = action.exchange == ExchangeKind::gather;
                    action.span = {Axis::shard, 2, stride};
                    buffer_of(its, action, gathers ? Role::send_buffer : Role::recv_buffer).bytes *=
                        2;
                  }),
          "its unit asks for");
    // Another kind of exchange, with buffers to fit.
    expect_has(refusal(a,
                       [&](StepPlan& its, Action& action) {
                         const bool gathers = action.exchange == ExchangeKind::gather;
                         action.exchange =
                             gathers ? ExchangeKind::reduce_scatter : ExchangeKind::gather;
                         std::swap(buffer_of(its, action, Role::send_buffer).bytes,
                                   buffer_of(its, action, Role::recv_buffer).bytes);
                       }),
               "its unit asks for");
    expect_has(refusal(a, [](StepPlan&, Action& action) { action.micro_batch ^= 1; }),
               "its phase has not left this");
    expect_has(refusal(a, [](StepPlan&, Action& action) { ++action.phase; }),
               "its phase has not left this");
    expect_has(refusal(a, [](StepPlan&, Action& action) { action.may_be_empty = true; }),
               "its unit says that it is never empty");
    expect_has(refusal(a, [](StepPlan&, Action& action) { action.empty_if_even = true; }),
               "its unit says otherwise of even routing");
  }
  // What two of them are about changes places.
  for (std::size_t i = 0; i + 1 < exchanges.size(); ++i) {
    StepPlan swapped = plan;
    std::swap(swapped.actions[exchanges[i]].uses, swapped.actions[exchanges[i + 1]].uses);
    EXPECT_NE(refused_by([&] { prove_stages({&swapped}); }), "") << i;
  }
}

/// What a phase reads it waits for.
TEST(Phases, WaitsAroundExchangesAreNeeded) {
  const StepPlan plan = TwoPhases().build();
  int dropped = 0;
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    for (std::size_t w = 0; w < plan.actions[a].waits.size(); ++w) {
      const auto wait = static_cast<std::size_t>(plan.actions[a].waits[w]);
      if (plan.actions[a].kind != Kind::exchange && plan.actions[wait].kind != Kind::exchange)
        continue;
      PlacedPlan mutant = place(plan);
      auto& waits = mutant.plan.actions[a].waits;
      waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
      ASSERT_TRUE(is_broken(mutant)) << plan.describe(plan.actions[a]);
      EXPECT_THROW(prove_memory(mutant.plan, mutant.memory[0]), std::logic_error);
      ++dropped;
    }
  EXPECT_GE(dropped, 8);
}

}  // namespace
