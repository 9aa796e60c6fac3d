// SPDX-License-Identifier: Apache-2.0

// The proof over the plans of all ranks: it holds for every pipeline that is planned, and finds
// what is wrong with plans that were broken on purpose. What is wrong is determined by an oracle
// that runs each rank by itself.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/passes/waits.hpp>
#include <ostrakon/plan/proof/order.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <stdexcept>

#include "plan/random_pipelines.hpp"
#include "plan/rank_mutants.hpp"
#include "plan/rank_oracle.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

/// What the proof of a rank's memory says.
std::string memory_refused(const StepPlan& plan) {
  return refused_by([&] {
    for (Space space : {Space::device, Space::host}) prove_memory(plan, plan_memory(plan, space));
  });
}

// ---- plans that are written

/// Whether units defer phases of backward.
bool defers_something(const StepPlan& plan) {
  return std::any_of(plan.units.begin(), plan.units.end(),
                     [](const PlannedUnit& unit) { return unit.first_of_gradients > 0; });
}

TEST(StageProof, HoldsForEveryPipelineThatIsPlanned) {
  Random random(21);
  std::map<std::size_t, int> seen;
  int defer = 0;
  const int trials = tests::trials(takes_every_case() ? 10000 : 3000);
  for (int trial = 0; trial < trials; ++trial) {
    const RandomPipeline made = trial % 4 == 1 ? random_pipeline(random, {8, 4, 16, 5, 1, true})
                                               : random_pipeline(random, {8, 4, 16, 5});
    ++seen[made.stages.size()];
    defer += std::any_of(made.stages.begin(), made.stages.end(), defers_something);
    ASSERT_NO_THROW(prove_stages(made.stages)) << "trial " << trial << ": " << made.described;
    if (trial % 4 != 0) continue;  // planning memory takes longest
    for (const StepPlan& plan : made.stages)
      ASSERT_EQ(memory_refused(plan), "") << "trial " << trial << ": " << made.described;
  }
  for (std::size_t stages = 1; stages <= 8; ++stages)
    EXPECT_GT(seen[stages], trials / 100) << stages;
  EXPECT_GT(defer, trials * 3 / 100);
}

bool is_optimistic(const Action& action) {
  return action.kind == Kind::optimize && action.buffer(Role::replaced) >= 0;
}

/// Sums that travel while units are updated begin to when nothing is added any more, and it is
/// known whether a rank could read its samples; no update waits for them.
TEST(OptimisticPlans, SumsWaitForAllThatIsReadAndNoUpdateWaitsForThem) {
  Random random(31);
  int plans = 0, updates = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const RandomPipeline made = random_pipeline(random, {4, 4, 6, 3});
    for (const StepPlan& plan : made.stages) {
      const auto sums = actions_of(plan, of_kind(Kind::reduce_sums));
      if (sums.empty()) continue;
      ++plans;
      ASSERT_EQ(sums.size(), 1u) << made.described;
      const Order order(plan);
      const int reduce = static_cast<int>(sums.front());
      for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
        const Action& action = plan.actions[static_cast<std::size_t>(a)];
        if (action.kind == Kind::load || action.kind == Kind::loss || action.kind == Kind::norm) {
          ASSERT_TRUE(order.before(a, reduce)) << plan.describe(action) << ", " << made.described;
        }
        if (!is_optimistic(action)) continue;
        ++updates;
        ASSERT_FALSE(order.before(reduce, a)) << plan.describe(action) << ", " << made.described;
        ASSERT_TRUE(action.unit >= 0 && plan.units[action.unit].whole_matrices.empty());
      }
    }
  }
  EXPECT_GT(plans, 100);
  EXPECT_GT(updates, 200);
}

TEST(StageProof, HoldsForPlansWithoutPipeline) {
  Random random(22);
  for (int trial = 0; trial < tests::trials(1000); ++trial) {
    ModelDescription model = make_model(3, random() % 2 == 0, random());
    vary(random, model);
    Policy policy = random_policy(random, model, 6, 18);
    vary(random, model, policy);
    try {
      const StepPlan plan = build_step_plan(model, 6, policy, purposes[random() % 3]);
      ASSERT_NO_THROW(prove_stages({&plan})) << trial;
    } catch (const Error&) {
      // A limit that is below what one action needs.
    }
  }
}

