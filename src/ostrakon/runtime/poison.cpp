// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/poison.hpp>

namespace ostrakon::runtime {

void forbid_all(const Program& program, const Arenas& arenas) {
  const int shared = program.plan.checkpoint;
  const auto forbid_rest = [&](std::byte* arena, const plan::MemoryPlan& memory) {
    const bool has_shared = shared >= 0 && program.plan.buffers[shared].space == memory.space;
    const std::int64_t begin = has_shared ? memory.offsets[shared] : memory.arena_bytes;
    const std::int64_t end =
        has_shared ? begin + program.plan.buffers[shared].bytes : memory.arena_bytes;
    forbid(arena, static_cast<std::size_t>(begin));
    if (end < memory.arena_bytes)
      forbid(arena + end, static_cast<std::size_t>(memory.arena_bytes - end));
  };
  forbid_rest(arenas.device, program.memory);
  forbid_rest(arenas.host, program.host_memory);
}

void allow_all(const Program& program, const Arenas& arenas) {
  allow(arenas.device, static_cast<std::size_t>(program.memory.arena_bytes));
  allow(arenas.host, static_cast<std::size_t>(program.host_memory.arena_bytes));
}

void allow(const Program& program, const plan::Action& action, const Arenas& arenas) {
  for (const plan::Use& used : action.uses)
    allow(address_of(program, arenas, used.buffer),
          static_cast<std::size_t>(program.plan.buffers[used.buffer].bytes));
}

}  // namespace ostrakon::runtime
