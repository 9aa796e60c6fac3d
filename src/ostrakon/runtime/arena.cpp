// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/arena.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/huge_pages.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <string>

namespace ostrakon::runtime {

Arena::Arena(std::int64_t bytes, [[maybe_unused]] plan::Space space, [[maybe_unused]] bool pinned,
             bool shared)
    : bytes_(bytes) {
  if (bytes == 0) return;
#if OSTRAKON_HAS_DEVICE
  if (space == plan::Space::device) {
    device_ = device::DeviceBytes(bytes);
    data_ = device_.data();
  } else if (pinned) {
    pinned_ = device::PinnedBytes(bytes);
    data_ = pinned_.data();
  }
  if (data_ != nullptr) {
    count_allocation(bytes);
    return;
  }
#endif
  if (shared) {
    try {
      shared_ = SharedMemory(bytes);
      shared_.take_huge_pages();
      shared_.take();
    } catch (const Error& error) {
      throw Error(text(error.what(), "; with parallel.node_windows = never ranks share none"));
    }
    data_ = shared_.data();
    count_allocation(bytes);
    return;
  }
  const std::string label = space == plan::Space::device ? "ostrakon arena" : "ostrakon host arena";
  host_ = decltype(host_)(Kokkos::view_alloc(label, Kokkos::WithoutInitializing),
                          static_cast<std::size_t>(bytes));
  data_ = reinterpret_cast<std::byte*>(host_.data());
  advise_huge_pages(data_, bytes);
}

Arena::~Arena() {
  allow(data_, static_cast<std::size_t>(bytes_));
  if (data_ != nullptr && host_.data() == nullptr) count_deallocation(bytes_);
}

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
