// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/executor.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/float_mode.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <ostrakon/watch/progress.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::runtime {

/// A Kokkos profiling region that ends with its scope, also by an exception. Like the next types it
/// is in no unnamed namespace, as members of Executor::Implementation have it.
class Region {
 public:
  explicit Region(const std::string& label) { Kokkos::Profiling::pushRegion(label); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

/// A stream of the running program.
///
/// It stops at the first of its actions that fails or is skipped: all later ones are skipped, so
/// that the number of actions whose handler has returned, and whether it stopped, tell how far it
/// is.
struct StreamState {
  std::unique_ptr<Queue> queue;
  bool on_thread = false;      ///< whether it runs on its own thread, not on the calling one
  std::vector<int> actions;    ///< in plan order
  std::vector<char> awaited;   ///< whether actions of other streams wait for them
  int ended = 0;               ///< number of actions whose handler has returned
  bool stopped = false;        ///< whether no more of them will
  std::exception_ptr failure;  ///< exception of the action at which it stopped, unless that was
                               ///< skipped
  bool runs = false;           ///< whether its thread was started on it and is not done
  const StreamState* awaits = nullptr;  ///< the stream whose actions its thread sleeps for
  int awaits_ended = 0;
  std::condition_variable wakes;
  std::thread thread;  ///< started when it first has something to run
};

/// The current device of the thread that makes this, to be set by other threads: each thread has
/// its own.
class CurrentDevice {
 public:
#if OSTRAKON_HAS_DEVICE
  void use() const { device::use(device_); }

 private:
  int device_ = device::current();
#else
  void use() const {}
#endif
};

/// Tells the watchdog of a run of a program.
class WatchedRun {
 public:
  WatchedRun(const Program& program, bool on_device) : progress_(watch::progress()) {
    if (progress_ != nullptr) progress_->begin_run(program.plan, on_device);
  }
  ~WatchedRun() {
    if (progress_ != nullptr) progress_->end_run();
  }
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

  watch::Progress* progress() const { return progress_; }

 private:
  watch::Progress* const progress_;
};

class Executor::Implementation {
 public:
  Implementation(Arenas arenas, Streams mode) : arenas_(arenas), mode_(mode) {
    if (mode_ == Streams::device && !has_device)
      throw std::logic_error("streams of a device, where there is none");
    for (std::size_t s = 0; s < stream_states_.size(); ++s) {
      const auto stream = static_cast<plan::Stream>(s);
      set_thread(stream, mode_ == Streams::threads
                             ? stream != plan::Stream::compute
                             : mode_ == Streams::device && stream == plan::Stream::host);
    }
  }
  ~Implementation() { end_threads(); }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  void set_thread(plan::Stream stream, bool on_thread) {
    StreamState& state = state_of(stream);
    state.on_thread = on_thread;
    state.queue = make_queue(mode_ == Streams::device, on_thread, stream != plan::Stream::compute);
  }

  /// Gives a stream a thread, without a change of its queue.
  void give_thread(plan::Stream stream) { state_of(stream).on_thread = true; }

  void finish_with(plan::Stream stream, Finish finish) {
    auto* const queue = dynamic_cast<HostQueue*>(state_of(stream).queue.get());
    if (queue == nullptr)
      throw std::logic_error("what handlers begin on a device needs no one to finish it");
    queue->finish_with(std::move(finish), state_of(stream).on_thread);
    async_queues_[static_cast<std::size_t>(stream)] = queue;
  }

  /// Whether actions of a kind can run.
  bool has_handler(plan::Kind kind) const {
    return handlers[static_cast<std::size_t>(kind)] ||
           plan::traits(kind).activity == plan::Activity::none;
  }

  void run(const Program& program) {
    prepare(program);
    const WatchedRun watched(program, mode_ == Streams::device);
    progress_ = watched.progress();
    std::exception_ptr of_no_action;
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (...) {
        if (!of_no_action) of_no_action = std::current_exception();
        note_failure(std::current_exception());
      }
    };
    attempt([&] {
      for (StreamState& state : stream_states_) state.queue->begin(state.awaited);
    });
    if (!has_failed_) {
      start_threads();
      drive();
      if (mode_ != Streams::in_plan_order) wait_for_threads();
    }
    for (StreamState& state : stream_states_) attempt([&] { state.queue->finish(has_failed_); });
    if (!has_failed_) attempt([&] { read_times(); });
    if (has_failed_ && on_failure) on_failure(nullptr);
    allow_all(program, arenas_);
    const StreamState* first = nullptr;
    for (const StreamState& state : stream_states_)
      if (state.failure && (first == nullptr || failed_action(state) < failed_action(*first)))
        first = &state;
    if (first != nullptr) std::rethrow_exception(first->failure);
    if (of_no_action) std::rethrow_exception(of_no_action);
  }

  /// Makes graphs of actions whose kinds have inputs, on streams that this mode has on the device.
  void capture([[maybe_unused]] const Program& program) {
#if OSTRAKON_HAS_DEVICE
    if (mode_ != Streams::device) return;
    for (std::size_t a = 0; a < program.plan.actions.size(); ++a) {
      const plan::Action& action = program.plan.actions[a];
      const auto kind = static_cast<std::size_t>(action.kind);
      const StreamState& state = state_of(action);
      if (!graph_inputs[kind] || state.on_thread) continue;
      const ActionBuffers buffers(program, action, arenas_, state.queue->exec());
      graphs.capture(program, static_cast<int>(a), buffers, handlers[kind], graph_inputs[kind]);
    }
#endif
  }

  std::array<Handler, plan::kinds> handlers;
  std::array<Graphs::InputsOf, plan::kinds> graph_inputs;
  Graphs graphs;
  Observer observer;
  FaultHook fault_hook;
  std::function<void(const std::exception_ptr&)> on_failure;
  std::optional<Perturbation> perturbation;
  std::vector<ActionTime> times;

 private:
  StreamState& state_of(plan::Stream stream) {
    return stream_states_[static_cast<std::size_t>(stream)];
  }
  StreamState& state_of(const plan::Action& action) { return state_of(action.stream); }
  static int failed_action(const StreamState& state) {
    return state.actions[static_cast<std::size_t>(state.ended)];
  }
  const plan::Action& action_at(int index) const {
    return program_->plan.actions[static_cast<std::size_t>(index)];
  }
  /// Returns how many actions of its stream have ended once this one has.
  int count_with(int index) const { return position_[static_cast<std::size_t>(index)] + 1; }

  // ---- before a run, while all threads sleep

  void prepare(const Program& program) {
    const std::vector<plan::Action>& actions = program.plan.actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      if (!has_handler(actions[a].kind))
        throw std::logic_error("no handler for " + program.plan.describe(actions[a]));
      for (const int wait : actions[a].waits)
        if (wait < 0 || wait >= static_cast<int>(a))
          throw std::logic_error(program.plan.describe(actions[a]) + " waits for a later action");
    }
    program_ = &program;
    float_mode_ = FloatMode::of_this_thread();
    has_failed_ = false;
    origins_.prepare(program);
    shows_regions_ = Kokkos::Tools::Experimental::get_callbacks().push_region != nullptr;
    times.assign(actions.size(), ActionTime());
    for (StreamState& state : stream_states_) {
      state.actions.clear();
      state.awaited.clear();
      state.ended = 0;
      state.stopped = false;
      state.failure = nullptr;
    }
    position_.resize(actions.size());
    for (std::size_t a = 0; a < actions.size(); ++a) {
      StreamState& state = state_of(actions[a]);
      position_[a] = static_cast<int>(state.actions.size());
      state.actions.push_back(static_cast<int>(a));
      state.awaited.push_back(0);
      for (const int wait : actions[a].waits)
        if (action_at(wait).stream != actions[a].stream)
          state_of(action_at(wait)).awaited[static_cast<std::size_t>(count_with(wait) - 1)] = 1;
    }
    choose_order();
  }