TEST(StageProof, AgreesWithTheOracleOnPipelinesThatArePlanned) {
  Random random(23);
  for (int trial = 0; trial < 100; ++trial) {
    const RandomPipeline made = random_pipeline(random, {5, 4, 6, 2});
    const RankPlans ranks = all_ranks(made.stages);
    ASSERT_EQ(refused(ranks), "") << made.described;
    for (int i = 0; i < 3; ++i)
      ASSERT_EQ(RankOracle(ranks, Sending::rendezvous, random).run(), "") << made.described;
  }
}

// ---- plans written by hand

/// Actions of a stage on one stream, with a buffer for each message.
class HandMade {
 public:
  explicit HandMade(int stage, int stages = 2) {
    plan_.grid = Grid(1, 1, 1, stages);
    plan_.stage = stage;
  }
  HandMade& send(int peer, bool gradient) { return add(Kind::send, peer, gradient); }
  HandMade& receive(int peer, bool gradient) { return add(Kind::receive, peer, gradient); }
  StepPlan plan() const { return plan_; }

 private:
  HandMade& add(Kind kind, int peer, bool gradient) {
    Buffer buffer;
    buffer.bytes = 64;
    plan_.buffers.push_back(buffer);
    Action action;
    action.kind = kind;
    action.stream = Stream::send;
    action.micro_batch = 0;
    action.peer = peer;
    action.elements = 16;
    action.element_bytes = 4;
    action.uses = {{gradient ? Role::gradient : Role::input,
                    static_cast<int>(plan_.buffers.size()) - 1,
                    kind == Kind::send ? Access::read : Access::write}};
    plan_.actions.push_back(action);
    return *this;
  }

  StepPlan plan_;
};

TEST(StageProof, AssumesNoBuffering) {
  // Both send before they receive: it works where sends are buffered, as small ones often are.
  const RankPlans crossed = all_ranks({HandMade(0).send(1, false).receive(1, true).plan(),
                                       HandMade(1).send(0, true).receive(0, false).plan()});
  Random random(24);
  EXPECT_EQ(RankOracle(crossed, Sending::buffered, random).run(), "");
  EXPECT_EQ(RankOracle(crossed, Sending::rendezvous, random).run(), "stuck");
  expect_has(
      refused(crossed),
      "they stop each other: stage 0's send(micro-batch 0, to stage 1) matches stage 1's "
      "receive(micro-batch 0, from stage 0), which comes after stage 1's send(micro-batch 0, "
      "to stage 0), which matches stage 0's receive(micro-batch 0, from stage 1), which comes "
      "after stage 0's send(micro-batch 0, to stage 1)");
  const RankPlans corrected = all_ranks({HandMade(0).send(1, false).receive(1, true).plan(),
                                         HandMade(1).receive(0, false).send(0, true).plan()});
  EXPECT_EQ(refused(corrected), "");
  EXPECT_EQ(RankOracle(corrected, Sending::rendezvous, random).run(), "");
}

TEST(StageProof, FindsCirclesOfManyStages) {
  // Each sends to the next, the last to the first, and receives afterwards.
  std::vector<StepPlan> stages;
  for (int s = 0; s < 5; ++s)
    stages.push_back(HandMade(s, 5).send((s + 1) % 5, false).receive((s + 4) % 5, false).plan());
  expect_has(refused(all_ranks(stages)), "they stop each other");
  stages[2] = HandMade(2, 5).receive(1, false).send(3, false).plan();
  EXPECT_EQ(refused(all_ranks(stages)), "");
}

// ---- mutants

/// Swaps what two neighbouring sends to the same stage send.
bool swap_sends(RankPlans& ranks, Random& random) {
  return with_neighbours(draw(ranks.plans, random), random, of_kind(Kind::send),
                         [](Action& a, Action& b) {
                           if (a.peer != b.peer) return false;
                           std::swap(a.micro_batch, b.micro_batch);
                           std::swap(a.uses, b.uses);
                           return true;
                         });
}

/// On one rank of a stage of several, or on a stage, two neighbouring collectives of a stream.
bool swap_collectives(RankPlans& ranks, Random& random) {
  StepPlan& plan = ranks.own_plan(random() % ranks.plan_of_rank.size());
  return with_neighbours(plan, random, is_collective, [&](Action& a, Action& b) {
    if (a.stream != b.stream || a.span != b.span || plan.describe(a) == plan.describe(b))
      return false;
    std::swap(a, b);
    std::swap(a.waits, b.waits);
    return true;
  });
}

