// SPDX-License-Identifier: Apache-2.0

// The proof that is required before a plan runs: it holds for every plan that is written, and finds
// what is wrong with plans that were broken on purpose. What is broken is determined by an oracle
// that works by other means.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/order.hpp>
#include <ostrakon/plan/stage_proof.hpp>
#include <stdexcept>

#include "plan/oracle.hpp"
#include "plan/random_plans.hpp"
#include "support/trials.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

// ---- plans written by hand

Action make_action(Stream stream, std::vector<Use> uses, std::vector<int> waits = {}) {
  Action action;
  action.kind = stream == Stream::gather ? Kind::gather : Kind::forward;
  action.stream = stream;
  action.uses = std::move(uses);
  action.waits = std::move(waits);
  return action;
}

Use write(int buffer) { return {Role::output, buffer, Access::write}; }
Use read(int buffer) { return {Role::input, buffer, Access::read}; }
Use update(int buffer) { return {Role::saved, buffer, Access::read_write}; }

/// A plan of these actions on buffers "a", "b", ... of 512 bytes, all at offset 0 and never live
/// together as far as their lifetimes say.
struct Handmade {
  StepPlan plan;
  MemoryPlan memory;

  Handmade(int buffers, std::vector<Action> actions) {
    plan.actions = std::move(actions);
    for (int b = 0; b < buffers; ++b) {
      Buffer buffer;
      buffer.name = std::string(1, static_cast<char>('a' + b));
      buffer.bytes = 512;
      buffer.first = 0;
      buffer.last = static_cast<int>(plan.actions.size()) - 1;
      plan.buffers.push_back(buffer);
      memory.offsets.push_back(0);
    }
    memory.arena_bytes = 4096;
  }

  /// What the proof says, or nothing if it holds.
  std::string refused() const {
    try {
      prove_memory(plan, memory);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "";
  }
};

void expect_refused(const Handmade& handmade, const std::string& because) {
  EXPECT_NE(handmade.refused().find(because), std::string::npos)
      << "refused with '" << handmade.refused() << "', not with '" << because << "'";
}

TEST(Order, FollowsStreamsAndWaits) {
  StepPlan plan;
  plan.actions = {
      make_action(Stream::compute, {}),         // 0
      make_action(Stream::gather, {}),          // 1
      make_action(Stream::gather, {}, {0}),     // 2
      make_action(Stream::compute, {}, {1}),    // 3
      make_action(Stream::reduce, {}, {3}),     // 4
      make_action(Stream::compute, {}, {2, 4})  // 5
  };
  const Order order(plan);
  const std::vector<std::pair<int, int>> expected = {{0, 2}, {0, 3}, {0, 4}, {0, 5},
                                                     {1, 2}, {1, 3}, {1, 4}, {1, 5},
                                                     {2, 5}, {3, 4}, {3, 5}, {4, 5}};
  std::vector<std::pair<int, int>> found;
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b)
      if (order.before(a, b)) found.emplace_back(a, b);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(order.position(3), 1);
  EXPECT_EQ(order.position(4), 0);
}

TEST(Order, IsTheTransitiveClosureOfRandomPlans) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    StepPlan plan;
    for (int a = 0; a < 60; ++a) {
      Action action = make_action(static_cast<Stream>(random() % streams), {});
      for (std::uint64_t i = random() % 3; i > 0 && a > 0; --i)
        action.waits.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(a)));
      plan.actions.push_back(action);
    }
    const Order order(plan);
    const auto closure = Closure::of(plan);
    ASSERT_TRUE(closure);
    for (int a = 0; a < 60; ++a)
      for (int b = 0; b < 60; ++b) ASSERT_EQ(order.before(a, b), closure->before(a, b));
  }
}

TEST(Order, RefusesWaitsForWhatComesLater) {
  for (int waited : {-1, 1, 2}) {
    StepPlan plan;
    plan.actions = {make_action(Stream::compute, {}), make_action(Stream::gather, {}, {waited}),
                    make_action(Stream::compute, {})};
    EXPECT_THROW(Order{plan}, std::logic_error) << waited;
  }
}