  /// Chooses the order of the actions on the calling thread.
  void choose_order() {
    order_.clear();
    if (mode_ == Streams::in_plan_order && perturbation) return perturb_order();
    for (std::size_t a = 0; a < position_.size(); ++a)
      if (!state_of(action_at(static_cast<int>(a))).on_thread)
        order_.push_back(static_cast<int>(a));
    if (const watch::Progress* const progress = watch::progress())
      progress->reorder(program_->plan, order_);
  }

  void perturb_order() {
    std::array<int, plan::streams> begun{};
    for (std::size_t place = 0; place < position_.size(); ++place) {
      std::array<std::size_t, plan::streams> ready{};
      std::size_t choices = 0;
      // Operations that continue by themselves are begun first, as others may wait for them while
      // this rank waits.
      for (const bool goes_on : {true, false}) {
        if (choices > 0) break;
        for (std::size_t s = 0; s < stream_states_.size(); ++s)
          if ((async_queues_[s] != nullptr) == goes_on &&
              next_is_ready(stream_states_[s], begun[s], begun))
            ready[choices++] = s;
      }
      // The first remaining action in plan order is always among them.
      const std::size_t s = ready[random_bits(place) % choices];
      order_.push_back(stream_states_[s].actions[static_cast<std::size_t>(begun[s]++)]);
    }
  }

