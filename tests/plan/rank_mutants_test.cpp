// SPDX-License-Identifier: Apache-2.0

// The proof over the plans of all ranks finds what is wrong with plans that were broken on purpose.
// What is wrong is determined by an oracle that runs each rank by itself.

#include <ostrakon/plan/passes/waits.hpp>

#include "plan/mutants.hpp"
#include "plan/random_pipelines.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

void other_micro_batch(StepPlan& plan, std::size_t a) { ++plan.actions[a].micro_batch; }
void other_role(StepPlan& plan, std::size_t a) {
  Role& role = plan.actions[a].uses[0].role;
  role = role == Role::gradient ? Role::output : Role::gradient;
}
void send_less(StepPlan& plan, std::size_t a) {
  Action& send = plan.actions[a];
  plan.buffers[send.uses[0].buffer].bytes -= send.element_bytes;
  --send.elements;
}
void other_dtype(StepPlan& plan, std::size_t a) {
  plan.actions[a].element_bytes /= 2;
  plan.actions[a].elements *= 2;
}
void other_peer(StepPlan& plan, std::size_t a) {
  plan.actions[a].peer = (plan.actions[a].peer + 1) % plan.grid.stages();
}
void halve_elements(StepPlan& plan, std::size_t a) { plan.actions[a].elements /= 2; }
void keep_nothing(StepPlan& plan, std::size_t a) {
  auto& uses = plan.actions[a].uses;
  uses.erase(&uses.back());
}
void keep_less(StepPlan& plan, std::size_t a) {
  buffer_of(plan, plan.actions[a], Role::replaced).bytes -= 4;
}
void do_twice(StepPlan& plan, std::size_t a) {
  insert_action(plan, a + 1, Action(plan.actions[a]));
}
void restore_sums(StepPlan& plan, std::size_t a) {
  use_in(plan.actions[a], Role::replaced).buffer = plan.sums;
}

bool is_optimistic(const Action& action) {
  return action.kind == Kind::optimize && action.buffer(Role::replaced) >= 0;
}

/// One rank of several, with a plan of its own, lacks the step's sums.
bool drop_sums(RankPlans& ranks, Random& random) {
  if (ranks.plan_of_rank.size() == 1) return false;
  StepPlan& plan = ranks.own_plan(random() % ranks.plan_of_rank.size());
  const auto sums = actions_of(plan, of_kind(Kind::reduce_sums));
  if (!sums.empty()) remove_action(plan, sums.front());
  return !sums.empty();
}

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
  Action& action = plan.actions[draw(all, random)];
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

// ---- what a stage sends and receives, and when ranks differ

std::vector<NamedMutation> mutations_of_messages() {
  return {
      {"dropped send", change(Kind::send, remove_action), {"has no match"}},
      {"dropped receive", change(Kind::receive, remove_action), {"has no match"}},
      {"swapped sends",
       swap_sends,
       {"they are of other micro-batches", "of the model leaves it", "one is an activation",
        "one is of parameters", "its buffer has other bytes", "are sent, "}},
      {"swapped receives",
       swap_receives,
       {"they stop each other", "other micro-batches", "one is an activation",
        "one is of parameters", "its buffer has other bytes", "are sent, ",
        "of the model leaves it"}},
      {"another unit", another_unit, {"of the model leaves it"}},
      {"wrong micro-batch",
       change(Kind::receive, other_micro_batch),
       {"they are of other micro-batches"}},
      {"gradient for an activation",
       change(Kind::send, other_role),
       {"one is an activation, one a gradient", "one is of parameters"}},
      {"wrong bytes", change(Kind::send, send_less), {"are sent, ", "its buffer has other bytes"}},
      {"wrong dtype", change(Kind::receive, other_dtype), {"are sent, "}},
      {"other peer",
       change(Kind::send, other_peer),
       {"has no match", "there is no such other stage"}},
      {"swapped collectives on one rank", swap_collectives, {"they are not the same"}},
      {"one clip more on one rank", add_a_clip, {"submits no more"}},
      {"sums that one rank does not add", drop_sums, {"submits no more", "they are not the same"}},
      {"wrong span on one rank",
       change_span,
       {"its buffers are not parts over these ranks", "submits no more", "not the same",
        "do not divide", "they are no equal parts", "not as many as its buffers have",
        " bytes, and ", "collectives on stream exchange"}},
      // The array seems to be divided otherwise.
      {"wrong layout on one stage",
       change(is_of_parts, halve_elements),
       {"not as many as its buffers have", "they are no equal parts"}},
      {"one stream for sends and receives", block, {"they stop each other"}},
      {"parameters not shared", drop_share, {"are not shared with the other stage"}},
      {"update not verified",
       change(Kind::verify, remove_action),
       {"is not verified", "before the update is verified"}},
      {"update verified before the sums are known",
       verify_early,
       {"before the step's sums are known"}},
      {"nothing kept to undo an update with",
       change(is_optimistic, keep_nothing),
       {"keeps nothing to undo it with"}},
      {"too little kept to undo an update with",
       change(is_optimistic, keep_less),
       {"has not as many bytes"}},
      {"updated twice before it is verified",
       change(is_optimistic, do_twice),
       {"before the update is verified"}},
      {"other buffer restored",
       change(Kind::verify, restore_sums),
       {"has other replaced than the update"}}};
}

