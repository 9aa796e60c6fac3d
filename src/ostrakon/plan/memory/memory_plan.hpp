// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <tuple>
#include <vector>

namespace ostrakon::plan {

/// Every buffer begins at a multiple of this many bytes.
constexpr std::int64_t buffer_alignment = 256;

/// The offset of each buffer of a StepPlan in the arena of one memory space.
struct MemoryPlan {
  Space space = Space::device;
  std::vector<std::int64_t> offsets;  ///< bytes, per buffer; -1: not in this space
  std::int64_t arena_bytes = 0;
  std::int64_t persistent_bytes = 0;  ///< size of the arena's first part, the same in all plans of
                                      ///< a run
  std::int64_t peak_live_bytes = 0;   ///< lower bound of any placement
  int peak_action = -1;
  std::array<std::int64_t, categories> peak_by_category{};  ///< live bytes at peak_action
};

/// Lays out the arena: two buffers share bytes only if the lifetime of one ends in the plan before
/// that of the other begins. See place() for how; a plan of 300,000 actions takes a second or two.
MemoryPlan plan_memory(const StepPlan& plan, Space space = Space::device);

/// Peak live bytes, a lower bound of the arena, in less time than plan_memory.
std::int64_t peak_live_bytes(const StepPlan& plan, Space space = Space::device);

/// A cache of device arena sizes, for many similar plans: two plans whose buffers have the same
/// sizes and lifetimes have the same arena. Several threads may use it at once.
class ArenaSizeCache {
 public:
  /// The size of the arena that plan_memory would lay out.
  std::int64_t arena_bytes(const StepPlan& plan);

 private:
  std::mutex mutex_;
  // The key stands for sizes and lifetimes: a hash of the buffers that are placed, their number and
  // their total bytes, persistent bytes, number of actions.
  using Key = std::tuple<std::uint64_t, std::size_t, std::int64_t, std::int64_t, std::size_t>;
  std::map<Key, std::int64_t> known_;
};

/// The proof that is required before anything runs. It trusts nothing that made the plan: not that
/// waits are enough, nor lifetimes, nor offsets. It shows that
/// - waits are for earlier actions, so that plan order is one of the orders that they allow;
/// - every two uses of the same byte, one of which writes, happen one before the other by streams
///   and waits, so that no order gives other results than plan order;
/// - what an action reads is what was last written to that buffer, each byte of it, by a use of
///   the same buffer;
/// - uses lie within lifetimes, and buffers in the arena.
/// Throws std::logic_error naming the buffers and the actions.
void prove_memory(const StepPlan& plan, const MemoryPlan& memory);

/// Returns a table of the bytes by category at the peak, and the action at which it is.
std::string memory_table(const StepPlan& plan, const MemoryPlan& memory);

}  // namespace ostrakon::plan
