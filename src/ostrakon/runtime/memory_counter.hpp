// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::runtime {

/// Memory allocated through Kokkos, in all its memory spaces, as its Tools callbacks report it, and
/// arenas that Kokkos does not allocate. Callbacks of a tool that the user loaded are still called.
/// Memory that Kokkos allocates for itself, such as the scratch memory of a device stream, is in no
/// plan and counted apart.
struct MemoryCount {
  std::int64_t bytes = 0;        ///< allocated now
  std::int64_t peak_bytes = 0;   ///< maximum since start_counting_memory
  std::int64_t allocations = 0;  ///< made since start_counting_memory

  std::int64_t library_bytes = 0;        ///< bytes that Kokkos has allocated for itself since then
  std::int64_t library_allocations = 0;  ///< allocations that Kokkos has made for itself since then

  std::int64_t all_allocations() const { return allocations + library_allocations; }
};

/// Starts the counters, after Kokkos is initialized and before anything is allocated; later calls
/// do nothing.
void start_counting_memory();
MemoryCount memory_count();
/// Count memory that Kokkos does not know.
void count_allocation(std::int64_t bytes);
void count_deallocation(std::int64_t bytes);

/// Maximum resident memory of this process so far, in bytes; 0 if the system does not report it.
std::int64_t peak_resident_bytes();
/// Memory that this process can still get, in bytes. Of the host: the system's available memory, or
/// less if control groups limit it; of a device: its free memory. In builds without a device both
/// are the host's.
std::int64_t available_memory_bytes(plan::Space space);

}  // namespace ostrakon::runtime