  bool next_is_ready(const StreamState& state, int next,
                     const std::array<int, plan::streams>& begun) const {
    if (next == static_cast<int>(state.actions.size())) return false;
    const int index = state.actions[static_cast<std::size_t>(next)];
    const auto has_begun = [&](int action) {
      return begun[static_cast<std::size_t>(action_at(action).stream)] >= count_with(action);
    };
    // A sum over all stages waits for ranks that wait for what this one sends before.
    if (plan::is_global_sum(action_at(index).kind))
      for (int before = 0; before < index; ++before)
        if (!has_begun(before)) return false;
    const auto& waits = action_at(index).waits;
    return std::all_of(waits.begin(), waits.end(), has_begun);
  }

  std::uint64_t random_bits(std::uint64_t counter) const {
    return math::mix_bits(math::mix_bits(perturbation->seed + 1) + counter);
  }

  // ---- in a run

  /// Runs the actions of the calling thread.
  void drive() {
    for (const int index : order_) {
      const plan::Action& action = action_at(index);
      StreamState& state = state_of(action);
      if (state.stopped) continue;
      if (poisons && mode_ == Streams::in_plan_order) allow_only(action);
      if (!step(state, index) && mode_ == Streams::in_plan_order) return;
    }
  }

  void start_threads() {
    for (StreamState& state : stream_states_)
      if (state.on_thread && !state.actions.empty() && !state.thread.joinable())
        state.thread = std::thread([this, &state] { thread_main(state); });
    const std::lock_guard<std::mutex> lock(mutex_);
    for (StreamState& state : stream_states_) {
      if (!state.on_thread || state.actions.empty()) continue;
      state.runs = true;
      state.wakes.notify_one();
    }
  }

  void wait_for_threads() {
    std::unique_lock<std::mutex> lock(mutex_);
    all_done_.wait(lock, [this] { return all_are_done(); });
  }

