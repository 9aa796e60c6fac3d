// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/math/view.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <string>

namespace ostrakon::runtime {

/// Returns the name of an action for profilers: "ostrakon: backward(block.3, micro-batch 0)".
std::string label(const plan::StepPlan& plan, const plan::Action& action);

/// Identifies a program, also if one is made in the place of another: each has its own id, copies
/// too.
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

/// A proven plan with its placement in memory: the input of an executor.
struct Program {
  plan::StepPlan plan;
  plan::MemoryPlan memory;  ///< layout in device memory, which is host memory if there is no device
  plan::MemoryPlan host_memory;  ///< layout in host memory
  ProgramId id;

  /// Sums the bytes of all arenas.
  std::int64_t arena_bytes() const { return memory.arena_bytes + host_memory.arena_bytes; }
};

/// Plans memory and proves it; for a plan without pipeline stages also proves that the
/// communication of ranks which run it matches.
Program make_program(plan::StepPlan plan);

/// The arenas of a run, one for each memory space.
struct Arenas {
  std::byte* device = nullptr;
  std::byte* host = nullptr;
};

/// The address of a buffer of a program, in the arena of its memory space.
std::byte* address_of(const Program& program, const Arenas& arenas, int buffer);

/// Throws std::logic_error unless a buffer is in that space, or in device memory that is also the
/// host's, which has views of both.
void require_space(const plan::StepPlan& plan, int buffer, bool on_host);

/// A view of a whole buffer of a program. Throws std::logic_error where it is in other memory. If
/// device memory is the host's it has host views, too, for streams on threads outside Kokkos. Null
/// if the buffer has no bytes, as for a unit without parameters, in any memory space.
template <class T, class Space>
View<T*, Space> view_of(const Program& program, const Arenas& arenas, int buffer,
                        const ViewOrigin* origin = nullptr) {
  if (program.plan.buffers[buffer].bytes == 0) return {nullptr, 0, origin};
  require_space(program.plan, buffer, std::is_same<Space, OnHost>::value);
  return {reinterpret_cast<T*>(address_of(program, arenas, buffer)),
          program.plan.buffers[buffer].bytes / static_cast<std::int64_t>(sizeof(T)), origin};
}

}  // namespace ostrakon::runtime
