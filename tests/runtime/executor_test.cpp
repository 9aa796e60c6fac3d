// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/messages.hpp"

namespace {

using namespace ostrakon;
using ostrakon::testing::error_of;
using plan::Kind;
using plan::Role;

/// Returns an embedding and a head, with all features that a plan can use.
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
    unit.forward.front().workspace_bytes = 256;
    unit.backward.front().workspace_bytes = 256;
    model.units.push_back(unit);
  }
  return model;
}

runtime::Program make_program(plan::Purpose purpose, int ranks = 2) {
  plan::Policy policy;
  policy.leaves = ranks;
  return runtime::make_program(plan::build_step_plan(two_units(), ranks, policy, purpose));
}

/// Arenas for one program, and an executor that runs it there.
struct Machine {
  explicit Machine(const runtime::Program& program,
                   runtime::Streams streams = runtime::Streams::in_plan_order)
      : device(program.memory.arena_bytes),
        host(program.host_memory.arena_bytes, plan::Space::host),
        executor({device.data(), host.data()}, streams) {}
  void on_all(const runtime::Executor::Handler& handler) {
    for (int kind = 0; kind < plan::kinds; ++kind)
      if (static_cast<Kind>(kind) != Kind::release) executor.on(static_cast<Kind>(kind), handler);
  }
  void run(const runtime::Program& program) { executor.run(program); }

  runtime::Arena device;
  runtime::Arena host;
  runtime::Executor executor;
};

TEST(Executor, NamesAKindWithoutAHandler) {
  Machine machine(make_program(plan::Purpose::train));
  machine.on_all([](const runtime::ActionBuffers&) {});
  machine.executor.require_handlers();
  machine.executor.on(Kind::verify, nullptr);
  EXPECT_EQ(error_of([&] { machine.executor.require_handlers(); }),
            "actions of the kind 'verify' have no handler; expected one for each kind");
}

TEST(Executor, RunsActionsInPlanOrderWithTheirBuffers) {
  const runtime::Program program = make_program(plan::Purpose::train);
  Machine machine(program);
  std::vector<const plan::Action*> seen;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    seen.push_back(&buffers.action);
    for (const plan::Use& used : buffers.action.uses) {
      if (program.plan.buffers[used.buffer].space == plan::Space::host) {
        EXPECT_EQ((buffers.view<std::byte, OnHost>(used.buffer).data()),
                  machine.host.data() + program.host_memory.offsets[used.buffer]);
        EXPECT_EQ(buffers.host_view<std::byte>(used.role).data(),
                  (buffers.view<std::byte, OnHost>(buffers.action.buffer(used.role)).data()));
      } else {
        EXPECT_EQ((buffers.view<std::byte, OnDevice>(used.buffer).data()),
                  machine.device.data() + program.memory.offsets[used.buffer]);
        EXPECT_EQ(buffers.device_view<std::byte>(used.role).data(),
                  (buffers.view<std::byte, OnDevice>(buffers.action.buffer(used.role)).data()));
      }
    }
    EXPECT_EQ(static_cast<bool>(buffers.device_view<std::byte>(Role::second_moment)),
              buffers.action.kind == Kind::optimize);
  });
  machine.run(program);
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
  Machine machine(program);
  std::vector<std::string> told;
  machine.on_all([&](const runtime::ActionBuffers&) { told.push_back("handler"); });
  machine.executor.observe([&](const plan::Action& action, bool begins) {
    told.push_back((begins ? "begin " : "end ") + std::string(name(action.kind)));
  });
  machine.run(program);
  ASSERT_GE(told.size(), 3u);
  EXPECT_EQ(told[0], "begin begin");
  EXPECT_EQ(told[1], "handler");
  EXPECT_EQ(told[2], "end begin");
  EXPECT_EQ(told.size() % 3, 0u);
}

TEST(Executor, RefusesAnActionWithoutHandler) {
  const runtime::Program program = make_program(plan::Purpose::evaluate);
  Machine machine(program);
  EXPECT_THROW(machine.run(program), std::logic_error);
}