TEST(Proof, HoldsWhereOneBufferFollowsAnother) {
  const Handmade good(
      2, {make_action(Stream::compute, {write(0)}), make_action(Stream::reduce, {read(0)}, {0}),
          make_action(Stream::compute, {read(0)}), make_action(Stream::gather, {write(1)}, {1, 2}),
          make_action(Stream::compute, {update(1)}, {3})});
  EXPECT_EQ(good.refused(), "");
}

TEST(Proof, NamesWhatDoesNotWait) {
  // Both readers of the old content must be done, in whatever stream, and its writer.
  for (int missing : {1, 2}) {
    const Handmade bad(
        2, {make_action(Stream::compute, {write(0)}), make_action(Stream::reduce, {read(0)}, {0}),
            make_action(Stream::compute, {read(0)}),
            make_action(Stream::gather, {write(1)}, {3 - missing})});
    expect_refused(bad,
                   "gather uses 'b' and does not wait for forward, which uses 'a' at the same");
  }
  expect_refused(Handmade(1, {make_action(Stream::compute, {write(0)}),
                              make_action(Stream::reduce, {read(0)})}),
                 "uses 'a' and does not wait for forward, which uses it too");
  expect_refused(Handmade(2, {make_action(Stream::compute, {write(0)}),
                              make_action(Stream::gather, {write(1)})}),
                 "gather uses 'b' and does not wait for forward");
}

TEST(Proof, ForgetsWhatAWriteHasWaitedFor) {
  // The reduction that read the first content is done before the second is written.
  const Handmade good(
      1, {make_action(Stream::compute, {write(0)}), make_action(Stream::reduce, {read(0)}, {0}),
          make_action(Stream::compute, {write(0)}, {1}),
          make_action(Stream::gather, {update(0)}, {2})});
  EXPECT_EQ(good.refused(), "");
}

TEST(Proof, NamesWhoseBytesAreRead) {
  expect_refused(Handmade(2, {make_action(Stream::compute, {write(0)}),
                              make_action(Stream::compute, {write(1)}),
                              make_action(Stream::compute, {read(0)})}),
                 "reads 'a', whose bytes 'b' has overwritten");
  expect_refused(Handmade(1, {make_action(Stream::compute, {read(0)})}),
                 "reads 'a', which nothing has written");
  expect_refused(Handmade(1, {make_action(Stream::compute, {update(0)})}), "nothing has written");
}

TEST(Proof, SeesOneByteOfOverlap) {
  Handmade partly(
      2, {make_action(Stream::compute, {write(0)}), make_action(Stream::compute, {write(1)}),
          make_action(Stream::compute, {read(0)})});
  partly.plan.buffers[0].bytes = 257;
  partly.memory.offsets[1] = 256;
  expect_refused(partly, "reads 'a', whose bytes 'b' has overwritten");
  partly.plan.buffers[0].bytes = 256;
  EXPECT_EQ(partly.refused(), "");
}

TEST(Proof, SeesTheFringesThatAreLeftOfABuffer) {
  // b takes the middle of a; what is left of a on either side still has its readers.
  for (std::int64_t offset : {0, 1024}) {
    Handmade fringes(
        3, {make_action(Stream::reduce, {write(0)}), make_action(Stream::compute, {write(1)}, {0}),
            make_action(Stream::gather, {write(2)})});
    fringes.plan.buffers[0].bytes = 1536;
    fringes.memory.offsets = {0, 512, offset};
    expect_refused(fringes, "gather uses 'c' and does not wait for forward, which uses 'a'");
  }
}

TEST(Proof, RefusesOverlapWithinAnAction) {
  expect_refused(Handmade(2, {make_action(Stream::compute, {write(0), write(1)})}),
                 "uses 'a' and 'b', which share bytes");
  expect_refused(Handmade(2, {make_action(Stream::compute, {write(0)}),
                              make_action(Stream::compute, {read(0), write(1)})}),
                 "uses 'a' and 'b', which share bytes");
  EXPECT_EQ(Handmade(1, {make_action(Stream::compute, {write(0)}),
                         make_action(Stream::compute, {read(0), update(0)})})
                .refused(),
            "");
}

