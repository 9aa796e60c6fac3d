// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/math/view.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>

namespace ostrakon::runtime {

/// What profilers show of an action: "ostrakon: backward(block.3, micro-batch 0)".
std::string label(const plan::StepPlan& plan, const plan::Action& action);

/// Tells programs apart, also where one is made in another's place: each has its own, a copy too.
class ProgramId {
 public:
  ProgramId() : value_(next()) {}
  ProgramId(const ProgramId&) : ProgramId() {}
  ProgramId& operator=(const ProgramId& other) {
    if (this != &other) value_ = next();
    return *this;
  }
  ~ProgramId() = default;
  std::uint64_t value() const { return value_; }

 private:
  static std::uint64_t next();

  std::uint64_t value_;
};

/// A plan with its place in memory, proven: what an executor runs.
struct Program {
  plan::StepPlan plan;
  plan::MemoryPlan memory;  ///< in device memory, which is host memory where there is no device
  plan::MemoryPlan host_memory;  ///< in host memory
  ProgramId id;

  /// Sums the bytes of all arenas.
  std::int64_t arena_bytes() const { return memory.arena_bytes + host_memory.arena_bytes; }
};

/// Plans memory and proves it; and, where the plan is not that of one of several stages, that the
/// communication of ranks which run it matches.
Program make_program(plan::StepPlan plan);

/// The arenas of a run, one for each memory space.
struct Arenas {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
};

/// Where a buffer of a program begins, in the arena of its memory space.
std::byte* address_of(const Program& program, const Arenas& arenas, int buffer);

/// Throws std::logic_error unless a buffer is in that space, or in device memory that is also the
/// host's, where it has views of both.
void require_space(const plan::StepPlan& plan, int buffer, bool on_host);

/// All of a buffer of a program. Throws std::logic_error where it is in other memory. Where device
/// memory is the host's it has host views, too, for streams on threads outside Kokkos. Null where
/// it has no bytes, such as the parameters of a unit without any, whichever memory they would be
/// in.
template <class T, class Space>
View<T*, Space> view_of(const Program& program, const Arenas& arenas, int buffer,
                        const ViewOrigin* origin = nullptr) {
  if (program.plan.buffers[buffer].bytes == 0) return {nullptr, 0, origin};
  require_space(program.plan, buffer, std::is_same<Space, OnHost>::value);
  return {reinterpret_cast<T*>(address_of(program, arenas, buffer)),
          program.plan.buffers[buffer].bytes / static_cast<std::int64_t>(sizeof(T)), origin};
}

}  // namespace ostrakon::runtime