/// A clip before the last update on one rank or stage, for that it comes to clip twice.
bool add_a_clip(RankPlans& ranks, Random& random) {
  const std::size_t rank = random() % ranks.plan_of_rank.size();
  if (ranks.plan_of_rank.size() == 1) return false;
  StepPlan& plan = ranks.own_plan(rank);
  const auto clips = actions_of(plan, of_kind(Kind::clip));
  if (clips.empty()) return false;
  Action clip = plan.actions[clips.front()];
  clip.waits.clear();
  plan.actions.push_back(clip);
  return true;
}

/// One rank's collective, and the buffers that it is about, are along another axis, or over fewer
/// ranks.
bool change_span(RankPlans& ranks, Random& random) {
  const std::size_t rank = random() % ranks.plan_of_rank.size();
  StepPlan& plan = ranks.own_plan(rank);
  const auto all = actions_of(plan, is_collective);
  if (all.empty()) return false;
  Action& action = plan.actions[all[random() % all.size()]];
  const Span before = action.span;
  const Axis other = before.axis == Axis::shard ? Axis::replicate : Axis::shard;
  if (plan.grid.size(other) == before.ranks)
    action.span.axis = other;
  else if (before.ranks % 2 == 0)
    action.span.ranks /= 2;
  else
    return false;
  return true;
}

/// Whether the elements of a collective are those of an array that its buffers have.
bool is_of_parts(const Action& action) {
  return is_collective(action) && action.kind != Kind::gather_updates;
}

/// Sends and receives of a stage run on one stream, and compute waits for each send at once.
bool block(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto receives = actions_of(plan, of_kind(Kind::receive));
  if (receives.empty()) return false;
  for (std::size_t a : receives) plan.actions[a].stream = Stream::send;
  find_waits(plan);
  return true;
}

/// A receive comes later in its stream than the next one.
bool swap_receives(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  return with_neighbours(plan, random, of_kind(Kind::receive), [&](Action& a, Action& b) {
    std::swap(a.peer, b.peer);
    std::swap(a.micro_batch, b.micro_batch);
    std::swap(a.uses, b.uses);
    std::swap(a.unit, b.unit);
    find_waits(plan);
    return true;
  });
}

/// Changes an action as if the message were for another chunk of the stage.
bool another_unit(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto found = actions_of(plan, of_kind(Kind::receive));
  const int units = static_cast<int>(plan.units.size());
  if (found.empty() || units == 1) return false;
  Action& receive = plan.actions[draw(found, random)];
  receive.unit = (receive.unit + 1) % units;
  return true;
}

/// Drops the sharing of parameters of which two stages have a copy, on both of them.
bool drop_share(RankPlans& ranks, Random&) {
  bool any = false;
  for (StepPlan& plan : ranks.plans) {
    const auto found = actions_of(plan, [](const Action& action) {
      return (action.kind == Kind::send || action.kind == Kind::receive) &&
             action.buffer(Role::shard) >= 0;
    });
    if (found.empty()) continue;
    remove_action(plan, found.front());
    any = true;
  }
  return any;
}

/// Swaps a verification with the clip, on all ranks of a stage.
bool verify_early(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto clips = actions_of(plan, of_kind(Kind::clip)),
             verified = actions_of(plan, of_kind(Kind::verify));
  if (verified.empty()) return false;
  std::swap(plan.actions[clips.front()], plan.actions[draw(verified, random)]);
  find_waits(plan);
  return true;
}

