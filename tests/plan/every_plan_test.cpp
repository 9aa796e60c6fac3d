// SPDX-License-Identifier: Apache-2.0

// What holds for every plan: random ones of all purposes, and of stages of pipelines.

#include <array>
#include <map>
#include <ostrakon/plan/passes/gradients.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <ostrakon/plan/report/report.hpp>
#include <set>

#include "plan/oracle.hpp"
#include "plan/random_pipelines.hpp"
#include "support/trials.hpp"

namespace ostrakon::tests {
namespace {

template <class Look>
void for_random_plans(int count, std::uint64_t seed, const Look& look) {
  Random random(seed);
  for (int trial = 0; trial < count && !::testing::Test::HasFatalFailure(); ++trial) {
    const RandomPlan made = random_plan(random, 4, 8, 4);
    SCOPED_TRACE(made.described);
    look(made);
  }
}

/// Looks at random plans, and at those of the stages of random pipelines.
void for_many(const std::function<void(const StepPlan&)>& look) {
  Random random(71);
  for (int trial = 0; trial < trials(1200) && !::testing::Test::HasFatalFailure(); ++trial) {
    const RandomPlan made = random_plan(random, 3, 4, 3);
    const RandomPipeline pipeline = random_pipeline(random, {4, 4, 6, 3});
    SCOPED_TRACE(made.described + "; " + pipeline.described);
    look(made.plan);
    for (const StepPlan& plan : pipeline.stages) look(plan);
  }
}

// ---- memory

bool is_live(const Buffer& buffer, int a) {
  return buffer.persistent || (buffer.first <= a && a <= buffer.last);
}

/// Buffers that are live together share nothing, and the peak is the most that is live.
void expect_apart(const StepPlan& plan, const MemoryPlan& memory) {
  std::int64_t end = memory.persistent_bytes, most = 0;
  std::vector<const Buffer*> placed;
  for (std::size_t x = 0; x < plan.buffers.size(); ++x) {
    const Buffer& buffer = plan.buffers[x];
    if (buffer.space != memory.space || (!buffer.persistent && buffer.first < 0)) {
      ASSERT_EQ(memory.offsets[x], -1);
      continue;
    }
    placed.push_back(&buffer);
    const std::int64_t begin_x = memory.offsets[x], end_x = begin_x + buffer.bytes;
    ASSERT_EQ(begin_x % buffer_alignment, 0);
    ASSERT_EQ(begin_x < memory.persistent_bytes, buffer.persistent);
    ASSERT_LE(end_x, memory.arena_bytes);
    end = std::max(end, end_x);
    for (std::size_t y = 0; y < x; ++y) {
      const Buffer& other = plan.buffers[y];
      if (memory.offsets[y] < 0 || (!buffer.persistent && !is_live(other, buffer.first) &&
                                    !(buffer.first <= other.first && other.first <= buffer.last)))
        continue;
      const std::int64_t begin_y = memory.offsets[y], end_y = begin_y + other.bytes;
      ASSERT_TRUE(end_x <= begin_y || end_y <= begin_x) << buffer.name << " and " << other.name;
    }
  }
  EXPECT_LT(memory.arena_bytes - end, buffer_alignment);
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    CategoryBytes live{};
    std::int64_t sum = 0;
    for (const Buffer* buffer : placed)
      if (is_live(*buffer, a)) {
        live[static_cast<std::size_t>(buffer->category)] += aligned(buffer->bytes);
        sum += aligned(buffer->bytes);
      }
    most = std::max(most, sum);
    if (a != memory.peak_action) continue;
    EXPECT_EQ(sum, memory.peak_live_bytes);
    EXPECT_EQ(live, memory.peak_by_category);
  }
  EXPECT_EQ(most, memory.peak_live_bytes);
}

TEST(EveryPlan, IsProvenInLittleMoreThanItsLiveBytes) {
  double worst = 1.0;
  int in_run = 0;
  for_random_plans(trials(4000), 2, [&](const RandomPlan& made) {
    expect_proven(made.plan);
    for (Space space : both_spaces) {
      const MemoryPlan memory = plan_memory(made.plan, space);
      ASSERT_NO_FATAL_FAILURE(expect_apart(made.plan, memory));
      worst = std::max(worst, static_cast<double>(memory.arena_bytes - memory.persistent_bytes) /
                                  static_cast<double>(memory.peak_live_bytes + 1));
      // What stays lies alike in all plans of a run.
      for (Purpose purpose : purposes) {
        StepPlan other;
        const auto build = [&] {
          other = build_step_plan(made.model, made.ranks, made.policy, purpose);
        };
        if (made.purpose == Purpose::decode || !refusal(build).empty()) continue;
        ++in_run;
        const MemoryPlan its = plan_memory(other, space);
        ASSERT_EQ(its.persistent_bytes, memory.persistent_bytes);
        for (std::size_t b = 0; b < other.buffers.size() && other.buffers[b].persistent; ++b) {
          ASSERT_EQ(other.buffers[b].name, made.plan.buffers[b].name);
          ASSERT_EQ(its.offsets[b], memory.offsets[b]);
        }
      }
    }
  });
  // Sizes at random are the hard case; those of a transformer, all alike, are the easy one.
  EXPECT_LT(worst, 1.25);
  EXPECT_GT(in_run, trials(4000));
}

/// Every order that streams and waits allow comes to what the plan means.
TEST(EveryPlan, AgreesWithTheOracle) {
  Random random(3);
  int exchanges = 0, recomputed = 0;
  for (int trial = 0; trial < 250 && !HasFatalFailure(); ++trial) {
    std::vector<StepPlan> plans = random_pipeline(random, {1 + 3 * (trial % 2), 3, 4, 2}).stages;
    const RandomPlan made = random_plan(random, 3, 4, 3);
    SCOPED_TRACE(text("trial ", trial, ": ", made.described));
    plans.push_back(made.plan);
    for (const StepPlan& plan : plans) {
      const PlacedPlan placed = place(plan);
      ASSERT_EQ(memory_refused(plan), "");
      ASSERT_FALSE(is_broken(placed));
      const Outcome meant = meaning(placed);
      SymbolicMachine machine(placed);
      for (int i = 0; i < 10; ++i) ASSERT_EQ(machine.run(random_order(plan, random)), meant);
      exchanges += count_of(plan, Kind::exchange);
      for (std::size_t a : actions_of(plan, of_kind(Kind::recompute)))
        recomputed += plan.actions[a].phase > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(exchanges, 100);
  EXPECT_GT(recomputed, 10);
}

/// Checks that every rank finds its part of a flat parameter, of `count` elements, within the
/// buffer.
void expect_inside(const StepPlan& plan, const Action& action, Role role, FlatRange flat,
                   const Spans& divided, std::int64_t count, std::int64_t element_bytes) {
  if (action.buffer(role) < 0) return;
  const Buffer& buffer = buffer_of(plan, action, role);
  ASSERT_EQ(flat.size(), 1) << plan.describe(action);
  ASSERT_EQ(count, plan.elements(flat, divided)) << plan.describe(action);
  for (int rank = 0; rank < plan.grid.ranks(); ++rank) {
    const std::int64_t first = plan.offset_in(buffer, flat.first, divided, rank);
    ASSERT_GE(first, 0) << plan.describe(action) << " in " << buffer.name;
    ASSERT_LE((first + count) * element_bytes, buffer.bytes)
        << plan.describe(action) << " in " << buffer.name;
  }
}

TEST(EveryPlan, WorksWithinItsBuffers) {
  std::map<Kind, int> seen;
  for_random_plans(1000, 5, [&](const RandomPlan& made) {
    const StepPlan& plan = made.plan;
    for (const Action& action : plan.actions) {
      ++seen[action.kind];
      const auto holds = [&](Role role, FlatRange flat, const Spans& divided, std::int64_t count,
                             std::int64_t element_bytes) {
        ASSERT_NO_FATAL_FAILURE(
            expect_inside(plan, action, role, flat, divided, count, element_bytes));
      };
      const FlatRange trained = action.unit < 0 ? FlatRange() : plan.trained(action.unit);
      const std::int64_t master_bytes = plan.layouts.masters.element_bytes;
      // What the array is divided over when it is whole in this span.
      Spans whole;
      if (action.span.axis == Axis::replicate) whole = plan.grid.levels(Axis::shard);
      if (action.span.stride > 1) whole.push({action.span.axis, action.span.stride});
      Spans part = whole;
      part.push(action.span);
      if (is_copy(action)) {
        for (Role role : {Role::source, Role::target})
          if (action.flats.empty())
            ASSERT_EQ(action.elements * action.element_bytes, buffer_of(plan, action, role).bytes);
          else
            holds(role, action.flats, action.divided, action.elements, action.element_bytes);
      }
      if (action.kind == Kind::gather) {
        holds(Role::parameters, action.flats, whole, action.elements, action.element_bytes);
        holds(Role::shard, action.flats, part, action.elements / action.span.ranks,
              action.converts ? master_bytes : action.element_bytes);
      }
      if (action.kind == Kind::gather_updates)
        holds(Role::shard, trained, whole, action.elements, action.element_bytes);
      if (action.kind == Kind::optimize) {
        holds(Role::gradient_shard, trained, action.divided, action.elements, master_bytes);
        holds(Role::shard, trained, action.divided, action.elements, master_bytes);
        holds(Role::parameters, trained, action.divided, action.elements,
              plan.layouts.gathered.element_bytes);
      }
    }
  });
  for (Kind kind : {Kind::copy_to_device, Kind::copy_to_host, Kind::gather, Kind::gather_updates,
                    Kind::optimize})
    EXPECT_GT(seen[kind], 100) << name(kind);
}

TEST(EveryPlan, HasGradientsOnlyAsSumsOnceTheUpdateBegins) {
  int updated = 0;
  for_random_plans(trials(400), 40, [&](const RandomPlan& made) {
    const StepPlan& plan = made.plan;
    const auto clips = actions_of(plan, of_kind(Kind::clip));
    if (made.purpose != Purpose::train || plan.layouts.updates_early) return;
    for (Space space : both_spaces) {
      const std::vector<CategoryBytes> live = live_bytes(plan, space);
      for (std::size_t a = 0; a < plan.actions.size(); ++a) {
        const GradientBytes bytes = gradients_alive(plan, space, static_cast<int>(a));
        EXPECT_EQ(bytes.in_flight + bytes.partial_sums + bytes.sums,
                  live[a][static_cast<std::size_t>(Category::gradients)]);
        EXPECT_TRUE(a < clips.front() || bytes.partial_sums == 0);
        if (a != clips.front()) continue;
        EXPECT_EQ(bytes.in_flight, 0);
        EXPECT_EQ(bytes.sums > 0, space == plan.layouts.update.space);
        ++updated;
      }
    }
  });
  EXPECT_GT(updated, trials(200));
}

// ---- what is where

/// What the host does is on its stream, and touches its memory only: on a device, actions of other
/// streams do no more than submit work.
TEST(EveryPlan, FindsBuffersWhereItsStreamsRun) {
  int of_host = 0;
  for_many([&](const StepPlan& plan) {
    for (const Action& action : plan.actions) {
      const std::string what = plan.describe(action);
      const Kind kind = action.kind;
      if (kind == Kind::load || kind == Kind::reduce_sums || kind == Kind::clip) {
        ASSERT_EQ(action.stream, Stream::host) << what;
        ++of_host;
      }
      // Stages share what they have, wherever it is.
      if (kind == Kind::release || kind == Kind::send || kind == Kind::receive) continue;
      for (const Use& use : action.uses) {
        const Buffer& buffer = plan.buffers[use.buffer];
        if (buffer.bytes == 0) continue;
        const bool is_there = buffer.space == Space::host;
        const bool expected = use.role == Role::released     ? is_there
                              : kind == Kind::copy_to_device ? use.role == Role::source
                              : kind == Kind::copy_to_host   ? use.role == Role::target
                              : kind != Kind::clip           ? action.stream == Stream::host
                              : use.role == Role::gradient_shard  // where one is not finite
                                  ? plan.layouts.update.space == Space::host
                                  : true;
        ASSERT_EQ(is_there, expected) << what << ", '" << buffer.name << "'";
      }
    }
  });
  EXPECT_GT(of_host, 1000);
}

TEST(EveryPlan, KeepsItsStateWhereItIsSaidToBe) {
  int all_there = 0;
  for_random_plans(trials(2000), 6, [&](const RandomPlan& made) {
    const StepPlan& plan = made.plan;
    const Offload offload = made.policy.offload;
    if (made.purpose != Purpose::train) return;
    const bool parameters = offload == Offload::parameters || offload == Offload::all;
    const bool updates = offload == Offload::optimizer || offload == Offload::all;
    const auto on_host = [&](int buffer) { return plan.buffers[buffer].space == Space::host; };
    EXPECT_EQ(plan.layouts.update.space == Space::host, updates);
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      const PlannedUnit& unit = plan.units[u];
      if (made.model.units[u].parameter_elements == 0) continue;
      EXPECT_EQ(on_host(unit.masters), offload != Offload::none);
      if (unit.layouts.has_copies()) {
        EXPECT_EQ(on_host(unit.compute_copy), parameters);
      }
      const bool trained = !plan.trained(static_cast<int>(u)).empty();
      const int moments = made.policy.moment_count;
      EXPECT_EQ(unit.first_moments >= 0, trained && moments > 0);
      EXPECT_EQ(unit.gradients >= 0, trained);
      for (int buffer : {unit.first_moments, unit.second_moments, unit.gradients})
        if (buffer >= 0) {
          EXPECT_EQ(on_host(buffer), updates);
        }
    }
    if (offload != Offload::all) return;
    std::int64_t kept = 0;
    for (const Buffer& buffer : plan.buffers)
      if (buffer.persistent && buffer.space == Space::device) kept += buffer.bytes;
    EXPECT_EQ(kept, made.model.sums_bytes);
    ++all_there;
  });
  EXPECT_GT(all_there, trials(200));
}

/// The copy has a rank's share of all masters, and moments of what is trained of it; nothing else
/// changes.
TEST(EveryPlan, HasHostMemoryForACheckpointOfWhatARankSaves) {
  int saved = 0;
  for_random_plans(trials(800), 8, [&](const RandomPlan& made) {
    Policy with = made.policy, without = made.policy;
    with.checkpoint_staging = true;
    without.checkpoint_staging = false;
    const StepPlan plan = build_step_plan(made.model, made.ranks, with, made.purpose);
    const StepPlan less = build_step_plan(made.model, made.ranks, without, made.purpose);
    EXPECT_EQ(less.checkpoint, -1);
    if (made.purpose == Purpose::decode) {
      EXPECT_EQ(plan.checkpoint, -1);
      return;
    }
    ASSERT_GE(plan.checkpoint, 0);
    std::int64_t bytes = 0;
    for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
      const std::int64_t trained = plan.padded(plan.trained(u));
      bytes += (4 * (trained + plan.padded(plan.frozen(u))) +
                with.moment_count * bytes_of(with.moments.dtype) * trained) /
               plan.grid.ranks();
    }
    const Buffer& copy = plan.buffers[plan.checkpoint];
    EXPECT_EQ(copy.name, "checkpoint");
    EXPECT_EQ(copy.space, Space::host);
    EXPECT_TRUE(copy.persistent);
    EXPECT_EQ(copy.bytes, bytes);
    EXPECT_EQ(plan.buffers.size(), less.buffers.size() + 1);
    ASSERT_EQ(plan.actions.size(), less.actions.size());
    for (const Action& action : plan.actions)
      for (const Use& use : action.uses) EXPECT_NE(use.buffer, plan.checkpoint);
    EXPECT_NE(plan.hash(), less.hash());
    EXPECT_EQ(plan_memory(plan, Space::host).persistent_bytes,
              plan_memory(less, Space::host).persistent_bytes + aligned(bytes));
    EXPECT_EQ(plan_memory(plan).persistent_bytes, plan_memory(less).persistent_bytes);
    ++saved;
  });
  EXPECT_GT(saved, trials(400));
}

// ---- what comes when

TEST(EveryPlan, ComputesEachLeafOnce) {
  for_random_plans(trials(2000), 9, [](const RandomPlan& made) {
    const StepPlan& plan = made.plan;
    if (made.purpose != Purpose::train) return;
    std::set<std::int64_t> leaves;
    const auto loads = actions_of(plan, of_kind(Kind::load));
    for (std::size_t a : loads)
      for (int rank = 0; rank < plan.grid.ranks(); ++rank)
        EXPECT_TRUE(leaves.insert(plan.leaf(rank, plan.actions[a].micro_batch)).second);
    EXPECT_EQ(static_cast<std::int64_t>(loads.size()), plan.grid.micro_batches());
    EXPECT_EQ(static_cast<std::int64_t>(leaves.size()), made.policy.leaves);
    EXPECT_EQ(*leaves.rbegin(), made.policy.leaves - 1);
  });
}

TEST(EveryPlan, ReadsBatchesAheadOfTheMicroBatchThatIsComputed) {
  int ahead = 0;
  for_many([&](const StepPlan& plan) {
    const HappensBefore order(plan);
    int copied = -1, computed = -1;  // the last copy of a batch, and what came first after it
    int on_host = -1;                // of the last load
    for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
      const Action& action = plan.actions[a];
      if (action.kind == Kind::load) {
        on_host = action.buffer(Role::host_batch);
        if (copied < 0) continue;
        // One of them at a time is in host memory.
        ASSERT_TRUE(order.before(copied, a));
        ASSERT_EQ(computed, -1);
        ++ahead;
      } else if (action.kind == Kind::copy_to_device && action.unit < 0) {
        ASSERT_EQ(action.buffer(Role::source), on_host);
        copied = a;
        computed = -1;
      } else if (action.kind == Kind::forward || action.kind == Kind::backward) {
        computed = a;
      }
    }
  });
  EXPECT_GT(ahead, 100);
}