TEST(Executor, LabelsNameUnitAndMicroBatch) {
  const runtime::Program program = make_program(plan::Purpose::train);
  std::set<std::string> labels;
  for (const plan::Action& action : program.plan.actions)
    labels.insert(runtime::label(program.plan, action));
  for (const char* label : {"ostrakon: gather(head)", "ostrakon: backward(head, micro-batch 0)"})
    EXPECT_EQ(labels.count(label), 1U) << label;
}

/// Returns a program of one action that uses a buffer on the device and, if it `declares` it, one
/// on the host.
runtime::Program program_of_both_spaces(bool declares = true) {
  runtime::Program program;
  for (const plan::Space space : {plan::Space::device, plan::Space::host}) {
    plan::Buffer buffer;
    buffer.space = space;
    buffer.bytes = 8;
    program.plan.buffers.push_back(buffer);
  }
  program.memory.offsets = {256, -1};
  program.memory.arena_bytes = 264;
  program.host_memory.offsets = {-1, 512};
  program.host_memory.arena_bytes = 520;
  plan::Action action;
  action.kind = Kind::clip;
  action.uses = {{Role::sums, 0, plan::Access::read_write}};
  if (declares) action.uses.push_back({Role::host_sums, 1, plan::Access::read_write});
  program.plan.actions = {action};

  return program;
}

TEST(Executor, FindsBuffersInTheArenaOfTheirSpace) {
  const runtime::Program program = program_of_both_spaces();
  EXPECT_EQ(program.arena_bytes(), 784);
  for (const auto streams : {runtime::Streams::in_plan_order, runtime::Streams::threads}) {
    Machine machine(program, streams);
    machine.on_all([&](const runtime::ActionBuffers& buffers) {
      EXPECT_EQ(buffers.device_view<std::byte>(Role::sums).data(), machine.device.data() + 256);
      EXPECT_EQ(buffers.host_view<std::byte>(Role::host_sums).data(), machine.host.data() + 512);
      EXPECT_EQ(buffers.host_view<std::byte>(Role::shard).data(), nullptr);
      buffers.host_view<std::int64_t>(Role::host_sums)[0] = 1;
    });
    machine.run(program);
  }
}

TEST(Executor, HandsOutEveryBufferOfARole) {
  runtime::Program program = program_of_both_spaces();
  for (plan::Use& used : program.plan.actions[0].uses) used.role = Role::gradient_shard;
  Machine machine(program);
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    EXPECT_EQ(buffers.device_view<std::byte>(Role::gradient_shard).data(),
              machine.device.data() + 256);
    EXPECT_EQ((buffers.view<std::byte, OnHost>(1).data()), machine.host.data() + 512);
    // A sanitizer build would fail here if only the first buffer were accessible.
    const int first = memory_is_host_accessible ? 0 : 1;
    for (int buffer = first; buffer < 2; ++buffer)
      buffers.view<std::int64_t, OnHost>(buffer)[0] = 1;
  });
  machine.run(program);
}

TEST(Executor, HandsOutViewsInTheSpaceOfTheBuffer) {
  const runtime::Program program = program_of_both_spaces();
  Machine machine(program);
  int calls = 0;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    ++calls;
    const DeviceView<std::int32_t*> sums = buffers.device_view<std::int32_t>(Role::sums);
    EXPECT_EQ(sums.size(), 2);
    EXPECT_EQ(view_as<std::byte>(sums).data(), machine.device.data() + 256);
    EXPECT_EQ(buffers.host_view<char>(Role::host_sums).size(), 8);
    EXPECT_FALSE(buffers.device_view<float>(Role::shard));
    EXPECT_THROW(buffers.device_view<float>(Role::host_sums), std::logic_error);
    if (memory_is_host_accessible) {
      EXPECT_EQ(buffers.host_view<std::int32_t>(Role::sums).data(), sums.data());
    } else {
      EXPECT_THROW(buffers.host_view<std::int32_t>(Role::sums), std::logic_error);
    }
  });
  machine.run(program);
  EXPECT_EQ(calls, 1);
}

