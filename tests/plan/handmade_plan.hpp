// SPDX-License-Identifier: Apache-2.0
#pragma once

// Plans written by hand, of a few actions and buffers.

#include <gtest/gtest.h>

#include <ostrakon/plan/memory/memory_plan.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::tests {

inline plan::Action make_action(plan::Stream stream, std::vector<plan::Use> uses,
                                std::vector<int> waits = {}) {
  plan::Action action;
  action.kind = stream == plan::Stream::gather ? plan::Kind::gather : plan::Kind::forward;
  action.stream = stream;
  action.uses = std::move(uses);
  action.waits = std::move(waits);
  return action;
}

inline plan::Use write(int buffer) { return {plan::Role::output, buffer, plan::Access::write}; }
inline plan::Use read(int buffer) { return {plan::Role::input, buffer, plan::Access::read}; }
inline plan::Use update(int buffer) {
  return {plan::Role::saved, buffer, plan::Access::read_write};
}

/// A plan of these actions on buffers "a", "b", ... of 512 bytes, all at offset 0 and never live
/// together as far as their lifetimes say.
struct Handmade {
  plan::StepPlan plan;
  plan::MemoryPlan memory;

  Handmade(int buffers, std::vector<plan::Action> actions) {
    plan.actions = std::move(actions);
    for (int b = 0; b < buffers; ++b) {
      plan::Buffer buffer;
      buffer.name = std::string(1, static_cast<char>('a' + b));
      buffer.bytes = 512;
      buffer.first = 0;
      buffer.last = static_cast<int>(plan.actions.size()) - 1;
      plan.buffers.push_back(buffer);
      memory.offsets.push_back(0);
    }
    memory.arena_bytes = 4096;
  }

  /// What the proof says, or nothing if it holds.
  std::string refused() const {
    try {
      prove_memory(plan, memory);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "";
  }
};

inline void expect_refused(const Handmade& handmade, const std::string& because) {
  EXPECT_NE(handmade.refused().find(because), std::string::npos)
      << "refused with '" << handmade.refused() << "', not with '" << because << "'";
}

}  // namespace ostrakon::tests