/// What goes by the step's sums waits for them. What is updated before they are known is verified:
/// sums that travel meanwhile begin to when nothing is added any more, and it is known whether a
/// rank could read its samples; no such update waits for them.
TEST(EveryPlan, OrdersUpdatesAndTheStepsSums) {
  int updates = 0, early = 0;
  for_many([&](const StepPlan& plan) {
    const HappensBefore order(plan);
    const auto reductions = actions_of(plan, of_kind(Kind::reduce_sums));
    ASSERT_LE(reductions.size(), 1u);
    const int reduce = reductions.empty() ? -1 : static_cast<int>(reductions.front());
    int clip = -1;
    for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
      const Action& action = plan.actions[a];
      const Kind kind = action.kind;
      if (kind == Kind::clip) clip = a;
      const bool shares = kind == Kind::receive && action.buffer(Role::shard) >= 0;
      const bool is_optimistic = action.buffer(Role::replaced) >= 0;
      if (kind == Kind::verify || shares ||
          ((kind == Kind::optimize || kind == Kind::direction) && !is_optimistic &&
           !plan.layouts.updates_early)) {
        ASSERT_GE(clip, 0);
        ASSERT_TRUE(order.before(clip, a)) << plan.describe(action);
        ++updates;
      }
      if (reduce < 0) continue;
      if (kind == Kind::load || kind == Kind::loss || kind == Kind::norm) {
        ASSERT_TRUE(order.before(a, reduce)) << plan.describe(action);
      }
      if (kind != Kind::optimize || !is_optimistic) continue;
      ++early;
      ASSERT_FALSE(order.before(reduce, a)) << plan.describe(action);
      ASSERT_TRUE(action.unit >= 0 && plan.units[action.unit].whole_matrices.empty());
    }
  });
  EXPECT_GT(updates, 500);
  EXPECT_GT(early, 100);
}