TEST(StageProof, RefusesEveryMutantThatIsBroken) {
  struct Named {
    const char* name;
    Mutation mutate;
    std::vector<std::string> reasons;  // one of them, wherever it is refused
  };
  const std::vector<Named> mutations = {{"dropped send",
                                         change(Kind::send, remove_action),
                                         {"has no match"}},
                                        {"dropped receive",
                                         change(Kind::receive, remove_action),
                                         {"has no match"}},
                                        {"swapped sends",
                                         swap_sends,
                                         {"they are of other micro-batches",
                                          "of the model leaves it", "one is an activation",
                                          "one is of parameters", "its buffer has other bytes",
                                          "are sent, "}},
                                        {"another unit", another_unit, {"of the model leaves it"}},
                                        {"wrong micro-batch",
                                         change(Kind::receive,
                                                [](StepPlan& plan, std::size_t a) {
                                                  ++plan.actions[a].micro_batch;
                                                }),
                                         {"they are of other micro-batches"}},
                                        {"gradient for an activation",
                                         change(Kind::send,
                                                [](StepPlan& plan, std::size_t a) {
                                                  Role& role = plan.actions[a].uses[0].role;
                                                  role = role == Role::gradient ? Role::output
                                                                                : Role::gradient;
                                                }),
                                         {"one is an activation, one a gradient",
                                          "one is of parameters"}},
                                        {"wrong bytes",
                                         change(Kind::send,
                                                [](StepPlan& plan, std::size_t a) {
                                                  Action& send = plan.actions[a];
                                                  plan.buffers[static_cast<std::size_t>(
                                                                   send.uses[0].buffer)]
                                                      .bytes -= send.element_bytes;
                                                  --send.elements;
                                                }),
                                         {"are sent, ", "its buffer has other bytes"}},
                                        {"wrong dtype",
                                         change(Kind::receive,
                                                [](StepPlan& plan, std::size_t a) {
                                                  plan.actions[a].element_bytes /= 2;
                                                  plan.actions[a].elements *= 2;
                                                }),
                                         {"are sent, "}},
                                        {"other peer",
                                         change(Kind::send,
                                                [](StepPlan& plan, std::size_t a) {
                                                  plan.actions[a].peer =
                                                      (plan.actions[a].peer + 1) %
                                                      plan.grid.stages();
                                                }),
                                         {"has no match", "there is no such other stage"}},
                                        {"swapped collectives on one rank",
                                         swap_collectives,
                                         {"they are not the same"}},
                                        {"one clip more on one rank",
                                         add_a_clip,
                                         {"submits no more"}},
                                        {"wrong span on one rank",
                                         change_span,
                                         {"its buffers are not parts over these ranks",
                                          "submits no more", "not the same", "do not divide",
                                          "they are no equal parts",
                                          "not as many as its buffers have", " bytes, and ",
                                          "collectives on stream exchange"}},
                                        {"wrong layout on one stage",  // half the elements: as if
                                                                       // the array were divided
                                                                       // otherwise
                                         change(is_of_parts,
                                                [](StepPlan& plan, std::size_t a) {
                                                  plan.actions[a].elements /= 2;
                                                }),
                                         {"not as many as its buffers have",
                                          "they are no equal parts"}},
                                        {"one stream for sends and receives",
                                         block,
                                         {"they stop each other"}},
                                        {"parameters not shared",
                                         drop_share,
                                         {"are not shared with the other stage"}},
                                        {"update not verified",
                                         change(Kind::verify, remove_action),
                                         {"is not verified", "before the update is verified"}},
                                        {"update verified before the sums are known",
                                         verify_early,
                                         {"before the step's sums are known"}},
                                        {"nothing kept to undo an update with",
                                         change(is_optimistic,
                                                [](StepPlan& plan, std::size_t a) {
                                                  auto& uses = plan.actions[a].uses;
                                                  uses.erase(&uses.back());
                                                }),
                                         {"keeps nothing to undo it with"}},
                                        {"too little kept to undo an update with",
                                         change(
                                             is_optimistic,
                                             [](StepPlan& plan, std::size_t a) {
                                               const int kept =
                                                   plan.actions[a].buffer(Role::replaced);
                                               plan.buffers[static_cast<std::size_t>(kept)].bytes -=
                                                   4;
                                             }),
                                         {"has not as many bytes"}},
                                        {"updated twice before it is verified",
                                         change(is_optimistic,
                                                [](StepPlan& plan, std::size_t a) {
                                                  insert_action(plan, a + 1,
                                                                Action(plan.actions[a]));
                                                }),
                                         {"before the update is verified"}},
                                        {"other buffer restored",
                                         change(Kind::verify,
                                                [](StepPlan& plan, std::size_t a) {
                                                  use_in(plan.actions[a], Role::replaced).buffer =
                                                      plan.sums;
                                                }),
                                         {"has other replaced than the update"}},
                                        {"sums that one rank does not add",
                                         [](RankPlans& ranks, Random& random) {
                                           if (ranks.plan_of_rank.size() == 1) return false;
                                           StepPlan& plan =
                                               ranks.own_plan(random() % ranks.plan_of_rank.size());
                                           const auto sums =
                                               actions_of(plan, of_kind(Kind::reduce_sums));
                                           if (!sums.empty()) remove_action(plan, sums.front());
                                           return !sums.empty();
                                         },
                                         {"submits no more", "they are not the same"}},
                                        {"swapped receives",
                                         swap_receives,
                                         {"they stop each other", "other micro-batches",
                                          "one is an activation", "one is of parameters",
                                          "its buffer has other bytes", "are sent, ",
                                          "of the model leaves it"}}};
  Random random(25);
  std::map<std::string, std::pair<int, int>> counts;  // refused, accepted
  for (int base = 0; base < 150; ++base) {
    const RandomPipeline made = random_pipeline(random, {4, 4, 6, 2});
    const RankPlans whole = all_ranks(made.stages);
    for (const Named& mutation : mutations)
      for (int i = 0; i < 3; ++i) {
        RankPlans mutant = whole;
        if (!mutation.mutate(mutant, random)) continue;
        const std::string reason = refused(mutant);
        const std::string which = text(mutation.name, " of ", made.described, ": ", reason);
        auto& [killed, accepted] = counts[mutation.name];
        if (reason.empty()) {
          // Then ranks must get through it, in any order.
          for (int order = 0; order < 3; ++order)
            ASSERT_EQ(RankOracle(mutant, Sending::rendezvous, random).run(), "") << which;
          ++accepted;
          continue;
        }
        ++killed;
        if (reason.find("they stop each other") != std::string::npos) {
          EXPECT_EQ(RankOracle(mutant, Sending::rendezvous, random).run(), "stuck") << which;
        }
        EXPECT_TRUE(std::any_of(
            mutation.reasons.begin(), mutation.reasons.end(),
            [&](const std::string& part) { return reason.find(part) != std::string::npos; }))
            << which;
      }
  }
  for (const Named& mutation : mutations) {
    const auto [killed, accepted] = counts[mutation.name];
    std::printf("%-34s %4d refused %4d equivalent\n", mutation.name, killed, accepted);
    EXPECT_GT(killed, 15) << mutation.name;
    // Where streams are merged, or messages of two other stages swapped, ranks may still get
    // through.
    const std::string name = mutation.name;
    EXPECT_TRUE(accepted == 0 || name == "one stream for sends and receives" ||
                name == "swapped sends" || name == "swapped receives")
        << name;
  }
}