TEST(Proof, KeepsBuffersInTheirPlaces) {
  const auto make = [] {
    Handmade handmade(2, {make_action(Stream::compute, {write(0), write(1)})});
    handmade.plan.buffers[0].persistent = true;
    handmade.memory.persistent_bytes = 512;
    handmade.memory.offsets = {0, 512};
    return handmade;
  };
  EXPECT_EQ(make().refused(), "");
  const std::string because = "does not lie in its part of the arena";
  Handmade bad = make();
  bad.memory.offsets[1] = 256;  // in the persistent part
  expect_refused(bad, "'b' " + because);
  bad.memory.offsets[1] = 700;  // not aligned
  expect_refused(bad, "'b' " + because);
  bad.memory.offsets[1] = 3840;  // beyond the end
  expect_refused(bad, "'b' " + because);
  bad.memory.offsets[1] = -1;
  expect_refused(bad, "'b' " + because);
  bad = make();
  bad.memory.offsets[0] = 256;
  expect_refused(bad, "'a' " + because);
  bad = make();
  bad.plan.buffers[1].persistent = true;
  bad.memory.persistent_bytes = 1024;
  bad.memory.offsets[1] = 256;
  expect_refused(bad, "'b' and 'a' share bytes at all times");
  bad = make();
  bad.plan.buffers[1].first = 1;
  bad.plan.buffers[1].last = 1;
  expect_refused(bad, "uses 'b' outside its lifetime");
  bad = make();
  bad.plan.actions[0].uses[0].buffer = 2;
  expect_refused(bad, "a buffer that is not there");
  bad = make();
  bad.memory.offsets.pop_back();
  expect_refused(bad, "it places 1 buffers of 2");
}

TEST(Proof, BuffersWithoutBytesOverlapNothing) {
  Handmade handmade(
      2, {make_action(Stream::compute, {write(0)}), make_action(Stream::gather, {write(1)}),
          make_action(Stream::gather, {read(1)}), make_action(Stream::compute, {read(0)})});
  handmade.plan.buffers[1].bytes = 0;
  handmade.memory.offsets = {0, 256};
  EXPECT_EQ(handmade.refused(), "");
}

TEST(Proof, LooksAtOneSpaceAtATime) {
  Handmade handmade(2, {make_action(Stream::compute, {write(0), write(1)})});
  handmade.plan.buffers[1].space = Space::host;
  EXPECT_EQ(handmade.refused(), "");
  handmade.plan.buffers[0].space = Space::host;
  EXPECT_EQ(handmade.refused(), "");
  handmade.memory.space = Space::host;
  expect_refused(handmade, "share bytes");
}

// ---- plans of all kinds

bool is_proven(const PlacedPlan& placed) {
  try {
    for (const MemoryPlan& memory : placed.memory) prove_memory(placed.plan, memory);
  } catch (const std::logic_error&) {
    return false;
  }
  return true;
}

struct RandomPlan {
  StepPlan plan;
  std::string described;
};

/// A plan for a random model and policy with up to `most_blocks` blocks and `most_micro_batches` on
/// each of up to `most_ranks` ranks.
RandomPlan random_plan(std::mt19937_64& random, int most_blocks, int most_ranks,
                       int most_micro_batches) {
  const auto upto = [&](int most) {
    return static_cast<int>(1 + random() % static_cast<std::uint64_t>(most));
  };
  for (;;) {
    const std::uint64_t seed = random();
    const int blocks = upto(most_blocks), ranks = upto(most_ranks);
    ModelDescription model = make_model(blocks, random() % 2 == 0, seed);
    const bool varies = random() % 4 != 0;
    if (varies) vary(random, model);
    Policy policy =
        random_policy(random, model, ranks, std::int64_t{ranks} * upto(most_micro_batches));
    if (varies) vary(random, model, policy);
    if (random() % 3 == 0) add_grain(random, ranks, policy);
    if (random() % 2 == 0) place_on_nodes(random, ranks, policy);
    const auto drawn = random() % 8;
    const Purpose purpose = drawn == 0                ? Purpose::evaluate
                            : drawn == 1              ? Purpose::export_parameters
                            : drawn == 2 && ranks < 2 ? Purpose::decode
                                                      : Purpose::train;
    try {
      return {build_step_plan(model, ranks, policy, purpose),
              text("seed ", seed, ", ", blocks, " blocks, ", ranks, " ranks in groups of ",
                   policy.shard_group, ", purpose ", static_cast<int>(purpose))};
    } catch (const Error&) {
      // A limit that is below what one action needs.
    }
  }
}