/// With all streams on one thread, in any order, a rank that waits for all others owes them
/// nothing.
TEST(EveryPlan, CanSendGradientsToAnotherStageBeforeTheSums) {
  int sends = 0;
  for_many([&](const StepPlan& plan) {
    const HappensBefore order(plan);
    const auto adds = actions_of(plan, [](const Action& action) {
      return action.kind == Kind::reduce_sums || action.kind == Kind::clip;
    });
    for (std::size_t a : actions_of(plan, of_kind(Kind::send))) {
      const Action& action = plan.actions[a];
      if (action.buffer(Role::gradient_shard) < 0) continue;
      ASSERT_FALSE(adds.empty());
      for (int wait : action.waits) {
        ASSERT_TRUE(order.before(wait, static_cast<int>(adds.front())));
      }
      ++sends;
    }
  });
  EXPECT_GT(sends, 10);
}

/// The overlap that reports show is that of every collective and copy with every compute.
TEST(EveryPlan, OverlapsAsItsReportSays) {
  const std::set<Kind> computing = {Kind::forward,   Kind::recompute,     Kind::backward,
                                    Kind::direction, Kind::orthogonalize, Kind::optimize};
  int both = 0, both_of_copies = 0;
  for_random_plans(160, 7, [&](const RandomPlan& made) {
    const StepPlan& plan = made.plan;
    const Report report = make_report(plan, plan_memory(plan), plan_memory(plan, Space::host), 0);
    const OverlapBytes& overlap = report.overlap;
    const HappensBefore order(plan);
    const int actions = static_cast<int>(plan.actions.size());
    std::int64_t hidden = 0, exposed = 0, copied_hidden = 0, copied_exposed = 0;
    for (int c = 0; c < actions; ++c) {
      bool overlaps = false;
      for (int a = 0; a < actions; ++a)
        overlaps = overlaps || (computing.count(plan.actions[a].kind) > 0 && a != c &&
                                !order.before(a, c) && !order.before(c, a));
      const Action& action = plan.actions[c];
      (overlaps ? hidden : exposed) += message_bytes(action) * (action.span.ranks - 1);
      if (is_copy(action))
        (overlaps ? copied_hidden : copied_exposed) += action.elements * action.element_bytes;
    }
    EXPECT_EQ(overlap.bytes_while_computing, hidden);
    EXPECT_EQ(overlap.bytes_while_nothing_computes, exposed);
    EXPECT_EQ(overlap.copied_while_computing, copied_hidden);
    EXPECT_EQ(overlap.copied_while_nothing_computes, copied_exposed);
    EXPECT_EQ(report.bytes_to_device + report.bytes_to_host, copied_hidden + copied_exposed);
    both += hidden > 0 && exposed > 0;
    both_of_copies += copied_hidden > 0 && copied_exposed > 0;
    EXPECT_LE(overlap.most_units_in_flight, overlap.most_units_gathered);
  });
  EXPECT_GT(both, 20);
  EXPECT_GT(both_of_copies, 10);
}

}  // namespace
}  // namespace ostrakon::tests