// ---- what all ranks of a stage do alike, and wrongly

/// Another of the spans that ranks of the stage can be divided into.
bool draw_span(const Grid& grid, Span& span, Random& random) {
  std::vector<Span> others;
  for (Axis axis : {Axis::shard, Axis::replicate}) {
    const int size = static_cast<int>(grid.size(axis));
    for (int ranks = 1; ranks <= size; ++ranks)
      for (int stride = 1; ranks * stride <= size; ++stride) {
        const Span other{axis, ranks, stride};
        if (size % (ranks * stride) == 0 && other != span && (ranks > 1 || stride == 1))
          others.push_back(other);
      }
  }
  if (others.empty()) return false;
  span = draw(others, random);
  return true;
}

/// An action, drawn from those that `which` says, is over another span.
Mutation change_span_for_all(const std::function<bool(const Action&)>& which) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto found = actions_of(plan, which);
    return !found.empty() && draw_span(plan.grid, plan.actions[draw(found, random)].span, random);
  };
}

/// An array is divided over one span more, or fewer.
bool change_divided(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  std::vector<Buffer*> arrays;
  for (Buffer& buffer : plan.buffers)
    if (!buffer.flats.empty()) arrays.push_back(&buffer);
  if (arrays.empty()) return false;
  Spans& divided = draw(arrays, random)->divided;
  Span more{Axis::micro_batch, 1};
  if (!divided.empty())
    divided = divided.outer();
  else if (draw_span(plan.grid, more, random) && more.ranks > 1)
    divided.push(more);
  else
    return false;
  return true;
}

bool change_tree(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto sums = actions_of(plan, of_kind(Kind::reduce_scatter));
  if (sums.empty()) return false;
  Action& sum = plan.actions[draw(sums, random)];
  sum.tree = sum.tree == 0 ? 1 : random() % 2 == 0 ? 0 : 2 * sum.tree;
  return true;
}

/// A reduce-scatter that adds to the sum so far begins another, or the other way round.
Mutation change_sum(Access from, Access to) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto sums = actions_of(plan, [&](const Action& action) {
      return action.kind == Kind::reduce_scatter &&
             action.continues_sum() == (from == Access::read_write);
    });
    if (sums.empty()) return false;
    for (Use& use : plan.actions[draw(sums, random)].uses)
      if (use.role == Role::gradient_shard) use.access = to;
    return true;
  };
}

bool add_to_itself(RankPlans& ranks, Random& random) {
  StepPlan& plan = draw(ranks.plans, random);
  const auto found = actions_of(plan, of_kind(Kind::accumulate));
  if (found.empty()) return false;
  Action& action = plan.actions[draw(found, random)];
  use_in(action, Role::source).buffer = action.buffer(Role::parameter_gradients);
  return true;
}

bool swap_sources(RankPlans& ranks, Random& random) {
  return with_neighbours(
      draw(ranks.plans, random), random, of_kind(Kind::accumulate), [](Action& a, Action& b) {
        std::swap(use_in(a, Role::source).buffer, use_in(b, Role::source).buffer);
        return true;
      });
}