TEST(Proof, HoldsForEveryPlanThatIsWritten) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < tests::trials(4000); ++trial) {
    const RandomPlan made = random_plan(random, 5, 8, 5);
    const StepPlan& plan = made.plan;
    for (Space space : {Space::device, Space::host})
      ASSERT_NO_THROW(prove_memory(plan, plan_memory(plan, space)))
          << "trial " << trial << ": " << made.described;
    ASSERT_NO_THROW(prove_stages({&plan})) << "trial " << trial << ": " << made.described;
  }
}

TEST(Proof, AgreesWithTheOracleOnPlansThatAreWritten) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const RandomPlan made = random_plan(random, 3, 4, 3);
    const PlacedPlan placed = place(made.plan);
    ASSERT_TRUE(is_proven(placed)) << made.described;
    ASSERT_FALSE(is_broken(placed)) << made.described;
    const Outcome meant = meaning(placed);
    SymbolicMachine machine(placed);
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(machine.run(random_order(placed.plan, random)), meant) << made.described;
  }
}

/// Checks that every rank finds its part of a flat parameter, of `count` elements, within the
/// buffer.
void expect_inside(const StepPlan& plan, const Action& action, Role role, FlatRange flat,
                   const Spans& divided, std::int64_t count, std::int64_t element_bytes) {
  if (action.buffer(role) < 0) return;
  const Buffer& buffer = plan.buffers[static_cast<std::size_t>(action.buffer(role))];
  ASSERT_EQ(flat.size(), 1) << plan.describe(action);
  ASSERT_EQ(count, plan.elements(flat, divided)) << plan.describe(action);
  for (int rank = 0; rank < plan.grid.ranks(); ++rank) {
    const std::int64_t first = plan.offset_in(buffer, flat.first, divided, rank);
    ASSERT_GE(first, 0) << plan.describe(action) << " in " << buffer.name;
    ASSERT_LE((first + count) * element_bytes, buffer.bytes)
        << plan.describe(action) << " in " << buffer.name;
  }
}

TEST(Plan, WhatActionsAreAboutLiesWithinTheirBuffers) {
  std::mt19937_64 random(5);
  std::map<Kind, int> seen;
  for (int trial = 0; trial < 1000; ++trial) {
    const RandomPlan made = random_plan(random, 3, 6, 2);
    const StepPlan& plan = made.plan;
    SCOPED_TRACE(made.described);
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
      if (action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host) {
        for (Role role : {Role::source, Role::target})
          if (action.flats.empty())
            ASSERT_EQ(action.elements * action.element_bytes,
                      plan.buffers[static_cast<std::size_t>(action.buffer(role))].bytes);
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
  }
  for (Kind kind : {Kind::copy_to_device, Kind::copy_to_host, Kind::gather, Kind::gather_updates,
                    Kind::optimize})
    EXPECT_GT(seen[kind], 100) << name(kind);
}

// ---- mutants

using Random = std::mt19937_64;

template <class T>
auto& draw(T& from, Random& random) {
  return from[random() % from.size()];
}

/// Sets lifetimes to the first and last use.
void find_lifetimes(StepPlan& plan) {
  for (Buffer& buffer : plan.buffers) buffer.first = buffer.last = -1;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a)
    for (const Use& use : plan.actions[static_cast<std::size_t>(a)].uses) {
      Buffer& buffer = plan.buffers[static_cast<std::size_t>(use.buffer)];
      if (buffer.first < 0) buffer.first = a;
      buffer.last = a;
    }
}

void plan_again(PlacedPlan& placed) { placed.memory = place(placed.plan).memory; }

/// Each changes a plan in one way; false where there is nothing that could be changed so.
using Mutation = std::function<bool(PlacedPlan&, Random&)>;

bool is_copy_or_host_work(const Action& action) {
  return action.stream == Stream::upload || action.stream == Stream::download ||
         action.stream == Stream::host;
}