  /// The main function of a thread.
  void thread_main(StreamState& state) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      state.wakes.wait(lock, [&] { return state.runs || ending_; });
      if (!state.runs) return;
      lock.unlock();
      float_mode_.use();
      if (is_on_device(state))
        for (const int index : state.actions)
          if (!step(state, index)) break;
      lock.lock();
      state.runs = false;
      if (all_are_done()) all_done_.notify_one();
    }
  }

  /// Makes the thread use the common device; returns false, and stops the stream, if that fails.
  bool is_on_device(StreamState& state) {
    try {
      current_.use();
      return true;
    } catch (...) {
      complete(state, false, std::current_exception());
      return false;
    }
  }

  /// Reads when the actions on a device began and ended.
  void read_times() {
    for (const StreamState& state : stream_states_)
      for (std::size_t i = 0; i < state.actions.size(); ++i)
        if (const std::optional<ActionTime> time = state.queue->time_of(static_cast<int>(i)))
          times[static_cast<std::size_t>(state.actions[i])] = *time;
  }

  bool all_are_done() const {
    return std::none_of(stream_states_.begin(), stream_states_.end(),
                        [](const StreamState& state) { return state.runs; });
  }

  /// Runs the next action of a stream, or skips it; returns whether the stream continues.
  bool step(StreamState& state, int index) {
    const plan::Action& action = action_at(index);
    std::exception_ptr failure;
    bool ends = wait_for_handlers(state, action);
    if (ends) ends = perform(state, action, index, failure);
    complete(state, ends, failure);
    return ends;
  }

  /// Waits until the handlers of all actions that an action waits for have returned; returns false
  /// if one of them never will. Blocks only if there are threads: in plan order, all have returned.
  bool wait_for_handlers(StreamState& state, const plan::Action& action) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (const int wait : action.waits) {
      const StreamState& other = state_of(action_at(wait));
      const int count = count_with(wait);
      StreamState& sleeps = state.on_thread ? state : caller_;
      sleeps.awaits = &other;
      sleeps.awaits_ended = count;
      sleeps.wakes.wait(lock, [&] { return other.ended >= count || other.stopped; });
      sleeps.awaits = nullptr;
      if (other.ended < count) return false;
    }
    return true;
  }

  /// Makes an action's work wait for the work of all that it waits for. Returns false if some of
  /// that will never be done.
  bool wait_for_work(StreamState& state, const plan::Action& action) {
    for (const int wait : action.waits) {
      const plan::Action& before = action_at(wait);
      if (before.stream != action.stream &&
          !state.queue->wait(*state_of(before).queue, count_with(wait), has_failed_))
        return false;
    }
    return true;
  }

  /// Poisons all but the buffers of an action, and of operations that may still continue.
  void allow_only(const plan::Action& action) const {
    forbid_all(*program_, arenas_);
    allow(*program_, action, arenas_);
    for (std::size_t s = 0; s < stream_states_.size(); ++s)
      for (int k = async_queues_[s] ? async_queues_[s]->done() : stream_states_[s].ended;
           k < stream_states_[s].ended; ++k)
        allow(*program_, action_at(stream_states_[s].actions[static_cast<std::size_t>(k)]),
              arenas_);
  }

  /// Tells the caller of a run's first failure.
  void note_failure(const std::exception_ptr& failure) {
    if (!has_failed_.exchange(true) && on_failure) on_failure(failure);
  }

  /// Notes that an action of a stream has ended, or that the stream stops, and wakes waiting
  /// threads.
  void complete(StreamState& state, bool ended, const std::exception_ptr& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended)
      ++state.ended;
    else
      state.stopped = true;
    state.failure = failure;
    if (failure) note_failure(failure);
    const auto wake = [&](StreamState& other) {
      if (other.awaits == &state && (state.stopped || state.ended >= other.awaits_ended))
        other.wakes.notify_one();
    };
    for (StreamState& other : stream_states_) wake(other);
    wake(caller_);
  }

  /// Calls the action's handler; returns whether it returned. `failure`: its exception.
  bool perform(StreamState& state, const plan::Action& action, int index,
               std::exception_ptr& failure) {
    // Tools and observers see only one thread, as few of them are thread-safe.
    const bool is_told = !state.on_thread;
    const Handler& handler = handlers[static_cast<std::size_t>(action.kind)];
    ActionTime& time = times[static_cast<std::size_t>(index)];
    bool is_possible = true;
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    };
    sleep_if_perturbed(2 * static_cast<std::uint64_t>(index));
    if (progress_ != nullptr && handler) progress_->await(action.stream, index, seconds_now());
    // This also precedes a `release`, as actions that wait for it rely on its waits.
    attempt([&] { is_possible = wait_for_work(state, action); });
    time.begin = seconds_now();
    if (is_possible && !failure) attempt([&] { state.queue->mark_begin(); });
    if (handler && is_possible && !failure &&
        (progress_ == nullptr || progress_->begin(action.stream, index))) {
      std::optional<Region> region;
      attempt([&] {
        if (is_told && shows_regions_) region.emplace(label(program_->plan, action));
        if (is_told && observer) observer(action, true);
        const ViewOrigins::Live live = origins_.begin(index);
        const ActionBuffers buffers(*program_, action, arenas_, state.queue->exec(), &origins_);
        if (fault_hook) fault_hook(buffers, true);
        if (!submit_graph(index, buffers)) handler(buffers);
        if (fault_hook) fault_hook(buffers, false);
      });
      attempt([&] {
        if (is_told && observer) observer(action, false);
      });
    }
    time.end = seconds_now();
    sleep_if_perturbed(2 * static_cast<std::uint64_t>(index) + 1);
    // In plan order this waits for submitted work of a device, which belongs to the action.
    const double added = seconds_now();
    if (is_possible && !failure) attempt([&] { is_possible = state.queue->add(has_failed_); });
    const double done = seconds_now();
    time.end += done - added;
    if (progress_ != nullptr && handler) progress_->end(action.stream, index, done);
    return is_possible && !failure;
  }

  /// Submits an action as a graph, if it has one for what its handler would submit now.
  bool submit_graph([[maybe_unused]] int index,
                    [[maybe_unused]] const ActionBuffers& buffers) const {
#if OSTRAKON_HAS_DEVICE
    const Graphs::InputsOf& inputs = graph_inputs[static_cast<std::size_t>(buffers.action.kind)];
    return inputs && graphs.submit(*program_, index, buffers, inputs);
#else
    return false;
#endif
  }

  void sleep_if_perturbed(std::uint64_t counter) const {
    if (!perturbation || mode_ == Streams::in_plan_order) return;
    double fraction = static_cast<double>(random_bits(counter) >> 11) * 0x1p-53;
    if (perturbation->only >= 0)
      fraction = counter == 2 * static_cast<std::uint64_t>(perturbation->only) ? 1.0 : 0.0;
    if (fraction == 0.0) return;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(fraction * perturbation->longest_seconds));
  }

  void end_threads() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    for (StreamState& state : stream_states_) {
      state.wakes.notify_one();
      if (state.thread.joinable()) state.thread.join();
    }
  }

  ViewOrigins origins_;
  CurrentDevice current_;
  const Arenas arenas_;
  const Streams mode_;
  std::array<HostQueue*, plan::streams> async_queues_{};  // queues of streams whose handlers begin
                                                          // operations that continue

  // The members of a run: these are written before its threads start.
  const Program* program_ = nullptr;
  watch::Progress* progress_ = nullptr;
  FloatMode float_mode_ = FloatMode::of_this_thread();  // mode of the calling thread
  bool shows_regions_ = false;
  std::vector<int> position_;  // position of each action in its stream
  std::vector<int> order_;     // order of the actions on the calling thread

  std::mutex mutex_;  // protects the members below, except the actions of a stream
  std::array<StreamState, plan::streams> stream_states_;
  StreamState caller_;  // how the calling thread sleeps, for any stream that it runs
  std::condition_variable all_done_;
  bool ending_ = false;
  std::atomic<bool> has_failed_{false};
};