/// What sends and receives wait for is no matter between ranks: the proof of memory sees it.
TEST(StageProof, WaitsOfMessagesAreProvenWithTheMemory) {
  Random random(26);
  int sends = 0, received = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const RandomPipeline made = random_pipeline(random, {4, 2, 4, 2});
    for (const StepPlan& plan : made.stages) {
      // A send waits for what it sends to be there.
      for (std::size_t a : actions_of(plan, of_kind(Kind::send))) {
        StepPlan mutant = plan;
        auto& waits = mutant.actions[a].waits;
        if (waits.empty()) continue;
        waits.clear();
        expect_has(memory_refused(mutant), "does not wait for");
        ++sends;
      }
      // What reads a message waits for it to have come.
      for (std::size_t a = 0; a < plan.actions.size(); ++a)
        for (std::size_t w = 0; w < plan.actions[a].waits.size(); ++w) {
          const auto wait = static_cast<std::size_t>(plan.actions[a].waits[w]);
          if (plan.actions[wait].kind != Kind::receive) continue;
          StepPlan mutant = plan;
          mutant.actions[a].waits.erase(mutant.actions[a].waits.begin() +
                                        static_cast<std::ptrdiff_t>(w));
          expect_has(memory_refused(mutant), "does not wait for");
          ++received;
        }
    }
  }
  EXPECT_GT(sends, 100);
  EXPECT_GT(received, 100);
}

TEST(StageProof, NamesTheRankWhereThoseOfAStageDiffer) {
  Policy policy = make_policy(4 * 2);
  policy.shard_group = 2;
  RankPlans ranks = all_ranks(
      build_stage_plans(make_model(2, false, 3), {{0, 2}, {2, 4}}, 4, policy, Purpose::train));
  StepPlan& own = ranks.own_plan(5);
  const auto gathers = actions_of(own, of_kind(Kind::gather));
  remove_action(own, gathers.back());
  const std::string reason = refused(ranks);
  expect_has(reason, "stage 1 (rank 4)'s ");
  expect_has(reason, "where stage 1 (rank 5) submits no more");
}

