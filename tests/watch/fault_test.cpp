// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/error.hpp>
#include <ostrakon/watch/fault.hpp>
#include <string>

#include "support/messages.hpp"
#include "support/table.hpp"

namespace ostrakon::watch {
namespace {

TEST(Faults, AreParsed) {
  const Fault stop = parse_fault("rank 2, step 5, backward(block.1, micro-batch 1): stop");
  EXPECT_EQ(stop.rank, 2);
  EXPECT_EQ(stop.step, 5);
  EXPECT_EQ(stop.action, "backward(block.1, micro-batch 1)");
  EXPECT_EQ(stop.kind, FaultKind::stop);
  const Fault sleep = parse_fault("rank 0,step 1 , load :  sleep 2.5 ");
  EXPECT_EQ(sleep.action, "load");
  EXPECT_EQ(sleep.kind, FaultKind::sleep);
  EXPECT_EQ(sleep.seconds, 2.5);
  const Fault slow = parse_fault("rank 1, step 3: slow_data 4");
  EXPECT_EQ(slow.kind, FaultKind::slow_data);
  EXPECT_EQ(slow.seconds, 4.0);
  EXPECT_TRUE(slow.slows(plan::Kind::load));
  EXPECT_FALSE(slow.slows(plan::Kind::backward));
  const Fault slower = parse_fault("rank 1, step 3: slow_compute 0.5");
  EXPECT_TRUE(slower.slows(plan::Kind::backward) && slower.slows(plan::Kind::forward));
  EXPECT_FALSE(slower.slows(plan::Kind::load) || slower.slows(plan::Kind::gather));
  EXPECT_EQ(parse_fault("rank 1, step 3, gather(block.1): skip").kind, FaultKind::skip);
  EXPECT_EQ(parse_fault("rank 1, step 3, reduce_scatter: swap").kind, FaultKind::swap);
  EXPECT_TRUE(parse_fault("rank 1, step 3, checkpoint: spin").is_at_checkpoint());
}

TEST(Faults, MayFlipBits) {
  const Fault flip = parse_fault("rank 1, step 3, backward(block.1): flip gradient 12 always");
  EXPECT_EQ(flip.kind, FaultKind::flip);
  EXPECT_EQ(flip.target, FlipTarget::gradient);
  EXPECT_EQ(flip.seed, 12U);
  EXPECT_TRUE(flip.recurs);
  const Fault message = parse_fault("rank 0, step 3, gather(head): flip message");
  EXPECT_EQ(message.target, FlipTarget::message);
  EXPECT_EQ(message.seed, 0U);
  EXPECT_FALSE(message.recurs);
}

TEST(Faults, ThatAreNoneAreRefusedWithWhatWasExpected) {
  const auto rows = testing::rows_of(R"(
    rank 2, step 5, backward(block.1)          | has no colon
    step 5, rank 2, load: stop                 | is no rank
    rank -1, step 5, load: stop                | is no rank
    rank 2, load: stop                         | is no step
    rank 2 step 5, load: stop                  | has no comma after the rank
    rank 2, step 0, load: stop                 | step 0:
    rank 2, step 5, lod: stop                  | "lod" is no action
    rank 2, step 5, release(block.1): stop     | is no action
    rank 2, step 5: stop                       | "" is no action
    rank 2, step 5, load: halt                 | "halt" is no fault
    rank 2, step 5, load:                      | "" is no fault
    rank 2, step 5, load: sleep                | sleep has no time
    rank 2, step 5, load: sleep -1             | sleep has no time
    rank 2, step 5, load: skip                 | skip load
    rank 2, step 5, checkpoint: swap           | swap checkpoint
    rank 2, step 5, load: stop now             | "now" follows stop
    rank 2, step 5, backward(head): flip       | flip ""
    rank 2, step 5, backward(head): flip bit   | flip "bit"
    rank 2, step 5, forward(a): flip product x | "x"
    rank 2, step 5, forward(a): flip gradient  | has no gradient to flip a bit of
    rank 2, step 5, gather(a): flip product 1  | has no product to flip a bit of
    rank 2, step 5, checkpoint: flip message   | has no message to flip a bit of
    rank 2, step 5, load: slow_data 1          | slow_data has the action load
    rank 2, step 5, load: slow_compute 1       | slow_compute has the action load
    rank 2, step 5: slow_compute               | slow_compute has no time
  )");
  for (const auto& row : rows) {
    const std::string why = testing::error_of([&] { parse_fault(row[0]); });
    EXPECT_TRUE(testing::says(why, row[1] + "..expected")) << row[0] << ": " << why;
  }
}

TEST(Faults, NameActionsByTheirBeginning) {
  Fault fault;
  const auto names = [&](const std::string& action, const std::string& described) {
    fault.action = action;
    return fault.names(described);
  };
  EXPECT_TRUE(names("load", "load(micro-batch 0)"));
  EXPECT_TRUE(names("clip", "clip"));
  EXPECT_TRUE(names("backward(block.1)", "backward(block.1, micro-batch 0)"));
  EXPECT_TRUE(names("gather(block.1)", "gather(block.1)"));
  EXPECT_FALSE(names("backward(block.1)", "backward(block.10, micro-batch 0)"));
  EXPECT_FALSE(names("gather", "gather_gradients(block.1)"));
  EXPECT_FALSE(names("", "clip"));
}

}  // namespace
}  // namespace ostrakon::watch
