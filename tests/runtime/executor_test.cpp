// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace ostrakon;
using plan::Kind;
using plan::Role;

/// One embedding and one head, with everything a plan can ask for.
plan::ModelDescription two_units() {
  plan::ModelDescription model;
  model.batch_bytes = 64;
  model.gradient_bytes = 512;
  model.sums_bytes = 128;
  for (const char* name : {"embedding", "head"}) {
    plan::UnitDescription unit;
    unit.name = name;
    unit.parameter_elements = 128;
    unit.output_bytes = 512;
    unit.forward_workspace_bytes = 256;
    unit.backward_workspace_bytes = 256;
    model.units.push_back(unit);
  }
  return model;
}

runtime::Program make_program(plan::Purpose purpose, int ranks = 2) {
  plan::Policy policy;
  policy.leaves = ranks;
  return runtime::make_program(plan::build_step_plan(two_units(), ranks, policy, purpose));
}

constexpr Kind all_kinds[] = {Kind::begin,    Kind::load, Kind::gather,           Kind::forward,
                          Kind::backward, Kind::loss, Kind::reduce_scatter,   Kind::accumulate,
                          Kind::norm,     Kind::clip, Kind::gather_gradients, Kind::optimize,
                          Kind::visit};

TEST(Executor, RunsActionsInPlanOrderWithTheirBuffers) {
  const runtime::Program program = make_program(plan::Purpose::train);
  const runtime::Arena arena(program.memory.arena_bytes);
  runtime::Executor executor(arena.data());
  std::vector<const plan::Action*> seen;
  for (Kind kind : all_kinds)
    executor.on(kind, [&](const runtime::ActionBuffers& buffers) {
      seen.push_back(&buffers.action);
      for (const plan::Use& used : buffers.action.uses) {
        const auto* address = buffers.get<std::byte>(used.role);
        EXPECT_EQ(address - arena.data(), program.memory.offsets[used.buffer]);
      }
      EXPECT_EQ(buffers.get<std::byte>(Role::second_moment) != nullptr,
                buffers.action.kind == Kind::optimize);
    });
  executor.run(program);
  std::size_t next = 0;
  for (const plan::Action& action : program.plan.actions) {
    if (action.kind == Kind::release) continue;
    ASSERT_LT(next, seen.size());
    EXPECT_EQ(seen[next++], &action);
  }
  EXPECT_EQ(next, seen.size());
}

TEST(Executor, TellsTheObserverBeforeAndAfter) {
  const runtime::Program program = make_program(plan::Purpose::evaluate);
  const runtime::Arena arena(program.memory.arena_bytes);
  runtime::Executor executor(arena.data());
  std::vector<std::string> told;
  for (Kind kind : all_kinds)
    executor.on(kind, [&](const runtime::ActionBuffers&) { told.push_back("handler"); });
  executor.observe([&](Kind kind, bool begins) {
    told.push_back((begins ? "begin " : "end ") + std::string(name(kind)));
  });
  executor.run(program);
  ASSERT_GE(told.size(), 3u);
  EXPECT_EQ(told[0], "begin begin");
  EXPECT_EQ(told[1], "handler");
  EXPECT_EQ(told[2], "end begin");
  EXPECT_EQ(told.size() % 3, 0u);
}

TEST(Executor, RefusesAnActionWithoutHandler) {
  const runtime::Program program = make_program(plan::Purpose::evaluate);
  const runtime::Arena arena(program.memory.arena_bytes);
  const runtime::Executor executor(arena.data());
  EXPECT_THROW(executor.run(program), std::logic_error);
}

TEST(Executor, LabelsNameUnitAndMicroBatch) {
  const runtime::Program program = make_program(plan::Purpose::train);
  const auto has = [&](const char* label) {
    const auto& actions = program.plan.actions;
    return std::any_of(actions.begin(), actions.end(), [&](const plan::Action& action) {
      return runtime::label(program.plan, action) == label;
    });
  };
  EXPECT_TRUE(has("ostrakon: gather(head)"));
  EXPECT_TRUE(has("ostrakon: backward(head, micro-batch 0)"));
}

TEST(MemoryCounter, CountsWhatKokkosAllocates) {
  runtime::start_counting_memory();
  const runtime::MemoryCount before = runtime::memory_count();
  {
    const runtime::Arena arena(1 << 20);
    const runtime::MemoryCount during = runtime::memory_count();
    EXPECT_EQ(during.bytes - before.bytes, 1 << 20);
    EXPECT_EQ(during.allocations - before.allocations, 1);
    EXPECT_GE(during.peak_bytes, during.bytes);
  }
  EXPECT_EQ(runtime::memory_count().bytes, before.bytes);
  EXPECT_GT(runtime::peak_resident_bytes(), 1 << 20);
  EXPECT_GT(runtime::available_memory_bytes(), 1 << 20);
}

// Only a sanitizer build can see an action reach for bytes that it did not declare.
TEST(ExecutorDeathTest, EndsTheProgramWhereAnActionUsesBytesThatItDidNotDeclare) {
  if (!runtime::poisons) GTEST_SKIP() << "needs the address sanitizer";
  const runtime::Program program = make_program(plan::Purpose::evaluate);
  const runtime::Arena arena(program.memory.arena_bytes);
  runtime::Executor executor(arena.data());
  for (Kind kind : all_kinds) executor.on(kind, [](const runtime::ActionBuffers&) {});
  executor.on(Kind::load, [&](const runtime::ActionBuffers&) {
    // The first buffer in the arena holds parameters, which a load has no business with.
    *arena.data() = std::byte{1};
  });
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(executor.run(program), "use-after-poison");
}

}  // namespace
