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
#include <ostrakon/math/hash.hpp>
#include <ostrakon/runtime/poison.hpp>
#include <ostrakon/runtime/stream_spaces.hpp>
#include <ostrakon/runtime/view_origins.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace ostrakon::runtime {
namespace {

/// A Kokkos profiling region that ends with its scope, whatever ends it.
class Region {
 public:
  explicit Region(const std::string& label) { Kokkos::Profiling::pushRegion(label); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

bool a_tool_wants_regions() {
  return Kokkos::Tools::Experimental::get_callbacks().push_region != nullptr;
}

/// All of the arenas but the copy of the state that a checkpoint is written from: another thread
/// reads it while actions run, so it can't be forbidden even for a moment.
void forbid_all(const Program& program, const Arenas& arenas) {
  const int shared = program.plan.checkpoint;
  const auto forbid_rest = [&](std::byte* arena, const plan::MemoryPlan& memory) {
    const bool has_shared = shared >= 0 && program.plan.buffers[shared].space == memory.space;
    const std::int64_t begin = has_shared ? memory.offsets[shared] : memory.arena_bytes;
    const std::int64_t end =
        has_shared ? begin + program.plan.buffers[shared].bytes : memory.arena_bytes;
    forbid(arena, static_cast<std::size_t>(begin));
    if (end < memory.arena_bytes)
      forbid(arena + end, static_cast<std::size_t>(memory.arena_bytes - end));
  };
  forbid_rest(arenas.device, program.memory);
  forbid_rest(arenas.host, program.host_memory);
}

void allow_all(const Program& program, const Arenas& arenas) {
  allow(arenas.device, static_cast<std::size_t>(program.memory.arena_bytes));
  allow(arenas.host, static_cast<std::size_t>(program.host_memory.arena_bytes));
}

void show(const Program& program, const plan::Action& action, const Arenas& arenas) {
  for (const plan::Use& used : action.uses)
    allow(address_of(program, arenas, used.buffer),
          static_cast<std::size_t>(program.plan.buffers[used.buffer].bytes));
}

void show_only(const Program& program, const plan::Action& action, const Arenas& arenas) {
  if (!poisons) return;
  forbid_all(program, arenas);
  show(program, action, arenas);
}

/// The queue of a stream in a run.
///
/// It stops at the first of its actions that fails or is skipped: all after that one are skipped,
/// so that how many have ended, and whether it stopped, says all about its actions.
struct Queue {
  std::vector<int> actions;       ///< in plan order
  int ended = 0;                  ///< number of actions that have ended
  int fenced = 0;                 ///< of those: what they submitted to a device is done
  bool stopped = false;           ///< no more of them will
  std::exception_ptr failure;     ///< of the action at which it stopped, unless that was skipped
  bool runs = false;              ///< its thread has been started on it and is not done
  const Queue* awaits = nullptr;  ///< its thread sleeps until that many of these have ended
  int awaited = 0;
  std::condition_variable wakes;
  std::thread thread;  ///< begun when it first has something to run
};

}  // namespace

const ViewOrigin* ActionBuffers::origin_of_buffer(int buffer) const {
  return origins_->of(program_, action, buffer);
}
const ViewOrigin* ActionBuffers::origin_of_none(plan::Role role) const {
  return origins_->of_none(program_, action, role);
}

class Executor::Implementation {
 public:
  Implementation(Arenas arenas, Streams mode) : arenas_(arenas), mode_(mode) {}
  ~Implementation() { end_threads(); }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  void run(const Program& program) {
    prepare(program);
    if (mode_ == Streams::threads)
      run_threads();
    else
      run_in_order();
    if (on_device) spaces_.fence();
    const Queue* first = nullptr;
    for (const Queue& queue : queues_)
      if (queue.failure && (first == nullptr || failed_action(queue) < failed_action(*first)))
        first = &queue;
    if (first != nullptr) std::rethrow_exception(first->failure);
  }

