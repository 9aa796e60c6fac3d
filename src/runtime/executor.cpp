// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <stdexcept>

namespace ostrakon::runtime {
namespace {

/// A Kokkos profiling region that ends with its scope, whatever ends it.
class Region {
 public:
  explicit Region(const std::string& label) { Kokkos::Profiling::pushRegion(label); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

/// Gives the whole arena back to everyone, however a run ends.
class AllowAll {
 public:
  AllowAll(const std::byte* arena, std::int64_t bytes)
      : arena_(arena), bytes_(static_cast<std::size_t>(bytes)) {}
  ~AllowAll() { allow(arena_, bytes_); }
  AllowAll(const AllowAll&) = delete;
  AllowAll& operator=(const AllowAll&) = delete;

 private:
  const std::byte* arena_;
  const std::size_t bytes_;
};

void show_only(const Program& program, const plan::Action& action, std::byte* arena) {
  if (!poisons) return;
  forbid(arena, static_cast<std::size_t>(program.memory.arena_bytes));
  for (const plan::Use& used : action.uses)
    allow(arena + program.memory.offsets[used.buffer],
          static_cast<std::size_t>(program.plan.buffers[used.buffer].bytes));
}

}  // namespace

std::string label(const plan::StepPlan& plan, const plan::Action& action) {
  return "ostrakon: " + plan.describe(action);
}

Program make_program(plan::StepPlan plan) {
  Program program;
  program.memory = plan::plan_memory(plan);
  plan::prove_memory(plan, program.memory);
  program.plan = std::move(plan);
  return program;
}

void Executor::run(const Program& program) const {
  const AllowAll at_the_end(arena_, program.memory.arena_bytes);
  for (const plan::Action& action : program.plan.actions) {
    if (action.kind == plan::Kind::release) continue;  // its place in the plan has done the work
    const Handler& handler = handlers_[static_cast<int>(action.kind)];
    if (!handler) throw std::logic_error("no handler for " + program.plan.describe(action));
    show_only(program, action, arena_);
    const Region region(label(program.plan, action));
    if (observer_) observer_(action.kind, true);
    handler(ActionBuffers(program, action, arena_));
    if (observer_) observer_(action.kind, false);
  }
}

}  // namespace ostrakon::runtime