/// Any wait, or one of or for a copy or what the host computes.
template <bool any>
bool drop_a_wait(PlacedPlan& placed, Random& random) {
  std::vector<Action>& actions = placed.plan.actions;
  std::vector<std::pair<std::size_t, std::size_t>> waits;
  for (std::size_t a = 0; a < actions.size(); ++a)
    for (std::size_t w = 0; w < actions[a].waits.size(); ++w)
      if (any || is_copy_or_host_work(actions[a]) ||
          is_copy_or_host_work(actions[static_cast<std::size_t>(actions[a].waits[w])]))
        waits.emplace_back(a, w);
  if (waits.empty()) return false;
  const auto [a, w] = draw(waits, random);
  actions[a].waits.erase(actions[a].waits.begin() + static_cast<std::ptrdiff_t>(w));
  return true;
}

/// A copy with which a buffer begins does nothing, though it waits and is waited for.
bool lose_a_copy(PlacedPlan& placed, Random& random) {
  std::vector<Action*> copies;
  for (std::size_t a = 0; a < placed.plan.actions.size(); ++a) {
    Action& action = placed.plan.actions[a];
    const int target = action.buffer(Role::target);
    if (target >= 0 &&
        placed.plan.buffers[static_cast<std::size_t>(target)].first == static_cast<int>(a))
      copies.push_back(&action);
  }
  if (copies.empty()) return false;
  draw(copies, random)->uses.clear();
  find_lifetimes(placed.plan);
  return true;
}

/// Swaps neighbours or near neighbours, of the same stream or of two. Memory stays, or is planned
/// for the new lifetimes.
bool swap_two_actions(PlacedPlan& placed, Random& random) {
  StepPlan& plan = placed.plan;
  const std::size_t distance = 1 + random() % 4;
  if (plan.actions.size() <= distance) return false;
  const std::size_t a = random() % (plan.actions.size() - distance), b = a + distance;
  std::swap(plan.actions[a], plan.actions[b]);
  std::swap(placed.identity[a], placed.identity[b]);
  for (Action& action : plan.actions)
    for (int& waited : action.waits)
      waited = waited == static_cast<int>(a)   ? static_cast<int>(b)
               : waited == static_cast<int>(b) ? static_cast<int>(a)
                                               : waited;
  find_lifetimes(plan);
  if (random() % 2 == 0) plan_again(placed);
  return true;
}

/// Plans memory for a lifetime that ends too early or begins too late; the plan says so, or keeps
/// the true lifetime. Or the buffer is left out where it is released. Of any buffer, or one on the
/// host.
template <bool any>
bool shorten_a_lifetime(PlacedPlan& placed, Random& random) {
  StepPlan& plan = placed.plan;
  std::vector<std::size_t> candidates;
  for (std::size_t b = 0; b < plan.buffers.size(); ++b)
    if (!plan.buffers[b].persistent && plan.buffers[b].first < plan.buffers[b].last &&
        (any || plan.buffers[b].space == Space::host))
      candidates.push_back(b);
  if (candidates.empty()) return false;
  const std::size_t b = draw(candidates, random);
  Buffer& buffer = plan.buffers[b];
  const Buffer before = buffer;
  const int by =
      1 + static_cast<int>(random() % static_cast<std::uint64_t>(buffer.last - buffer.first));
  auto& last = plan.actions[static_cast<std::size_t>(buffer.last)].uses;
  if (plan.actions[static_cast<std::size_t>(buffer.last)].kind == Kind::release &&
      random() % 2 == 0) {
    last.erase(std::remove_if(last.begin(), last.end(),
                              [&](const Use& use) { return use.buffer == static_cast<int>(b); }),
               last.end());
    find_lifetimes(plan);
    plan_again(placed);
    return true;
  }
  if (random() % 3 == 0)
    buffer.first += by;
  else
    buffer.last -= by;
  plan_again(placed);
  if (random() % 3 != 0) buffer = before;
  return true;
}

