// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/watch/loss.hpp>

namespace ostrakon::watch {
namespace {

/// Sends two packets a second for some seconds, every `nth` of them twice; 0: none.
void send(LossMeter& meter, Packets& packets, double& now, double seconds, std::uint32_t nth) {
  for (const double end = now + seconds; now < end; now += 0.5) {
    ++packets.sent;
    if (nth > 0 && packets.sent % nth == 0) ++packets.again;
    meter.take(packets, now);
  }
}

TEST(LossMeter, TellsAShareThatIsNoChanceAndForgetsIt) {
  LossMeter meter;
  Packets packets;
  double now = 100.0;
  send(meter, packets, now, 60.0, 0);
  EXPECT_EQ(meter.share(), 0.0);
  packets.again += 2;  // two in 20 s may be chance
  send(meter, packets, now, 1.0, 0);
  EXPECT_EQ(meter.share(), 0.0);
  send(meter, packets, now, 60.0, 4);
  EXPECT_NEAR(meter.share(), 0.25, 0.05);
  send(meter, packets, now, 21.0, 0);
  EXPECT_EQ(meter.share(), 0.0);
  EXPECT_TRUE(meter.has_effect(now));
  EXPECT_FALSE(meter.has_effect(now + 180.0));
  send(meter, packets, now, 60.0, 50);  // 2 % disturb nobody
  EXPECT_EQ(meter.share(), 0.0);
}

TEST(LossMeter, DoesNotCountWhatGotLostWhileConnecting) {
  LossMeter meter;
  Packets packets{2, 4};
  double now = 100.0;
  send(meter, packets, now, 30.0, 0);
  EXPECT_EQ(meter.share(), 0.0);
  EXPECT_FALSE(meter.has_effect(now));
  send(meter, packets, now, 20.0, 4);
  EXPECT_GT(meter.share(), 0.0);
}

TEST(LossMeter, BeginsAnewWithAnotherConnection) {
  LossMeter meter;
  meter.take({1000, 400}, 100.0);
  meter.take({3, 0}, 101.0);
  EXPECT_EQ(meter.share(), 0.0);
}

}  // namespace
}  // namespace ostrakon::watch
