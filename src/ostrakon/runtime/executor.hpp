// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/math/view.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::runtime {

/// What profilers show of an action: "ostrakon: backward(block.3, micro-batch 0)".
std::string label(const plan::StepPlan& plan, const plan::Action& action);

/// A plan with its place in memory, proven: what an executor runs.
struct Program {
  plan::StepPlan plan;
  plan::MemoryPlan memory;  ///< in device memory, which is host memory where there is no device
  plan::MemoryPlan host_memory;  ///< in host memory

  /// Of all arenas.
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
  if (program.plan.buffers[buffer].bytes == 0) return {};
  require_space(program.plan, buffer, std::is_same<Space, OnHost>::value);
  return {reinterpret_cast<T*>(address_of(program, arenas, buffer)),
          program.plan.buffers[buffer].bytes / static_cast<std::int64_t>(sizeof(T)), origin};
}

/// An action with its buffers found in the arenas: what a handler is called with.
class ActionBuffers {
 public:
  /// `origins`: those of the views, one for each of the action's uses; or null.
  ActionBuffers(const Program& program, const plan::Action& its_action, const Arenas& arenas,
                const ViewOrigin* origins = nullptr)
      : action(its_action), program_(program), arenas_(arenas), origins_(origins) {}

  // All of the first buffer in `role`, as view_of(); where the action has none, a view of no array.
  // Views are valid while the action runs.

  template <class T>
  DeviceView<T*> device_view(plan::Role role) const {
    return view<T, OnDevice>(action.buffer(role));
  }
  template <class T>
  HostView<T*> host_view(plan::Role role) const {
    return view<T, OnHost>(action.buffer(role));
  }
  /// The same of a buffer of the plan, where a role has several.
  template <class T, class Space>
  View<T*, Space> view(int buffer) const {
    if (buffer < 0) return {};
    return view_of<T, Space>(program_, arenas_, buffer, origin_of(buffer));
  }

  const plan::Action& action;

 private:
  const ViewOrigin* origin_of(int buffer) const;

  const Program& program_;
  const Arenas& arenas_;
  const ViewOrigin* origins_;
};

/// How the streams of a plan run.
enum class Streams {
  in_plan_order,  ///< all on the thread that calls, one action after the other
  threads  ///< compute on the thread that calls, every other stream that a program uses on a thread
           ///< of its own, begun with the first such run, from which Kokkos is not to be entered
};

/// Perturbs the schedule, to show that it changes no bit. In plan order: another order that streams
/// and waits allow, a function of `seed` and the plan alone, so that ranks with the same seed stay
/// in step. On threads: every action sleeps up to `longest_seconds` before and after its work,
/// differently for other seeds.
struct Perturbation {
  std::uint64_t seed = 0;
  double longest_seconds = 0.0;
};

/// When an action ran, as seconds_now() counts.
struct ActionTime {
  double begin = 0.0;
  double end = 0.0;
};

/// Runs programs in the arenas of a run. It does not depend on the policy: what an action does is
/// the handler of its kind.
///
/// An action begins when the action before it on its stream has ended and all that it waits for
/// have. On threads, handlers of different streams run at the same time; what an action wrote is
/// seen by those that it happens before. Nothing is allocated by run() once a program of that
/// length, with those streams, has run.
///
/// Where a handler throws, run() throws the same once nothing runs any more; of several, what the
/// first of them in plan order threw. In plan order nothing more is begun: ranks in the same order
/// on which the same action fails have made the same calls. On threads the actions that the failed
/// one happens before are skipped and all others still run, so that again ranks on which the same
/// ones fail make the same calls; and a rank that fails alone waits for no other.
class Executor {
 public:
  using Handler = std::function<void(const ActionBuffers&)>;
  /// Called before (true) and after (false) each action that runs on the calling thread and has a
  /// handler, also where that throws. What it throws itself counts as thrown by the handler.
  using Observer = std::function<void(plan::Kind, bool begins)>;

  explicit Executor(Arenas arenas, Streams streams = Streams::in_plan_order);
  ~Executor();  ///< ends the threads
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void on(plan::Kind kind, Handler handler);
  void observe(Observer observer);
  void perturb(Perturbation perturbation);  ///< all runs from now on

  /// Throws std::logic_error for an action without a handler, or that waits for a later one, before
  /// anything runs. `release` needs no handler: its place in the plan and its waits do the work.
  void run(const Program& program);

  /// Of each action of the last run; of those that were skipped, zeros.
  const std::vector<ActionTime>& times() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ostrakon::runtime