std::vector<NamedMutation> mutations_of_stages() {
  const std::vector<std::string> contents = {"which has ",     "which is for ",
                                             "its layout ",    "are not parts over these ranks",
                                             "not as many as", "they are no equal parts"};
  const std::vector<std::string> sums = {"is not summed over",
                                         "a use of the parameters is missing",
                                         "not summed over the same",
                                         "no siblings in the tree",
                                         "adds to another sum",
                                         "not both gradients of this unit",
                                         "which has nothing yet",
                                         "of another form",
                                         "is for "};
  return {
      {"span of a gather in place", change_span_for_all(is_in_place), contents},
      {"span of a gather of updates", change_span_for_all(of_kind(Kind::gather_updates)), contents},
      {"span of a sum",
       change_span_for_all(of_kind(Kind::reduce_scatter)),
       {"are not parts over these ranks", "they are no equal parts"}},
      {"dropped gather in place", change(is_in_place, remove_action), contents},
      {"dropped gather of updates",
       change(Kind::gather_updates, remove_action),
       {"is left with ", "which has "}},
      {"what a buffer is divided over",
       change_divided,
       {"which has ", "which is for ", "its layout ", "are not parts over these ranks",
        "not as many as", "of another form", "are not summed", "whose "}},
      {"tree of a sum", change_tree, {"sums by "}},
      {"sum that begins again",
       change_sum(Access::read_write, Access::write),
       {"drops the sum over the micro-batches before"}},
      {"sum that adds to nothing",
       change_sum(Access::write, Access::read_write),
       {"adds to a sum that has not begun", "which has nothing yet"}},
      {"dropped sum", change(Kind::reduce_scatter, remove_action), sums},
      {"dropped accumulation", change(Kind::accumulate, remove_action), sums},
      {"accumulation of one sum twice", add_to_itself, {"no siblings in the tree", "are in both"}},
      {"accumulation of other sums", swap_sources, sums}};
}

/// Breaks plans of pipelines in each of these ways, and counts how often they were refused.
std::map<std::string, int> refuse_all(const std::vector<NamedMutation>& mutations, int bases,
                                      const PipelineSizes& sizes, std::uint64_t seed) {
  // Where streams are merged, or messages of two other stages swapped, ranks may still get through.
  const auto may_be_equivalent = [](const std::string& name) {
    return name == "one stream for sends and receives" || name == "swapped sends" ||
           name == "swapped receives";
  };
  Random random(seed);
  std::map<std::string, int> counts;
  for (int base = 0; base < bases && !::testing::Test::HasFatalFailure(); ++base) {
    const RandomPipeline made = random_pipeline(random, sizes);
    const RankPlans whole = all_ranks(made.stages);
    for (const NamedMutation& mutation : mutations)
      for (int i = 0; i < 3; ++i) {
        RankPlans mutant = whole;
        if (!mutation.mutate(mutant, random)) continue;
        const std::string reason = refused(mutant);
        SCOPED_TRACE(text(mutation.name, " of ", made.described, ": ", reason));
        const auto run = [&] { return RankOracle(mutant, Sending::rendezvous, random).run(); };
        if (reason.empty() && may_be_equivalent(mutation.name)) {
          for (int order = 0; order < 3; ++order) EXPECT_EQ(run(), "");
          continue;
        }
        EXPECT_TRUE(has_one_of(reason, mutation.reasons));
        if (testing::contains(reason, "they stop each other")) {
          EXPECT_EQ(run(), "stuck");
        }
        ++counts[mutation.name];
      }
  }
  return counts;
}

TEST(RankMutants, OfMessagesAreRefused) {
  const auto mutations = mutations_of_messages();
  auto counts = refuse_all(mutations, 150, {4, 4, 6, 2}, 25);
  for (const NamedMutation& mutation : mutations)
    EXPECT_GT(counts[mutation.name], 15) << mutation.name;
}

TEST(RankMutants, OfAllRanksOfAStageAreRefused) {
  const auto mutations = mutations_of_stages();
  auto counts = refuse_all(mutations, trials(3000), {3, 16, 4, 2}, 27);
  for (const NamedMutation& mutation : mutations)
    EXPECT_GT(counts[mutation.name], trials(15)) << mutation.name;
}

}  // namespace
}  // namespace ostrakon::tests
