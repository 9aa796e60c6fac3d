// SPDX-License-Identifier: Apache-2.0

// The proof that is required before a plan runs, on plans written by hand; and which actions have
// always ended before others begin.

#include <ostrakon/plan/proof/happens_before.hpp>
#include <utility>

#include "plan/oracle.hpp"

namespace ostrakon::tests {
namespace {

// ---- order

Action act(Stream stream, std::vector<Use> uses, std::vector<int> waits = {}) {
  Action action;
  action.kind = stream == Stream::gather ? Kind::gather : Kind::forward;
  action.stream = stream;
  action.uses = std::move(uses);
  action.waits = std::move(waits);
  return action;
}

TEST(HappensBefore, FollowsStreamsAndWaits) {
  StepPlan plan;
  plan.actions = {
      act(Stream::compute, {}),         // 0
      act(Stream::gather, {}),          // 1
      act(Stream::gather, {}, {0}),     // 2
      act(Stream::compute, {}, {1}),    // 3
      act(Stream::reduce, {}, {3}),     // 4
      act(Stream::compute, {}, {2, 4})  // 5
  };
  const HappensBefore order(plan);
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

TEST(HappensBefore, IsTheTransitiveClosureOfRandomPlans) {
  Random random(1);
  for (int trial = 0; trial < 100; ++trial) {
    StepPlan plan;
    for (int a = 0; a < 60; ++a) {
      Action action = act(static_cast<Stream>(random() % streams), {});
      for (std::uint64_t i = random() % 3; i > 0 && a > 0; --i)
        action.waits.push_back(static_cast<int>(random() % static_cast<std::uint64_t>(a)));
      plan.actions.push_back(action);
    }
    const HappensBefore order(plan);
    const auto closure = Closure::of(plan);
    ASSERT_TRUE(closure);
    for (int a = 0; a < 60; ++a)
      for (int b = 0; b < 60; ++b) ASSERT_EQ(order.before(a, b), closure->before(a, b));
  }
}

TEST(HappensBefore, RefusesWaitsForWhatComesLater) {
  for (int waited : {-1, 1, 2}) {
    StepPlan plan;
    plan.actions = {act(Stream::compute, {}), act(Stream::gather, {}, {waited}),
                    act(Stream::compute, {})};
    EXPECT_THROW(HappensBefore{plan}, std::logic_error) << waited;
  }
}

// ---- memory

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
    return refused_by([&] { prove_memory(plan, memory); });
  }
};

void expect_refused(const Handmade& handmade, const std::string& because) {
  EXPECT_HAS(handmade.refused(), because);
}

TEST(Proof, HoldsWhereOneBufferFollowsAnother) {
  const Handmade good(2, {act(Stream::compute, {write(0)}), act(Stream::reduce, {read(0)}, {0}),
                          act(Stream::compute, {read(0)}), act(Stream::gather, {write(1)}, {1, 2}),
                          act(Stream::compute, {update(1)}, {3})});
  EXPECT_EQ(good.refused(), "");
}

TEST(Proof, NamesWhatDoesNotWait) {
  // Both readers of the old content must be done, in whatever stream, and its writer.
  for (int missing : {1, 2}) {
    const Handmade bad(
        2, {act(Stream::compute, {write(0)}), act(Stream::reduce, {read(0)}, {0}),
            act(Stream::compute, {read(0)}), act(Stream::gather, {write(1)}, {3 - missing})});
    expect_refused(bad,
                   "gather uses 'b' and does not wait for forward, which uses 'a' at the same");
  }
  expect_refused(Handmade(1, {act(Stream::compute, {write(0)}), act(Stream::reduce, {read(0)})}),
                 "uses 'a' and does not wait for forward, which uses it too");
  expect_refused(Handmade(2, {act(Stream::compute, {write(0)}), act(Stream::gather, {write(1)})}),
                 "gather uses 'b' and does not wait for forward");
}

TEST(Proof, ForgetsWhatAWriteHasWaitedFor) {
  // The reduction that read the first content is done before the second is written.
  const Handmade good(
      1, {act(Stream::compute, {write(0)}), act(Stream::reduce, {read(0)}, {0}),
          act(Stream::compute, {write(0)}, {1}), act(Stream::gather, {update(0)}, {2})});
  EXPECT_EQ(good.refused(), "");
}

TEST(Proof, NamesWhoseBytesAreRead) {
  expect_refused(Handmade(2, {act(Stream::compute, {write(0)}), act(Stream::compute, {write(1)}),
                              act(Stream::compute, {read(0)})}),
                 "reads 'a', whose bytes 'b' has overwritten");
  expect_refused(Handmade(1, {act(Stream::compute, {read(0)})}),
                 "reads 'a', which nothing has written");
  expect_refused(Handmade(1, {act(Stream::compute, {update(0)})}), "nothing has written");
}

TEST(Proof, SeesOneByteOfOverlap) {
  Handmade partly(2, {act(Stream::compute, {write(0)}), act(Stream::compute, {write(1)}),
                      act(Stream::compute, {read(0)})});
  partly.plan.buffers[0].bytes = 257;
  partly.memory.offsets[1] = 256;
  expect_refused(partly, "reads 'a', whose bytes 'b' has overwritten");
  partly.plan.buffers[0].bytes = 256;
  EXPECT_EQ(partly.refused(), "");
}

TEST(Proof, SeesTheFringesThatAreLeftOfABuffer) {
  // b takes the middle of a; what is left of a on either side still has its readers.
  for (std::int64_t offset : {0, 1024}) {
    Handmade fringes(3, {act(Stream::reduce, {write(0)}), act(Stream::compute, {write(1)}, {0}),
                         act(Stream::gather, {write(2)})});
    fringes.plan.buffers[0].bytes = 1536;
    fringes.memory.offsets = {0, 512, offset};
    expect_refused(fringes, "gather uses 'c' and does not wait for forward, which uses 'a'");
  }
}

TEST(Proof, RefusesOverlapWithinAnAction) {
  expect_refused(Handmade(2, {act(Stream::compute, {write(0), write(1)})}),
                 "uses 'a' and 'b', which share bytes");
  expect_refused(
      Handmade(2, {act(Stream::compute, {write(0)}), act(Stream::compute, {read(0), write(1)})}),
      "uses 'a' and 'b', which share bytes");
  EXPECT_EQ(
      Handmade(1, {act(Stream::compute, {write(0)}), act(Stream::compute, {read(0), update(0)})})
          .refused(),
      "");
}

TEST(Proof, KeepsBuffersInTheirPlaces) {
  struct Broken {
    std::function<void(Handmade&)> change;
    std::string because;
  };
  const std::string place = "does not lie in its part of the arena";
  for (const Broken& broken : std::vector<Broken>{
           {[](Handmade&) {}, ""},
           {[](Handmade& bad) { bad.memory.offsets[1] = 256; }, "'b' " + place},  // persistent part
           {[](Handmade& bad) { bad.memory.offsets[1] = 700; }, "'b' " + place},  // not aligned
           {[](Handmade& bad) { bad.memory.offsets[1] = 3840; }, "'b' " + place},  // beyond the end
           {[](Handmade& bad) { bad.memory.offsets[1] = -1; }, "'b' " + place},
           {[](Handmade& bad) { bad.memory.offsets[0] = 256; }, "'a' " + place},
           {[](Handmade& bad) {
              bad.plan.buffers[1].persistent = true;
              bad.memory.persistent_bytes = 1024;
              bad.memory.offsets[1] = 256;
            },
            "'b' and 'a' share bytes at all times"},
           {[](Handmade& bad) { bad.plan.buffers[1].first = bad.plan.buffers[1].last = 1; },
            "uses 'b' outside its lifetime"},
           {[](Handmade& bad) { bad.plan.actions[0].uses[0].buffer = 2; },
            "a buffer that is not there"},
           {[](Handmade& bad) { bad.memory.offsets.pop_back(); }, "it places 1 buffers of 2"}}) {
    Handmade handmade(2, {act(Stream::compute, {write(0), write(1)})});
    handmade.plan.buffers[0].persistent = true;
    handmade.memory.persistent_bytes = 512;
    handmade.memory.offsets = {0, 512};
    broken.change(handmade);
    EXPECT_EQ(handmade.refused().empty(), broken.because.empty());
    expect_refused(handmade, broken.because);
  }
}

TEST(Proof, BuffersWithoutBytesOverlapNothing) {
  Handmade handmade(2, {act(Stream::compute, {write(0)}), act(Stream::gather, {write(1)}),
                        act(Stream::gather, {read(1)}), act(Stream::compute, {read(0)})});
  handmade.plan.buffers[1].bytes = 0;
  handmade.memory.offsets = {0, 256};
  EXPECT_EQ(handmade.refused(), "");
}

TEST(Proof, LooksAtOneSpaceAtATime) {
  Handmade handmade(2, {act(Stream::compute, {write(0), write(1)})});
  handmade.plan.buffers[1].space = Space::host;
  EXPECT_EQ(handmade.refused(), "");
  handmade.plan.buffers[0].space = Space::host;
  EXPECT_EQ(handmade.refused(), "");
  handmade.memory.space = Space::host;
  expect_refused(handmade, "share bytes");
}

}  // namespace
}  // namespace ostrakon::tests