  std::array<Handler, plan::kinds> handlers;
  std::array<Finish, plan::streams> finishers;
  Observer observer;
  std::optional<Perturbation> perturbation;
  std::vector<ActionTime> times;

 private:
  Queue& queue_of(const plan::Action& action) {
    return queues_[static_cast<std::size_t>(action.stream)];
  }
  Queue& compute() { return queues_[static_cast<std::size_t>(plan::Stream::compute)]; }
  static int failed_action(const Queue& queue) {
    return queue.actions[static_cast<std::size_t>(queue.ended)];
  }
  const plan::Action& action_at(int index) const {
    return program_->plan.actions[static_cast<std::size_t>(index)];
  }
  const Handler& handler_of(const plan::Action& action) const {
    return handlers[static_cast<std::size_t>(action.kind)];
  }
  /// How many actions of its stream have ended once this one has.
  int count_with(int index) const { return position_[static_cast<std::size_t>(index)] + 1; }

  // ---- before a run, while all threads sleep

  void prepare(const Program& program) {
    const std::vector<plan::Action>& actions = program.plan.actions;
    for (std::size_t a = 0; a < actions.size(); ++a) {
      if (!handler_of(actions[a]) && actions[a].kind != plan::Kind::release)
        throw std::logic_error("no handler for " + program.plan.describe(actions[a]));
      for (const int wait : actions[a].waits)
        if (wait < 0 || wait >= static_cast<int>(a))
          throw std::logic_error(program.plan.describe(actions[a]) + " waits for a later action");
    }
    program_ = &program;
    has_failed_ = false;
    origins_.prepare(program);
    shows_regions_ = a_tool_wants_regions();
    times.assign(actions.size(), ActionTime());
    for (Queue& queue : queues_) {
      queue.actions.clear();
      queue.ended = 0;
      queue.fenced = 0;
      queue.stopped = false;
      queue.failure = nullptr;
    }
    position_.resize(actions.size());
    for (std::size_t a = 0; a < actions.size(); ++a) {
      std::vector<int>& its_stream = queue_of(actions[a]).actions;
      position_[a] = static_cast<int>(its_stream.size());
      its_stream.push_back(static_cast<int>(a));
    }
    if (mode_ == Streams::in_plan_order)
      choose_order();
    else
      begin_threads();
  }

  void begin_threads() {
    for (Queue& queue : queues_)
      if (&queue != &compute() && !queue.actions.empty() && !queue.thread.joinable())
        queue.thread = std::thread([this, &queue] { serve(queue); });
  }

  void choose_order() {
    order_.resize(position_.size());
    std::array<int, plan::streams> begun{};
    for (std::size_t place = 0; place < order_.size(); ++place) {
      if (!perturbation) {
        order_[place] = static_cast<int>(place);
        continue;
      }
      std::array<std::size_t, plan::streams> ready{};
      std::size_t choices = 0;
      // What goes on by itself is begun at once: others may wait for it while this rank waits.
      for (const bool goes_on : {true, false}) {
        if (choices > 0) break;
        for (std::size_t s = 0; s < queues_.size(); ++s)
          if ((finishers[s] != nullptr) == goes_on && next_is_ready(queues_[s], begun[s], begun))
            ready[choices++] = s;
      }
      // The first action in plan order that is left is always among them.
      const std::size_t s = ready[random_bits(place) % choices];
      order_[place] = queues_[s].actions[static_cast<std::size_t>(begun[s]++)];
    }
  }

  bool next_is_ready(const Queue& queue, int next,
                     const std::array<int, plan::streams>& begun) const {
    if (next == static_cast<int>(queue.actions.size())) return false;
    const auto& waits = action_at(queue.actions[static_cast<std::size_t>(next)]).waits;
    return std::all_of(waits.begin(), waits.end(), [&](int wait) {
      return begun[static_cast<std::size_t>(action_at(wait).stream)] >= count_with(wait);
    });
  }

