// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <ostrakon/base/names.hpp>
#include <ostrakon/runtime/program.hpp>
#include <ostrakon/runtime/queue.hpp>
#include <vector>

namespace ostrakon::runtime {

class ViewOrigins;

/// An action with its buffers found in the arenas: what a handler is called with.
class ActionBuffers {
 public:
  /// `origins`: of the views, prepared for `program`, of which the action is; or null. What it is
  /// given must outlive it.
  ActionBuffers(const Program& program, const plan::Action& its_action, const Arenas& arenas,
                const Exec& its_exec, ViewOrigins* origins = nullptr)
      : action(its_action), exec(its_exec), program_(program), arenas_(arenas), origins_(origins) {}

  // All of the first buffer in `role`, as view_of(); where the action has none, a view of no array.
  // Views are valid while the action runs.

  template <class T, class Space>
  View<T*, Space> view(plan::Role role) const {
    const int buffer = action.buffer(role);
    if (buffer >= 0) return view<T, Space>(buffer);
    if (!views_check || origins_ == nullptr) return {};
    return {nullptr, 0, origin_of_none(role)};
  }
  template <class T>
  DeviceView<T*> device_view(plan::Role role) const {
    return view<T, OnDevice>(role);
  }
  template <class T>
  HostView<T*> host_view(plan::Role role) const {
    return view<T, OnHost>(role);
  }
  /// Returns a view of a buffer of the plan, where a role has several. Where views check, throws
  /// std::logic_error unless the action uses it.
  template <class T, class Space>
  View<T*, Space> view(int buffer) const {
    const bool has_origin = views_check && origins_ != nullptr;
    return view_of<T, Space>(program_, arenas_, buffer,
                             has_origin ? origin_of_buffer(buffer) : nullptr);
  }

  const plan::Action& action;
  /// For its kernels, and its copies from and to a device: that of its queue. Without a device all
  /// have the same one, not to be used on threads outside Kokkos.
  const Exec& exec;

 private:
  const ViewOrigin* origin_of_buffer(int buffer) const;
  const ViewOrigin* origin_of_none(plan::Role role) const;

  const Program& program_;
  const Arenas& arenas_;
  ViewOrigins* origins_;
};

/// How the streams of a plan run.
enum class Streams {
  in_plan_order,  ///< all on the thread that calls, one action after the other
  threads,        ///< compute on the thread that calls, every other stream that a program uses on a
            ///< thread of its own, begun with the first such run, from which Kokkos is not to be
            ///< entered
  device  ///< each on a stream of the device, to which the thread that calls submits, or where
          ///< submit_on_thread() says so one of its own; `host`, and what run_on_thread() names, on
          ///< a thread of its own
};
constexpr Named<Streams> streams_names[] = {{Streams::in_plan_order, "in_plan_order"},
                                            {Streams::threads, "threads"},
                                            {Streams::device, "device"}};

/// Perturbs the schedule, to show that it changes no bit. In plan order: another order that streams
/// and waits allow, a function of `seed` and the plan alone, so that ranks with the same seed stay
/// in step. On threads: every action sleeps up to `longest_seconds` before and after its work,
/// differently for other seeds; or only one of them sleeps, before its work and that long.
struct Perturbation {
  std::uint64_t seed = 0;
  double longest_seconds = 0.0;
  int only = -1;  ///< which; all programs have one of that number
};

/// Runs programs in the arenas of a run. It does not depend on the policy: what an action does is
/// the handler of its kind.
///
/// An action begins when the action before it on its stream has ended and all that it waits for
/// have. On threads, handlers of different streams run at the same time; what an action wrote is
/// seen by those that it happens before. Nothing is allocated by run() once a program of that
/// length, with those streams, has run.
///
/// On streams of a device handlers are called as early as can be, in plan order, and only submit;
/// waits are events. The calling thread waits only where such an action waits for one that has a
/// thread, as one that looks at numbers has. All is done when run() returns.
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
  using Observer = std::function<void(const plan::Action&, bool begins)>;

  explicit Executor(Arenas arenas, Streams streams = Streams::in_plan_order);
  ~Executor();  ///< ends the threads
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void on(plan::Kind kind, Handler handler);
  /// For a stream whose handlers begin what goes on when they return: see Finish. On a thread it is
  /// called as soon as a handler returns, else before an action of another stream begins that
  /// waits, at the latest at the end of a run. `gives_up` is set where an action of another stream
  /// failed: what others were to send may never come.
  void finish_with(plan::Stream stream, Finish finish);
  /// For a stream whose handlers do their work before they return, on Streams::device. Before the
  /// first run, and before finish_with().
  void run_on_thread(plan::Stream stream);
  /// For a stream whose handlers submit to the device what may wait for other ranks, on
  /// Streams::device: not held up by what the calling thread waits for, nor that by them. Before
  /// the first run.
  void submit_on_thread(plan::Stream stream);
  /// `told` is called with what was thrown first in a run, by an action or around all of them, as
  /// soon as it was, on its thread, while others go on; and with null once that run has ended.
  void on_failure(std::function<void(const std::exception_ptr&)> told);
  void observe(Observer observer);
  void perturb(Perturbation perturbation);  ///< all runs from now on

  /// Throws std::logic_error for an action without a handler, or that waits for a later one, before
  /// anything runs. `release` needs no handler: its place in the plan and its waits do the work.
  void run(const Program& program);

  /// Returns when each action of the last run began and ended; zeros for those that were skipped.
  const std::vector<ActionTime>& times() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ostrakon::runtime
