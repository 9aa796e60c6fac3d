// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <ostrakon/base/names.hpp>
#include <ostrakon/runtime/graphs.hpp>
#include <ostrakon/runtime/program.hpp>
#include <ostrakon/runtime/queue.hpp>
#include <ostrakon/runtime/view_origins.hpp>
#include <vector>

namespace ostrakon::runtime {

/// An action with views of its buffers in the arenas: the argument of handlers.
class ActionBuffers {
 public:
  /// `origins`: of the views, prepared for `program`, which has the action; or null. All arguments
  /// must outlive it.
  ActionBuffers(const Program& program, const plan::Action& its_action, const Arenas& arenas,
                const Exec& its_exec, ViewOrigins* origins = nullptr)
      : action(its_action), exec(its_exec), program_(program), arenas_(arenas), origins_(origins) {}

  // A view of the whole first buffer in `role`, as view_of(); an empty view if the action has none.
  // Views are valid while the action runs.

  template <class T, class Space>
  View<T*, Space> view(plan::Role role) const {
    const int buffer = action.buffer(role);
    if (buffer >= 0) return view<T, Space>(buffer);
    if (!views_check || origins_ == nullptr) return {};
    return {nullptr, 0, origins_->of_none(program_, action, role)};
  }
  template <class T>
  DeviceView<T*> device_view(plan::Role role) const {
    return view<T, OnDevice>(role);
  }
  template <class T>
  HostView<T*> host_view(plan::Role role) const {
    return view<T, OnHost>(role);
  }
  /// Returns a view of a buffer of the plan, for a role with several buffers. If views check,
  /// throws std::logic_error unless the action uses it.
  template <class T, class Space>
  View<T*, Space> view(int buffer) const {
    const bool has_origin = views_check && origins_ != nullptr;
    return view_of<T, Space>(program_, arenas_, buffer,
                             has_origin ? origins_->of(program_, action, buffer) : nullptr);
  }

  const std::byte* address(int buffer) const { return address_of(program_, arenas_, buffer); }

  const plan::Action& action;
  /// Execution space for its kernels and its copies between host and device: that of its queue.
  /// Without a device all actions have the same one, not to be used on threads outside Kokkos.
  const Exec& exec;

 private:
  const Program& program_;
  const Arenas& arenas_;
  ViewOrigins* origins_;
};

/// How the streams of a plan run.
enum class Streams {
  in_plan_order,  ///< all on the calling thread, one action after the other
  threads,        ///< compute on the calling thread, every other stream of a program on its own
                  ///< thread, which is started by the first such run and must not enter Kokkos
  device  ///< each on a stream of the device, to which the calling thread submits, or a thread of
          ///< its own after submit_on_thread(); `host`, and streams of run_on_thread(), on a thread
          ///< of their own
};
constexpr Named<Streams> streams_names[] = {{Streams::in_plan_order, "in_plan_order"},
                                            {Streams::threads, "threads"},
                                            {Streams::device, "device"}};

/// Perturbs the schedule, to show that it changes no bit. In plan order: another order that streams
/// and waits allow, a function of `seed` and the plan alone, so that ranks with the same seed stay
/// in step. On threads: every action sleeps up to `longest_seconds` before and after its work, by
/// random numbers of `seed`; or one action alone sleeps that long before its work.
struct Perturbation {
  std::uint64_t seed = 0;
  double longest_seconds = 0.0;
  int only = -1;  ///< index of the action that sleeps, in all programs; -1: all sleep
};

/// Runs programs in the arenas of a run. It does not depend on the policy: the handler of an
/// action's kind does its work.
///
/// An action begins when the action before it on its stream, and all that it waits for, have ended.
/// On threads, handlers of different streams run at the same time; writes of an action are visible
/// to those that it happens before. run() allocates nothing once a program of that length, with
/// those streams, has run.
///
/// On streams of a device handlers are called as early as possible, in plan order, and only submit;
/// waits are events. The calling thread waits only if such an action waits for one that runs on a
/// thread, as actions that read numbers do. All work is done when run() returns.
///
/// If a handler throws, run() rethrows its exception once nothing runs any more; of several the one
/// of the first action in plan order. In plan order no further action is begun: ranks with the same
/// order on which the same action fails have made the same calls. On threads the actions that the
/// failed one happens before are skipped and all others still run, so that again ranks on which the
/// same actions fail make the same calls; and a rank that fails alone waits for no other.
class Executor {
 public:
  using Handler = std::function<void(const ActionBuffers&)>;
  /// Called before (true) and after (false) each action that runs on the calling thread and has a
  /// handler, also if that throws. An exception of the observer counts as one of the handler.
  using Observer = std::function<void(const plan::Action&, bool begins)>;

  explicit Executor(Arenas arenas, Streams streams = Streams::in_plan_order);
  ~Executor();  ///< ends the threads
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void on(plan::Kind kind, Handler handler);
  template <class Object>
  void on(plan::Kind kind, Object* object, void (Object::*handle)(const ActionBuffers&)) {
    on(kind, [=](const ActionBuffers& buffers) { (object->*handle)(buffers); });
  }
  /// Throws Error, naming the kind, unless there is a handler for each kind of action. `release`
  /// needs none: its place in the plan and its waits do the work.
  void require_handlers() const;
  /// For a stream whose handlers begin operations that continue after they return: see Finish. On a
  /// thread, `finish` is called as soon as a handler returns; otherwise before an action of another
  /// stream that waits, at the latest at the end of a run. `gives_up` is set if an action of
  /// another stream has failed: messages from other ranks may never come.
  void finish_with(plan::Stream stream, Finish finish);
  /// For a stream whose handlers do their work before they return, with Streams::device. To be
  /// called before the first run, and before finish_with().
  void run_on_thread(plan::Stream stream);
  /// For a stream whose handlers submit operations to the device that may wait for other ranks,
  /// with Streams::device: they don't delay the calling thread, nor it them. To be called before
  /// the first run.
  void submit_on_thread(plan::Stream stream);
  /// For a kind of action of streams on the device, whose handler only submits work: capture()
  /// makes graphs of such actions, which runs submit in place of calling the handler where `inputs`
  /// are those of the capture. See Graphs.
  void submit_as_graph(plan::Kind kind, Graphs::InputsOf inputs);
  /// Makes graphs for later runs of `program`, with Streams::device; nothing of it runs. All that
  /// it launches must have been launched once. Without graphs of a device it does nothing.
  void capture(const Program& program);
  /// What of a program is submitted as graphs.
  GraphCount graphs(const Program& program) const;
  /// Sets a function that is called with the first exception of a run, from an action or around all
  /// of them, at once and on its thread, while others continue; and with null once that run has
  /// ended.
  void on_failure(std::function<void(const std::exception_ptr&)> told);
  void observe(Observer observer);
  /// Called before (true) and after (false) each handler, on its thread: for faults on purpose,
  /// which change the content of buffers.
  using FaultHook = std::function<void(const ActionBuffers&, bool begins)>;
  void set_fault_hook(FaultHook hook);
  void perturb(Perturbation perturbation);  ///< applies to all later runs

  /// Throws std::logic_error, before anything runs, for an action without a handler, or one that
  /// waits for a later one.
  void run(const Program& program);

  /// Returns when each action of the last run began and ended; zeros for skipped ones.
  const std::vector<ActionTime>& times() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ostrakon::runtime
