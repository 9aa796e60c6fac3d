// SPDX-License-Identifier: Apache-2.0

// Units that compute in several phases, with exchanges of activations between them: what is
// planned, where it lies in memory, and what is refused. tests/train/tensor_test.cpp runs such
// units.

#include <ostrakon/plan/timing/traffic.hpp>

#include "plan/mutants.hpp"
#include "plan/oracle.hpp"

namespace ostrakon::tests {
namespace {

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

  StepPlan build() const { return train_plan(model, ranks, policy); }
};

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
    return buffer_of(plan, action, role).bytes;
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
  EXPECT_EQ(count_of(plan, Kind::exchange), 0);
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

TEST(Phases, ProofRefusesAnotherWorkspaceThanTheKeptOne) {
  const Overlapping over;
  const auto refused_with = [&](const std::function<void(StepPlan&, Use&)>& change) {
    StepPlan mutant = over.plan;
    for (std::size_t a : actions_of(mutant, of_kind(Kind::forward, 1)))
      if (mutant.actions[a].phase == 2) change(mutant, use_in(mutant.actions[a], Role::workspace));
    return refused(mutant);
  };
  EXPECT_EQ(refused_with([](StepPlan&, Use&) {}), "");
  const char* const words = "does not work in the workspace that the phase before it has kept";
  EXPECT_HAS(refused_with([](StepPlan&, Use& use) { use.access = Access::write; }), words);
  EXPECT_HAS(refused_with([](StepPlan& its, Use& use) {
               its.buffers.push_back(Buffer(its.buffers[use.buffer]));
               use.buffer = static_cast<int>(its.buffers.size()) - 1;
             }),
             words);
}

/// Without any one of the waits, or with the exchanges read in the other order.
TEST(Phases, ProofRefusesOverlapThatIsNotWaitedFor) {
  for (const bool again : {false, true}) {
    const Overlapping over(again);
    expect_proven(over.plan);
    const auto waiting = actions_of(over.plan, [&](const Action& action) {
      return action.kind == Kind::exchange ||
             (action.kind == Kind::release &&
              std::any_of(action.waits.begin(), action.waits.end(), [&](int other) {
                return over.plan.actions[other].kind == Kind::exchange;
              }));
    });
    EXPECT_GE(waiting.size(), 8u);
    for (std::size_t a : waiting) {
      StepPlan mutant = over.plan;
      mutant.actions[a].waits.clear();
      EXPECT_NE(memory_refused(mutant), "") << over.plan.describe(over.plan.actions[a]);
    }
    StepPlan swapped = over.plan;
    for (Action& action : swapped.actions)
      if (action.buffer(Role::second_recv_buffer) >= 0)
        std::swap(use_in(action, Role::recv_buffer).role,
                  use_in(action, Role::second_recv_buffer).role);
    EXPECT_HAS(refused(swapped), "what it reads did not come of the exchange of phase 0");
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

// ---- what is refused

struct RefusedPhases {
  std::function<void(Phases&)> change;
  std::string words;
};

TEST(Phases, RefuseReadsOfWhatIsNotHandedOver) {
  const std::string none = "expected an earlier phase that has one";
  for (const RefusedPhases& one : std::vector<RefusedPhases>{
           {[](Phases&) {}, ""},
           {[](Phases& all) { all[2].reads = {2}; },
            "phase 2 of forward reads an exchange of phase 2; " + none},
           {[](Phases& all) {
              all[2].reads = {0, 1};
              all[3].reads = {0, 2};
            },
            "phase 3 of forward reads an exchange of phase 2; " + none},
           {[](Phases& all) {
              all[2].reads = {0, 1};
              all[3].reads = {0, -1};
            },
            "phase 3 of forward reads an exchange of phase -1; " + none},
           {[](Phases& all) {
              all[3].reads = {0, 1, 0};
            },
            "phase 3 of forward reads 3 exchanges; expected at most 2"},
           {[](Phases& all) { all[3].reads = {0}; },
            "phase 1 of forward hands over an exchange that no later phase reads"},
           {[](Phases& all) { all[3].keeps_workspace = true; },
            "phase 3 of forward is the last, but keeps its workspace for a next one"}}) {
    Phases phases(4);
    phases[0].then = TwoPhases::sum();
    phases[1].then = TwoPhases::all();
    phases[3].reads = {0, 1};
    one.change(phases);
    const std::string said = refusal([&] { check_reads(phases, "u", "forward"); });
    EXPECT_EQ(said.empty(), one.words.empty()) << said;
    EXPECT_HAS(said, one.words);
  }
}

TEST(Phases, RefuseExchangesThatDivideNothing) {
  const std::string after = "unit block.0: the exchange after phase 0 of ";
  const auto exchange_of = [](Phases& phases) -> Exchange& { return *phases[0].then; };
  const std::pair<std::function<void(UnitDescription&)>, std::string> cases[] = {
      {[](UnitDescription&) {}, ""},
      {[&](UnitDescription& unit) { exchange_of(unit.forward).span.ranks = 3; },
       after + "forward is over 3 ranks, which do not divide the 4 along shard"},
      {[&](UnitDescription& unit) { exchange_of(unit.backward).elements = 4001; },
       after + "backward is of 4001 elements, which are no equal parts for 4 ranks"},
      {[&](UnitDescription& unit) { exchange_of(unit.forward).span.axis = Axis::pipeline; },
       after + "forward is along pipeline, expected an axis of ranks of a stage"},
      {[](UnitDescription& unit) { unit.backward.pop_back(); },
       "unit block.0: phase 0 of backward hands over an exchange that no later phase reads"},
      {[](UnitDescription& unit) { unit.backward.clear(); },
       "unit block.0: backward has no phase"}};
  for (const auto& [change, words] : cases) {
    TwoPhases two;
    change(two.model.units[1]);
    const std::string said = refusal([&] { two.build(); });
    EXPECT_EQ(said.empty(), words.empty()) << said;
    EXPECT_HAS(said, words);
  }
}

using ExchangeChange = std::function<void(StepPlan&, Action&)>;

/// One rank's plan, or all ranks', are changed.
TEST(Phases, ProofRefusesExchangesThatDoNotFit) {
  struct Case {
    ExchangeChange change;
    bool all;
    std::string reason;
  };
  const StepPlan plan = TwoPhases().build();
  for (const Case& one :
       std::vector<Case>{{[](StepPlan&, Action&) {}, false, ""},
                         {[](StepPlan&, Action&exchange) { exchange.elements /= 2; }, true,
                          "not as many as its buffers have"},
                         {[](StepPlan&, Action&exchange) { exchange.micro_batch = 1; }, false,
                          "they are not the same"},
                         {[](StepPlan&its, Action&exchange) {
                            exchange.span.ranks = 2;
                            buffer_of(its, exchange, Role::recv_buffer).bytes *= 2;
                          },
                          false, "submits no more"},
                         {[](StepPlan&its, Action&exchange) {
                            exchange.elements *= 2;
                            for (Role role : {Role::send_buffer, Role::recv_buffer})
                              buffer_of(its, exchange, role).bytes *= 2;
                          },
                          false, "elements of 4 bytes, and"},
                         // A gather of a quarter of the elements it would fit its buffers.
                         {[](StepPlan&its, Action&exchange) {
                            exchange.exchange = ExchangeKind::all_to_all;
                            buffer_of(its, exchange, Role::recv_buffer).bytes *= 4;
                          },
                          false, "reduce_scatter and all_to_all"},
                         {[](StepPlan&, Action&exchange) { exchange.may_be_empty = true; }, false,
                          "only one of them may be empty"}}) {
    RankPlans ranks = all_ranks({plan});
    StepPlan& mutant = one.all ? ranks.plans[0] : ranks.own_plan(2);
    one.change(mutant, mutant.actions[actions_of(mutant, of_kind(Kind::exchange)).front()]);
    const std::string reason = refused(ranks);
    EXPECT_EQ(reason.empty(), one.reason.empty()) << reason;
    EXPECT_HAS(reason, one.reason);
  }
}

}  // namespace
}  // namespace ostrakon::tests
