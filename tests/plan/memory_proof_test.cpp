// SPDX-License-Identifier: Apache-2.0

// The proof that is required before a plan runs, on plans written by hand.

#include <gtest/gtest.h>

#include <cstdint>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <string>

#include "plan/handmade_plan.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

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

}  // namespace