  std::uint64_t random_bits(std::uint64_t counter) const {
    return math::mix_bits(math::mix_bits(perturbation->seed + 1) + counter);
  }

  // ---- in a run

  void run_in_order() {
    for (const int index : order_) {
      const plan::Action& action = action_at(index);
      show_only(*program_, action, arenas_);
      if (poisons) show_unfinished();
      if (!step(queue_of(action), index)) return allow_all(*program_, arenas_);
    }
    for (const Finish& finish : finishers)
      if (finish) finish(0, has_failed_);
    allow_all(*program_, arenas_);
  }

  void run_threads() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (Queue& queue : queues_) {
        if (&queue == &compute() || queue.actions.empty()) continue;
        queue.runs = true;
        queue.wakes.notify_one();
      }
    }
    run_queue(compute());
    std::unique_lock<std::mutex> lock(mutex_);
    compute().wakes.wait(lock, [this] { return all_are_done(); });
  }

  /// The main function of a thread.
  void serve(Queue& queue) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      queue.wakes.wait(lock, [&] { return queue.runs || ending_; });
      if (!queue.runs) return;
      lock.unlock();
      run_queue(queue);
      lock.lock();
      queue.runs = false;
      if (all_are_done()) compute().wakes.notify_one();
    }
  }

  bool all_are_done() const {
    return std::none_of(queues_.begin(), queues_.end(),
                        [](const Queue& queue) { return queue.runs; });
  }

  void run_queue(Queue& queue) {
    for (const int index : queue.actions)
      if (!step(queue, index)) return;
  }

  /// Runs the next action of a stream, or skips it; whether the stream continues.
  bool step(Queue& queue, int index) {
    const plan::Action& action = action_at(index);
    std::exception_ptr failure;
    bool is_done = wait_for(queue, action);
    if (is_done) failure = perform(action, index);
    if (is_done && !failure && mode_ == Streams::threads) is_done = finish_own(action);
    tell(queue, is_done && !failure, failure);
    return is_done && !failure;
  }

  /// Returns when all that an action waits for have ended, with true; or one of them never will.
  /// Blocks on threads only: in order, all that it waits for have run.
  bool wait_for(Queue& queue, const plan::Action& action) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (const int wait : action.waits) {
      const Queue& other = queue_of(action_at(wait));
      const int count = count_with(wait);
      queue.awaits = &other;
      queue.awaited = count;
      queue.wakes.wait(lock, [&] { return other.ended >= count || other.stopped; });
      queue.awaits = nullptr;
      if (other.ended < count) return false;
    }
    return true;
  }

  /// Returns when what the actions that this one waits for have begun or submitted to a device is
  /// done. By then they have ended. Its own stream's instance runs in order.
  void finish_awaited(const plan::Action& action) {
    for (const int wait : action.waits) {
      const plan::Stream stream = action_at(wait).stream;
      const Finish& finish = finishers[static_cast<std::size_t>(stream)];
      Queue& other = queue_of(action_at(wait));
      const int awaited = count_with(wait);
      std::unique_lock<std::mutex> lock(mutex_);
      if (stream == action.stream || other.fenced >= awaited) continue;
      const int ended = other.ended;
      lock.unlock();
      if (finish)
        finish(ended - awaited, has_failed_);
      else
        spaces_.of(stream).fence();
      lock.lock();
      other.fenced = std::max(other.fenced, finish ? awaited : ended);
    }
  }

  /// What an action has begun is done; false: it never will be.
  bool finish_own(const plan::Action& action) {
    const Finish& finish = finishers[static_cast<std::size_t>(action.stream)];
    return !finish || finish(0, has_failed_);
  }

  /// Buffers of what was begun and may still go on.
  void show_unfinished() const {
    for (std::size_t s = 0; s < queues_.size(); ++s) {
      if (!finishers[s]) continue;
      for (int k = queues_[s].fenced; k < queues_[s].ended; ++k)
        show(*program_, action_at(queues_[s].actions[static_cast<std::size_t>(k)]), arenas_);
    }
  }

  /// One more action of a stream has ended, or the stream stops: wakes threads that wait for this.
  void tell(Queue& queue, bool ended, const std::exception_ptr& failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (ended)
      ++queue.ended;
    else
      queue.stopped = true;
    queue.failure = failure;
    if (failure) has_failed_ = true;
    for (Queue& other : queues_)
      if (other.awaits == &queue && (queue.stopped || queue.ended >= other.awaited))
        other.wakes.notify_one();
  }

  /// What the action's handler threw, or null.
  std::exception_ptr perform(const plan::Action& action, int index) {
    // Tools and observers see one thread only: few of them are thread-safe.
    const bool is_told = mode_ == Streams::in_plan_order || action.stream == plan::Stream::compute;
    const Handler& handler = handler_of(action);
    ActionTime& time = times[static_cast<std::size_t>(index)];
    std::exception_ptr failure;
    const auto attempt = [&](const auto& work) {
      try {
        work();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    };
    sleep_if_perturbed(2 * static_cast<std::uint64_t>(index));
    // Also before a `release`: what waits for it waits for what it waits for.
    if (on_device || mode_ == Streams::in_plan_order) attempt([&] { finish_awaited(action); });
    time.begin = seconds_now();
    if (handler && !failure) {
      std::optional<Region> region;
      attempt([&] {
        if (is_told && shows_regions_) region.emplace(label(program_->plan, action));
        if (is_told && observer) observer(action, true);
        const ViewOrigins::Live live = origins_.begin(index);
        handler(ActionBuffers(*program_, action, arenas_, spaces_.of(action.stream), &origins_));
      });
      attempt([&] {
        if (is_told && observer) observer(action, false);
      });
    }
    time.end = seconds_now();
    sleep_if_perturbed(2 * static_cast<std::uint64_t>(index) + 1);
    return failure;
  }

  void sleep_if_perturbed(std::uint64_t counter) const {
    if (!perturbation || mode_ == Streams::in_plan_order) return;
    const double fraction = static_cast<double>(random_bits(counter) >> 11) * 0x1p-53;
    std::this_thread::sleep_for(
        std::chrono::duration<double>(fraction * perturbation->longest_seconds));
  }

  void end_threads() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    for (Queue& queue : queues_) {
      queue.wakes.notify_one();
      if (queue.thread.joinable()) queue.thread.join();
    }
  }

  ViewOrigins origins_;
  const StreamSpaces spaces_;
  const Arenas arenas_;
  const Streams mode_;

  // Of the run: written before threads are started on it.
  const Program* program_ = nullptr;
  bool shows_regions_ = false;
  std::vector<int> position_;  // of each action in its stream
  std::vector<int> order_;     // in which actions run, where they do so in an order

  std::mutex mutex_;  // of what follows, but for the actions of a line
  std::array<Queue, plan::streams> queues_;
  bool ending_ = false;
  std::atomic<bool> has_failed_{false};
};

Executor::Executor(Arenas arenas, Streams streams)
    : implementation_(std::make_unique<Implementation>(arenas, streams)) {}
Executor::~Executor() = default;

void Executor::on(plan::Kind kind, Handler handler) {
  implementation_->handlers[static_cast<std::size_t>(kind)] = std::move(handler);
}
void Executor::finish_with(plan::Stream stream, Finish finish) {
  implementation_->finishers[static_cast<std::size_t>(stream)] = std::move(finish);
}
void Executor::observe(Observer observer) { implementation_->observer = std::move(observer); }
void Executor::perturb(Perturbation perturbation) { implementation_->perturbation = perturbation; }
void Executor::run(const Program& program) { implementation_->run(program); }
const std::vector<ActionTime>& Executor::times() const { return implementation_->times; }

}  // namespace ostrakon::runtime
