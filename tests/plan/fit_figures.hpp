// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <ostrakon/plan/fit.hpp>

namespace ostrakon::tests {

/// All that is counted: times may be added up in another order.
inline void expect_same_counts(const plan::Fit& a, const plan::Fit& b) {
  EXPECT_EQ(a.candidate, b.candidate);
  EXPECT_EQ(a.arena_bytes, b.arena_bytes);
  EXPECT_EQ(a.host_arena_bytes, b.host_arena_bytes);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bits_of_one_rank, b.bits_of_one_rank);
  EXPECT_EQ(a.bytes_inside_nodes, b.bytes_inside_nodes);
  EXPECT_EQ(a.bytes_across_nodes, b.bytes_across_nodes);
  EXPECT_EQ(a.bytes_copied, b.bytes_copied);
  EXPECT_EQ(a.bytes_on_host, b.bytes_on_host);
}

inline bool has_room(const plan::Fit& fit, const plan::Room& room) {
  return fit.arena_bytes <= room.device_bytes && fit.host_arena_bytes <= room.host_bytes;
}

}  // namespace ostrakon::tests