Executor::Executor(Arenas arenas, Streams streams)
    : implementation_(std::make_unique<Implementation>(arenas, streams)) {}
Executor::~Executor() = default;

void Executor::on(plan::Kind kind, Handler handler) {
  implementation_->handlers[static_cast<std::size_t>(kind)] = std::move(handler);
}
void Executor::require_handlers() const {
  for (const plan::KindTraits& kind : plan::kind_table)
    require(implementation_->has_handler(kind.value), "actions of the kind '", kind.name,
            "' have no handler; expected one for each kind");
}
void Executor::finish_with(plan::Stream stream, Finish finish) {
  implementation_->finish_with(stream, std::move(finish));
}
void Executor::run_on_thread(plan::Stream stream) { implementation_->set_thread(stream, true); }
void Executor::submit_on_thread(plan::Stream stream) { implementation_->give_thread(stream); }
void Executor::submit_as_graph(plan::Kind kind, Graphs::InputsOf inputs) {
  implementation_->graph_inputs[static_cast<std::size_t>(kind)] = std::move(inputs);
}
void Executor::capture(const Program& program) { implementation_->capture(program); }
GraphCount Executor::graphs([[maybe_unused]] const Program& program) const {
#if OSTRAKON_HAS_DEVICE
  return implementation_->graphs.count(program);
#else
  return {};
#endif
}
void Executor::on_failure(std::function<void(const std::exception_ptr&)> told) {
  implementation_->on_failure = std::move(told);
}
void Executor::observe(Observer observer) { implementation_->observer = std::move(observer); }
void Executor::set_fault_hook(FaultHook hook) { implementation_->fault_hook = std::move(hook); }
void Executor::perturb(Perturbation perturbation) { implementation_->perturbation = perturbation; }
void Executor::run(const Program& program) { implementation_->run(program); }
const std::vector<ActionTime>& Executor::times() const { return implementation_->times; }

}  // namespace ostrakon::runtime