TEST(StageProof, RefusesPlansThatAreNotOfOneStep) {
  const ModelDescription model = make_model(2, false, 3);
  const auto build = [&](std::int64_t leaves) {
    return build_stage_plans(model, {{0, 2}, {2, 4}}, 2, make_policy(leaves), Purpose::train);
  };
  const std::vector<StepPlan> plans = build(4), longer = build(8);
  const auto reason = [&](const std::vector<const StepPlan*>& ranks) {
    return refused_by([&] { prove_ranks(ranks); });
  };
  EXPECT_EQ(reason({&plans[0], &plans[0], &plans[1], &plans[1]}), "");
  expect_has(reason({&plans[0], &plans[0], &plans[1]}), "plans of 3 ranks of 4");
  expect_has(reason({&plans[0], &plans[0], &longer[1], &longer[1]}), "for other axes");
  expect_has(reason({&plans[0], &plans[1], &plans[0], &plans[1]}),
             "rank 1 is of stage 0, its plan is that of stage 1");
}

// ---- phases that are deferred

/// A change of one deferred phase, action `a`. False where it has none to make.
struct DeferredMutation {
  const char* name;
  bool (*mutate)(StepPlan& plan, std::size_t a);
};

constexpr DeferredMutation deferred_mutations[] = {
    {"never computed",
     [](StepPlan& plan, std::size_t a) {
       remove_action(plan, a);
       return true;
     }},
    {"computed twice",
     [](StepPlan& plan, std::size_t a) {
       insert_action(plan, a + 1, Action(plan.actions[a]));
       return true;
     }},
    {"of another micro-batch",
     [](StepPlan& plan, std::size_t a) {
       if (plan.grid.micro_batches() == 1) return false;
       Action& action = plan.actions[a];
       action.micro_batch = static_cast<int>((action.micro_batch + 1) % plan.grid.micro_batches());
       return true;
     }},
    {"another phase",
     [](StepPlan& plan, std::size_t a) {
       --plan.actions[a].phase;
       return true;
     }},
    {"of what another micro-batch has left",
     [](StepPlan& plan, std::size_t a) {
       constexpr Role roles[] = {Role::input, Role::saved, Role::deferred};
       Action& action = plan.actions[a];
       for (Action& other : plan.actions) {
         if (other.kind != Kind::backward || other.unit != action.unit ||
             other.phase != action.phase || other.micro_batch == action.micro_batch)
           continue;
         if (std::all_of(std::begin(roles), std::end(roles),
                         [&](Role role) { return other.buffer(role) == action.buffer(role); }))
           continue;
         std::swap(action.uses, other.uses);
         return true;
       }
       return false;
     }},
    {"gradients of a phase before",
     [](StepPlan& plan, std::size_t a) {
       Action& later = plan.actions[a];
       if (later.phase != plan.units[static_cast<std::size_t>(later.unit)].first_of_gradients)
         return false;
       const int gradients = later.buffer(Role::parameter_gradients);
       for (std::size_t b = a; gradients >= 0 && b-- > 0;) {
         Action& earlier = plan.actions[b];
         if (earlier.kind != Kind::backward || earlier.unit != later.unit ||
             earlier.micro_batch != later.micro_batch)
           continue;
         earlier.uses.push_back({Role::parameter_gradients, gradients, Access::write});
         return true;
       }
       return false;
     }},
};

TEST(StageProof, FindsWhatIsWrongWithDeferredPhases) {
  Random random(29);
  std::map<std::string, int> counts;
  for (int trial = 0; trial < 1000; ++trial) {
    const RandomPipeline made = random_pipeline(random, {4, 3, 5, 3, 1, true});
    for (const DeferredMutation& mutation : deferred_mutations) {
      std::vector<StepPlan> mutants = made.stages;
      StepPlan& mutant = draw(mutants, random);
      const auto deferred = actions_of(mutant, [&](const Action& action) {
        const int first =
            action.unit < 0
                ? 0
                : mutant.units[static_cast<std::size_t>(action.unit)].first_of_gradients;
        return action.kind == Kind::backward && first > 0 && action.phase >= first;
      });
      if (deferred.empty() || !mutation.mutate(mutant, draw(deferred, random))) continue;
      EXPECT_NE(refused_by([&] { prove_stages(mutants); }), "")
          << mutation.name << " of " << made.described;
      ++counts[mutation.name];
    }
  }
  for (const DeferredMutation& mutation : deferred_mutations)
    EXPECT_GT(counts[mutation.name], 50) << mutation.name;
}

}  // namespace
