// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/step_plan.hpp>

namespace ostrakon::runtime {

/// What was allocated through Kokkos, in all its memory spaces, as its Tools callbacks report it,
/// and arenas that Kokkos does not allocate. Callbacks of a tool that the user loaded are still
/// called. No plan has what Kokkos allocates for itself, such as the scratch memory of a stream of
/// a device, which is counted apart.
struct MemoryCount {
  std::int64_t bytes = 0;        ///< allocated now
  std::int64_t peak_bytes = 0;   ///< most at any time since start_counting_memory
  std::int64_t allocations = 0;  ///< made since then

  std::int64_t library_bytes = 0;        ///< that Kokkos has allocated for itself since then
  std::int64_t library_allocations = 0;  ///< that it has made for itself

  std::int64_t all_allocations() const { return allocations + library_allocations; }
};

/// Call after Kokkos is initialized and before anything is allocated; later calls do nothing.
void start_counting_memory();
MemoryCount memory_count();
/// These count memory that Kokkos knows nothing of.
void count_allocation(std::int64_t bytes);
void count_deallocation(std::int64_t bytes);

/// Most resident memory of this process so far, in bytes; 0 where the system does not report it.
std::int64_t peak_resident_bytes();
/// Memory that this process could still get, in bytes. Of the host: what the system calls
/// available, or less where control groups limit it; of a device: what is free there. In builds
/// without a device both are the host's.
std::int64_t available_memory_bytes(plan::Space space);

}  // namespace ostrakon::runtime
