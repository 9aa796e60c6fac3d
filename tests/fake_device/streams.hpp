// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fake_device/runtime.h>

#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "faults.hpp"
#include "memory.hpp"

namespace fake {

/// Counts how often an event was recorded, and how many of these a stream has reached. Streams
/// share it with the event, which may be destroyed before.
class Event {
 public:
  explicit Event(bool times) : has_time_(times) {}

  long record() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ++recorded_;
  }
  long recorded() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return recorded_;
  }
  void reach(long count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    reached_ = std::max(reached_, count);
    when_ = std::chrono::steady_clock::now();
    reached_more_.notify_all();
  }
  void wait(long count) {
    std::unique_lock<std::mutex> lock(mutex_);
    reached_more_.wait(lock, [&] { return reached_ >= count; });
  }
  bool is_reached() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reached_ >= recorded_;
  }
  /// Sets `when` to the time when it was reached.
  cudaError_t time(std::chrono::steady_clock::time_point& when) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_time_ || recorded_ == 0) return cudaErrorInvalidValue;
    when = when_;
    return reached_ < recorded_ ? cudaErrorNotReady : cudaSuccess;
  }

 private:
  std::mutex mutex_;
  std::condition_variable reached_more_;
  long recorded_ = 0, reached_ = 0;
  const bool has_time_;
  std::chrono::steady_clock::time_point when_;
};

/// How work in a closure is done, and how the closure is destroyed; null: run() does that, too.
struct Work {
  void (*run)(void*) = nullptr;
  void (*destroy)(void*) = nullptr;
};

/// A piece of work that a graph has.
class Captured {
 public:
  template <class Make>
  Captured(bool is_kernel, const Work& work, const Make& make)
      : is_kernel_(is_kernel), work_(work), closure_(new Closure) {
    make(static_cast<void*>(closure_->bytes));
  }
  Captured(Captured&&) = default;
  Captured& operator=(Captured&&) = delete;
  ~Captured() {
    if (closure_) work_.destroy(closure_->bytes);
  }
  bool is_kernel() const { return is_kernel_; }
  void run() const { work_.run(closure_->bytes); }

 private:
  struct Closure {
    alignas(max_align_t) unsigned char bytes[FAKE_CLOSURE_BYTES];
  };

  bool is_kernel_;
  Work work_;
  std::unique_ptr<Closure> closure_;
};
using CapturedWork = std::vector<Captured>;

/// One piece of work in a stream. Allocates nothing.
struct Slot {
  Work work;
  bool is_kernel = false;
  bool is_event = false;
  double delay = 0.0;  // in seconds
  alignas(max_align_t) unsigned char closure[FAKE_CLOSURE_BYTES];
};

inline std::mutex& kernel_mutex() {
  static std::mutex* const one = new std::mutex;  // Kokkos' host backends run one kernel at a time
  return *one;
}

inline thread_local bool in_kernel = false;
inline thread_local double next_delay = 0.0;
inline std::atomic<long> kernels_given{0};

// ---- kernels that access invalid memory

inline thread_local sigjmp_buf* before_kernel = nullptr;
inline std::atomic<bool> gives_up{false};
inline std::atomic<long> given_up{0};

inline void give_up_kernel(int signal) {
  if (before_kernel == nullptr) {
    std::signal(signal, SIG_DFL);
    return;  // the access fails again, without the handler
  }
  siglongjmp(*before_kernel, 1);
}

inline void run_kernel(Slot& slot) {
  in_kernel = true;
  sigjmp_buf here;
  if (!gives_up) {
    slot.work.run(slot.closure);
  } else if (sigsetjmp(here, 1) == 0) {
    before_kernel = &here;
    slot.work.run(slot.closure);
  } else {
    ++given_up;
  }
  before_kernel = nullptr;
  in_kernel = false;
}

struct Stream {
  explicit Stream(unsigned number) : random(number), thread([this] { serve(); }) {}
  ~Stream() {
    synchronize();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }

  template <class Make>
  void submit(bool is_kernel, const Work& work, const Make& make, bool is_event = false) {
    if (captures) {
      capture.emplace_back(is_kernel, work, make);
      return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return submitted - done < slots; });
    Slot& slot = ring[submitted % slots];
    slot.work = work;
    slot.is_kernel = is_kernel;
    slot.is_event = is_event;
    slot.delay = is_event ? 0.0 : std::exchange(next_delay, 0.0);
    make(static_cast<void*>(slot.closure));
    ++submitted;
    changed.notify_all();
  }

  void synchronize() {
    std::unique_lock<std::mutex> lock(mutex);
    const std::uint64_t all = submitted;
    changed.wait(lock, [&] { return done >= all; });
  }

  static constexpr std::uint64_t slots = 1024;
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<Slot[]> ring{new Slot[slots]};
  std::uint64_t submitted = 0, done = 0;
  bool captures = false;  // one thread captures
  CapturedWork capture;
  bool ends = false;
  std::mt19937 random;
  std::uint64_t seeded_with = 0;
  std::thread thread;  // last, as it uses all other members

 private:
  void serve() {
    Memory::one().allow_thread();
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return done < submitted || ends; });
      if (done == submitted) return;
      Slot& slot = ring[done % slots];
      lock.unlock();
      shake();
      sleep_for(slot.delay);
      if (slot.is_kernel && !is_lost) {
        const std::lock_guard<std::mutex> one_at_a_time(kernel_mutex());
        Memory::one().open();
        run_kernel(slot);
        Memory::one().close_again();
      } else if (slot.is_event || !is_lost) {
        slot.work.run(slot.closure);
      }
      if (slot.work.destroy != nullptr) slot.work.destroy(slot.closure);
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }

  void shake() {
    const double longest = faults().microseconds;
    if (longest <= 0.0) return;
    if (seeded_with != faults().seed) {
      seeded_with = faults().seed;
      const auto number = reinterpret_cast<std::uintptr_t>(this) >> 6;
      random.seed(static_cast<unsigned>(seeded_with * 1000003U + number));
    }
    sleep_for(1e-6 * longest * std::uniform_real_distribution<double>(0.0, 1.0)(random));
  }
};

}  // namespace fake

struct CUstream_st : fake::Stream {
  using Stream::Stream;
};
struct CUevent_st {
  std::shared_ptr<fake::Event> state;
};
struct CUgraph_st {
  std::shared_ptr<const fake::CapturedWork> work;
};
struct CUgraphExec_st {
  std::shared_ptr<const fake::CapturedWork> work;
};
