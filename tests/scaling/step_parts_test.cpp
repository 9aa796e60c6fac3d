// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/scaling/step_parts.hpp>
#include <vector>

namespace ostrakon::scaling {
namespace {

using plan::Kind;
using plan::Stream;

double of_stream(const RankParts& divided, Stream stream) {
  return divided.by_stream[static_cast<std::size_t>(stream)];
}

TEST(StepParts, EachMomentCountsOnceAndComputeFirst) {
  const RankParts divided =
      divide_step({{Kind::forward, Stream::compute, 10.0, 12.0},
                   {Kind::gather, Stream::gather, 9.0, 11.0},            // 1 exposed
                   {Kind::reduce_scatter, Stream::reduce, 11.5, 13.0},   // 1 exposed
                   {Kind::optimize, Stream::host, 12.5, 14.0},           // 1 exposed
                   {Kind::copy_to_device, Stream::upload, 13.5, 14.25},  // 0.25 exposed
                   {Kind::backward, Stream::compute, 15.0, 16.0}},
                  8.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::compute), 3.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::communication), 2.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::host), 1.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::copies), 0.25);
  EXPECT_DOUBLE_EQ(divided.of(Part::waiting), 8.0 - 6.25);
  EXPECT_DOUBLE_EQ(of_stream(divided, Stream::compute), 3.0);
  EXPECT_DOUBLE_EQ(of_stream(divided, Stream::gather), 1.0);
  EXPECT_DOUBLE_EQ(of_stream(divided, Stream::reduce), 1.0);
  EXPECT_DOUBLE_EQ(of_stream(divided, Stream::host), 1.0);
  EXPECT_DOUBLE_EQ(of_stream(divided, Stream::upload), 0.25);
}

TEST(StepParts, WhatAnActionCountsAs) {
  EXPECT_EQ(part_of(Kind::exchange, Stream::exchange), Part::communication);
  EXPECT_EQ(part_of(Kind::send, Stream::send), Part::communication);
  EXPECT_EQ(part_of(Kind::receive, Stream::receive), Part::waiting);
  EXPECT_EQ(part_of(Kind::clip, Stream::host), Part::communication);
  EXPECT_EQ(part_of(Kind::reduce_sums, Stream::host), Part::communication);
  EXPECT_EQ(part_of(Kind::load, Stream::host), Part::host);
  EXPECT_EQ(part_of(Kind::copy_to_host, Stream::compute), Part::copies);
  EXPECT_EQ(part_of(Kind::optimize, Stream::compute), Part::compute);
}

TEST(StepParts, ReceivedMessagesAreWaitedFor) {
  const RankParts divided = divide_step(
      {{Kind::receive, Stream::receive, 0.0, 2.0}, {Kind::forward, Stream::compute, 2.0, 3.0}},
      3.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::waiting), 2.0);
  EXPECT_DOUBLE_EQ(divided.of(Part::communication), 0.0);
}

TEST(StepParts, NoPartIsNegative) {
  const RankParts divided = divide_step({{Kind::forward, Stream::compute, 0.0, 2.0}}, 1.9);
  EXPECT_EQ(divided.of(Part::waiting), 0.0);
  EXPECT_EQ(divide_step({}, 1.0).of(Part::waiting), 1.0);
  EXPECT_EQ(span_of({}), 0.0);
  EXPECT_DOUBLE_EQ(span_of({{Kind::forward, Stream::compute, 3.0, 4.0},
                            {Kind::gather, Stream::gather, 1.0, 2.0}}),
                   3.0);
}

}  // namespace
}  // namespace ostrakon::scaling
