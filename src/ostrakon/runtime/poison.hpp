// SPDX-License-Identifier: Apache-2.0
#pragma once

// In a build with the address sanitizer the executor poisons all of the arena but the buffers that
// the running action declares, so an access that the plan does not declare ends the program.

#include <cstddef>
#include <ostrakon/runtime/program.hpp>

#if defined(__SANITIZE_ADDRESS__)
#define OSTRAKON_POISON 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OSTRAKON_POISON 1
#endif
#endif

#if defined(OSTRAKON_POISON)
#include <sanitizer/asan_interface.h>
#endif

namespace ostrakon::runtime {

#if defined(OSTRAKON_POISON)
constexpr bool poisons = true;
inline void forbid(const std::byte* data, std::size_t bytes) {
  __asan_poison_memory_region(data, bytes);
}
inline void allow(const std::byte* data, std::size_t bytes) {
  __asan_unpoison_memory_region(data, bytes);
}
#else
constexpr bool poisons = false;
inline void forbid(const std::byte*, std::size_t) {}
inline void allow(const std::byte*, std::size_t) {}
#endif

/// Poisons the arenas, but not the staging copy of a checkpoint: another thread reads it while
/// actions run, so it can't be poisoned even for a moment.
void forbid_all(const Program& program, const Arenas& arenas);
void allow_all(const Program& program, const Arenas& arenas);
/// Unpoisons the buffers of an action.
void allow(const Program& program, const plan::Action& action, const Arenas& arenas);

}  // namespace ostrakon::runtime
