// SPDX-License-Identifier: Apache-2.0

// The ranges of flat parameters that actions work on lie within their buffers.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <random>

#include "plan/random_step_plan.hpp"

namespace {

using namespace ostrakon;
using namespace ostrakon::plan;
using namespace ostrakon::tests;

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

}  // namespace