/// Moves a buffer onto another that is live at the same time.
bool overlap_two_buffers(PlacedPlan& placed, Random& random) {
  const std::vector<Buffer>& buffers = placed.plan.buffers;
  std::vector<std::pair<std::size_t, std::size_t>> together;
  for (std::size_t x = 0; x < buffers.size(); ++x)
    for (std::size_t y = 0; y < buffers.size(); ++y)
      if (x != y && buffers[x].space == buffers[y].space && buffers[x].first >= 0 &&
          buffers[y].first >= 0 && buffers[x].persistent == buffers[y].persistent &&
          buffers[x].first <= buffers[y].last && buffers[y].first <= buffers[x].last)
        together.emplace_back(x, y);
  if (together.empty()) return false;
  const auto [x, y] = draw(together, random);
  MemoryPlan& memory = placed.memory[static_cast<std::size_t>(buffers[x].space)];
  const std::int64_t blocks = (buffers[y].bytes + buffer_alignment - 1) / buffer_alignment;
  memory.offsets[x] =
      memory.offsets[y] +
      buffer_alignment * static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks));
  memory.arena_bytes = std::max(memory.arena_bytes, memory.offsets[x] + buffers[x].bytes);
  return true;
}

bool move_to_another_stream(PlacedPlan& placed, Random& random) {
  Action& action = draw(placed.plan.actions, random);
  action.stream = static_cast<Stream>(
      (static_cast<std::uint64_t>(action.stream) + 1 + random() % (streams - 1)) % streams);
  return true;
}

TEST(Proof, RefusesEveryMutantThatIsBroken) {
  struct Count {
    int killed = 0;      // broken and refused
    int strict = 0;      // refused for its form, though no order would show it
    int equivalent = 0;  // proven, and the same in every order
    int other = 0;       // proven, and in every order the same other step: the proof can't know
                         // which one was meant
  };
  const std::vector<std::pair<std::string, Mutation>> mutations = {
      {"dropped wait", drop_a_wait<true>},
      {"dropped wait beside the device", drop_a_wait<false>},
      {"swapped actions", swap_two_actions},
      {"shortened lifetime", shorten_a_lifetime<true>},
      {"shortened lifetime on the host", shorten_a_lifetime<false>},
      {"lost copy", lose_a_copy},
      {"overlapped offsets", overlap_two_buffers},
      {"moved to another stream", move_to_another_stream}};
  std::map<std::string, Count> counts;
  Random random(4);
  for (int base = 0; base < 250; ++base) {
    const RandomPlan made = random_plan(random, 2, 4, 3);
    const PlacedPlan whole = place(made.plan);
    const Outcome reference = meaning(whole);
    for (const auto& [name, mutate] : mutations)
      for (int i = 0; i < 20; ++i) {
        const std::uint64_t seed = random();
        const std::string which =
            text(name, " with seed ", seed, " of a plan for ", made.described);
        PlacedPlan mutant = whole;
        Random its_random(seed);
        if (!mutate(mutant, its_random)) continue;
        const bool broken = is_broken(mutant);
        Count& count = counts[name];
        if (!is_proven(mutant)) {
          ++(broken ? count.killed : count.strict);
          continue;
        }
        ASSERT_FALSE(broken) << which;
        // Accepted: then no order may come to anything else.
        const Outcome meant = meaning(mutant);
        SymbolicMachine machine(mutant);
        for (int order = 0; order < 50; ++order) {
          const std::vector<int> actions = random_order(mutant.plan, its_random);
          ASSERT_EQ(actions.size(), mutant.plan.actions.size()) << which;
          ASSERT_EQ(machine.run(actions), meant) << which;
        }
        ++(meant == reference ? count.equivalent : count.other);
      }
  }
  int killed = 0;
  for (const auto& [name, count] : counts) {
    std::printf("%-31s %5d killed %5d refused for their form %5d equivalent %5d another step\n",
                name.c_str(), count.killed, count.strict, count.equivalent, count.other);
    EXPECT_GT(count.killed, 0) << name;
    // Only a swap changes what program order comes to.
    EXPECT_TRUE(count.other == 0 || name == "swapped actions") << name;
    killed += count.killed;
  }
  EXPECT_EQ(counts.size(), mutations.size());
  EXPECT_GE(killed, 500);
}

}  // namespace