TEST(Executor, HandsOutTheExecutionSpaceOfTheStream) {
  const runtime::Program program = make_program(plan::Purpose::train);
  Machine machine(program);
  std::map<plan::Stream, std::set<const Exec*>> seen;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    seen[buffers.action.stream].insert(&buffers.exec);
  });
  machine.run(program);
  machine.run(program);
  EXPECT_GT(seen.size(), 1U);
  for (const auto& [stream, instances] : seen) EXPECT_EQ(instances.size(), 1U) << name(stream);
}

TEST(Program, HasItsOwnNumber) {
  runtime::Program program = program_of_both_spaces();
  const std::uint64_t first = program.id.value();
  const runtime::Program copy = program;
  EXPECT_NE(copy.id.value(), first);
  EXPECT_EQ(program.id.value(), first);
  program = program_of_both_spaces();
  EXPECT_NE(program.id.value(), first);
}

#if defined(OSTRAKON_CHECK_VIEWS)
TEST(ExecutorDeathTest, ViewsKnowTheirProgramWhereAnotherTakesItsPlace) {
  runtime::Program program = program_of_both_spaces();
  program.plan.buffers[1].name = "old";
  Machine machine(program);
  HostView<std::int64_t*> kept;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    const auto sums = buffers.host_view<std::int64_t>(Role::host_sums);
    if (!kept) {
      kept = sums;
      return;
    }
    EXPECT_DEATH(sums(1), "of a view of buffer 'new' .* made for clip");
    EXPECT_DEATH(kept(0), "of a view of buffer 'old' .* used after that action");
  });
  machine.run(program);
  ASSERT_TRUE(kept);
  program = program_of_both_spaces();
  program.plan.buffers[1].name = "new";
  machine.run(program);
}

TEST(ExecutorDeathTest, ViewsKnowTheirBufferAndEndWithTheirAction) {
  runtime::Program program = program_of_both_spaces();
  program.plan.buffers[1].name = "sums on the host";
  Machine machine(program);
  HostView<std::int64_t*> kept;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    kept = buffers.host_view<std::int64_t>(Role::host_sums);
    kept(0) = 1;
    EXPECT_DEATH(kept(1),
                 "index 1 is outside of a view of buffer 'sums on the host' with extents "
                 "\\(1\\), made for clip");
  });
  machine.run(program);
  EXPECT_DEATH(kept(0),
               "index 0 of a view of buffer 'sums on the host' with extents \\(1\\), made "
               "for clip: used after that action, when the plan may have freed the buffer");
}

void write_first(const Exec& exec, DeviceView<std::int32_t*> x) {
  Kokkos::parallel_for(
      "write_first", Kokkos::RangePolicy<Exec>(exec, 0, 1), KOKKOS_LAMBDA(int i) { x(i) = 1; });
  exec.fence();
}

TEST(ExecutorDeathTest, AKernelEndsTheRunWithAViewThatWasKept) {
  if (on_device) GTEST_SKIP() << "a device checks extents only";
  runtime::Program program = program_of_both_spaces();
  program.plan.buffers[0].name = "sums";
  Machine machine(program);
  DeviceView<std::int32_t*> kept;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    kept = buffers.device_view<std::int32_t>(Role::sums);
    write_first(buffers.exec, kept);
  });
  machine.run(program);
  EXPECT_DEATH(
      write_first(Exec(), kept),
      "index 0 of a view of buffer 'sums' with extents \\(2\\), made for clip: used after");
}

TEST(ExecutorDeathTest, ViewsOfNothingKnowWhatTheyAreNotOf) {
  runtime::Program program = program_of_both_spaces();
  program.plan.buffers[1].name = "sums on the host";
  program.plan.buffers[1].bytes = 0;
  Machine machine(program);
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    const auto empty = buffers.host_view<float>(Role::host_sums);
    const auto none = buffers.host_view<float>(Role::workspace);
    EXPECT_FALSE(empty || none);
    EXPECT_EQ(buffers.device_view<float>(Role::workspace).origin(), none.origin());
    EXPECT_DEATH(empty(0), "buffer 'sums on the host' with extents \\(0\\), made for clip");
    EXPECT_DEATH(none.range(0, 4)(3),
                 "index 3 is outside of a view of no array in buffer 'workspace' with extents "
                 "\\(0\\), made for clip");
  });
  machine.run(program);
}

