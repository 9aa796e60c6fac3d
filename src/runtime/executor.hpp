// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>

namespace ostrakon::runtime {

/// What profilers show of an action: "ostrakon: backward(block.3, micro-batch 0)".
std::string label(const plan::StepPlan& plan, const plan::Action& action);

/// A plan with its place in memory, proven: what an executor runs.
struct Program {
  plan::StepPlan plan;
  plan::MemoryPlan memory;
};

/// Plans memory and proves it.
Program make_program(plan::StepPlan plan);

/// An action with its buffers found in the arena: what a handler is called with.
class ActionBuffers {
 public:
  ActionBuffers(const Program& program, const plan::Action& its_action, std::byte* arena)
      : action(its_action), program_(program), arena_(arena) {}

  /// First element of the buffer in `role`, or null where the action has none.
  template <class T>
  T* get(plan::Role role) const {
    const int buffer = action.buffer(role);
    return buffer < 0 ? nullptr : reinterpret_cast<T*>(arena_ + program_.memory.offsets[buffer]);
  }

  const plan::Action& action;

 private:
  const Program& program_;
  std::byte* arena_;
};

/// Runs programs in one arena, action by action in plan order. It knows no policy: what an action
/// does is the handler of its kind.
class Executor {
 public:
  using Handler = std::function<void(const ActionBuffers&)>;
  /// Called with the kind of each action before (true) and after (false) it.
  using Observer = std::function<void(plan::Kind, bool begins)>;

  explicit Executor(std::byte* arena) : arena_(arena) {}

  void on(plan::Kind kind, Handler handler) {
    handlers_[static_cast<int>(kind)] = std::move(handler);
  }
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// Throws std::logic_error for an action without a handler.
  void run(const Program& program) const;

 private:
  std::byte* arena_;
  std::array<Handler, plan::kinds> handlers_;
  Observer observer_;
};

}  // namespace ostrakon::runtime