TEST(Executor, RefusesABufferThatTheActionDoesNotUse) {
  runtime::Program program = program_of_both_spaces(false);
  program.plan.buffers[1].name = "sums on the host";
  Machine machine(program);
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    buffers.view<float, OnDevice>(0);
    buffers.view<float, OnHost>(1);
  });
  EXPECT_EQ(error_of<std::logic_error>([&] { machine.run(program); }),
            "clip does not use the buffer 'sums on the host'");
}

/// Two streams on their own threads: the views of each end with its action.
TEST(ExecutorDeathTest, ViewsOnThreadsKnowTheirBufferAndEndWithTheirAction) {
  runtime::Program program = program_of_both_spaces();
  program.plan.buffers[1].name = "sums on the host";
  plan::Action& first = program.plan.actions.front();
  first.stream = plan::Stream::gather;
  plan::Action second = first;
  second.stream = plan::Stream::reduce;
  second.waits = {0};
  program.plan.actions.push_back(second);
  Machine machine(program, runtime::Streams::threads);
  std::vector<HostView<std::int64_t*>> kept;
  machine.on_all([&](const runtime::ActionBuffers& buffers) {
    for (const auto& before : kept) EXPECT_FALSE(before.origin()->live);
    kept.push_back(buffers.host_view<std::int64_t>(Role::host_sums));
    EXPECT_TRUE(kept.back().origin()->live);
    EXPECT_EQ(kept.back().origin()->buffer, "sums on the host");
    EXPECT_EQ(buffers.host_view<float>(Role::workspace).origin()->buffer, "workspace");
    kept.back()(0) = 1;
  });
  machine.run(program);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_NE(kept[0].origin(), kept[1].origin());
  for (const auto& one : kept)
    EXPECT_DEATH(one(0), "of a view of buffer 'sums on the host' .* used after that action");
}
#endif

TEST(Arena, OfNoBytesAllocatesNothing) {
  runtime::start_counting_memory();
  const runtime::MemoryCount before = runtime::memory_count();
  for (const plan::Space space : {plan::Space::device, plan::Space::host}) {
    const runtime::Arena arena(0, space);
    EXPECT_EQ(arena.data(), nullptr);
    EXPECT_EQ(arena.bytes(), 0);
  }
  EXPECT_EQ(runtime::memory_count().allocations, before.allocations);
  const runtime::Arena on_host(1000, plan::Space::host);
  EXPECT_EQ(on_host.bytes(), 1000);
  on_host.data()[999] = std::byte{1};
  EXPECT_EQ(runtime::memory_count().allocations, before.allocations + 1);
  const runtime::Arena not_pinned(1000, plan::Space::host, false);
  not_pinned.data()[999] = std::byte{1};
  EXPECT_EQ(runtime::memory_count().allocations, before.allocations + 2);
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
  for (const plan::Space space : {plan::Space::device, plan::Space::host})
    EXPECT_GT(runtime::available_memory_bytes(space), 1 << 20);
}

/// Reports allocations and frees to tools as Kokkos does: with a label, but frees of Kokkos' own
/// memory without one.
class ToldMemory {
 public:
  void allocate(const std::string& label, std::uint64_t bytes) {
    Kokkos::Profiling::allocateData(space_, label, this, bytes);
  }
  void free(const std::string& label, std::uint64_t bytes) {
    Kokkos::Profiling::deallocateData(space_, label, this, bytes);
  }

 private:
  Kokkos::Profiling::SpaceHandle space_ = Kokkos::Profiling::make_space_handle("Made up");
};

TEST(MemoryCounter, CountsApartWhatKokkosAllocatesForItself) {
  runtime::start_counting_memory();
  const runtime::MemoryCount before = runtime::memory_count();
  const auto expect = [&](std::int64_t bytes, std::int64_t allocations, std::int64_t library_bytes,
                          std::int64_t library_allocations) {
    const runtime::MemoryCount now = runtime::memory_count();
    EXPECT_EQ(now.bytes - before.bytes, bytes);
    EXPECT_EQ(now.allocations - before.allocations, allocations);
    EXPECT_EQ(now.library_bytes - before.library_bytes, library_bytes);
    EXPECT_EQ(now.library_allocations - before.library_allocations, library_allocations);
    EXPECT_EQ(now.all_allocations() - before.all_allocations(), allocations + library_allocations);
  };
  ToldMemory array, scratch, teams, unlabeled, older, none;
  array.allocate("array", 1 << 20);
  expect(1 << 20, 1, 0, 0);
  scratch.allocate("Kokkos::InternalScratchSpace", 65536);
  teams.allocate("Kokkos::CudaSpace::TeamScratchMemory", 300);
  unlabeled.allocate("[unlabeled]", 64);
  expect(1 << 20, 1, 65900, 3);
  none.allocate("Kokkos::CudaSpace::TeamScratchMemory", 0);  // at each launch of teams
  none.allocate("Kokkos::CudaSpace::TeamScratchMemory", 0);
  expect(1 << 20, 1, 65900, 5);
  older.free("[unlabeled]", 4096);  // of memory allocated before counting began
  expect(1 << 20, 1, 65900, 5);
  scratch.free("[unlabeled]", 65536);
  unlabeled.free("[unlabeled]", 64);
  expect(1 << 20, 1, 300, 5);
  teams.free("Kokkos::CudaSpace::TeamScratchMemory", 300);
  array.free("array", 1 << 20);
  expect(0, 1, 0, 5);
}

// Only a sanitizer build detects that an action accesses undeclared bytes.
TEST(ExecutorDeathTest, EndsTheProgramWhereAnActionUsesBytesThatItDidNotDeclare) {
  if (!runtime::poisons) GTEST_SKIP() << "needs the address sanitizer";
  const runtime::Program program = make_program(plan::Purpose::evaluate);
  Machine machine(program);
  machine.on_all([](const runtime::ActionBuffers&) {});
  machine.executor.on(Kind::load, [&](const runtime::ActionBuffers&) {
    // The first buffer in the arena holds parameters, which a load may not access.
    *machine.device.data() = std::byte{1};
  });
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(machine.run(program), "use-after-poison");
}

TEST(ExecutorDeathTest, SoItDoesInHostMemory) {
  if (!runtime::poisons) GTEST_SKIP() << "needs the address sanitizer";
  for (const bool declares : {true, false}) {
    const runtime::Program program = program_of_both_spaces(declares);
    Machine machine(program);
    machine.on_all([&](const runtime::ActionBuffers&) { machine.host.data()[512] = std::byte{1}; });
    GTEST_FLAG_SET(death_test_style, "fast");
    if (declares)
      machine.run(program);
    else
      EXPECT_DEATH(machine.run(program), "use-after-poison");
    machine.host.data()[0] = std::byte{1};  // between runs the whole arena is accessible
  }
}

/// Another thread writes a checkpoint from its copy, whatever action runs.
TEST(ExecutorDeathTest, LeavesTheCopyOfACheckpointOpen) {
  runtime::Program program = program_of_both_spaces();
  plan::Buffer copy;
  copy.bytes = 320;
  copy.space = plan::Space::host;
  copy.persistent = true;
  program.plan.checkpoint = static_cast<int>(program.plan.buffers.size());
  program.plan.buffers.push_back(copy);
  program.memory.offsets.push_back(-1);
  program.host_memory.offsets.push_back(64);
  program.host_memory.space = plan::Space::host;
  for (const std::size_t byte : {64, 383, 63, 384}) {
    Machine machine(program);
    machine.on_all([&](const runtime::ActionBuffers&) {
      std::thread([&] { machine.host.data()[byte] = std::byte{1}; }).join();
    });
    GTEST_FLAG_SET(death_test_style, "fast");
    if (!runtime::poisons || (byte >= 64 && byte < 384))
      machine.run(program);
    else
      EXPECT_DEATH(machine.run(program), "use-after-poison");
  }
}

}  // namespace
