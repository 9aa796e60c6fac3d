// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <ostrakon/base/error.hpp>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ostrakon::texts {

/// A pipeline of three steps: one thread calls `produce` for items until it returns false,
/// `workers` threads call `work` for them, and the caller's thread calls `consume` for the results,
/// in the order of the items. A few items for each worker are under way at a time. The exception of
/// the first item that failed, in their order, is thrown after all before it were consumed;
/// `is_stopped` is set then, so that a `produce` that waits can end.
template <class Item, class Result>
class OrderedParallel {
 public:
  OrderedParallel(int workers, std::function<bool(Item&)> produce,
                  std::function<Result(int worker, Item&)> work, std::atomic<bool>& is_stopped)
      : workers_(workers),
        produce_(std::move(produce)),
        work_(std::move(work)),
        is_stopped_(is_stopped) {}

  void run(const std::function<void(Result&)>& consume) {
    start_threads();
    std::exception_ptr failure;
    try {
      while (const std::shared_ptr<Slot> slot = next_done()) {
        if (slot->failure) std::rethrow_exception(slot->failure);
        consume(slot->result);
      }
    } catch (...) {
      failure = std::current_exception();
    }
    stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  struct Slot {
    Item item;
    Result result;
    std::exception_ptr failure;
    bool is_done = false;
  };

  void start_threads() {
    // Signals are for the threads that expect them.
    sigset_t all, former;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former);
    std::exception_ptr failure;
    try {
      threads_.emplace_back([this] { produce_all(); });
      for (int worker = 0; worker < workers_; ++worker)
        threads_.emplace_back([this, worker] { work_on_all(worker); });
    } catch (const std::system_error&) {
      // The threads that were started do the work; a producer and a worker are needed.
      if (threads_.size() < 2)
        failure = std::make_exception_ptr(Error("can't start a thread: the system has no more"));
    }
    pthread_sigmask(SIG_SETMASK, &former, nullptr);
    if (!failure) return;
    stop();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    std::rethrow_exception(failure);
  }

  void stop() {
    const std::lock_guard<std::mutex> lock(guard_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  void produce_all() {
    for (;;) {
      const auto slot = std::make_shared<Slot>();
      bool is_item = false;
      try {
        is_item = produce_(slot->item);
      } catch (...) {
        slot->failure = std::current_exception();
      }
      std::unique_lock<std::mutex> lock(guard_);
      const auto most = static_cast<std::size_t>(2 * workers_ + 2);
      changed_.wait(lock, [&] { return is_stopped_ || order_.size() < most; });
      slot->is_done = slot->failure != nullptr;
      if (is_item || slot->is_done) order_.push_back(slot);
      if (is_item) waiting_.push_back(slot);
      is_ended_ = !is_item;
      changed_.notify_all();
      if (!is_item || is_stopped_) return;
    }
  }

  void work_on_all(int worker) {
    for (;;) {
      std::unique_lock<std::mutex> lock(guard_);
      changed_.wait(lock, [&] { return is_stopped_ || is_ended_ || !waiting_.empty(); });
      if (is_stopped_ || waiting_.empty()) return;
      const std::shared_ptr<Slot> slot = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        slot->result = work_(worker, slot->item);
      } catch (...) {
        slot->failure = std::current_exception();
      }
      slot->item = Item();
      lock.lock();
      slot->is_done = true;
      changed_.notify_all();
    }
  }

  std::shared_ptr<Slot> next_done() {
    std::unique_lock<std::mutex> lock(guard_);
    changed_.wait(lock, [&] { return order_.empty() ? is_ended_ : order_.front()->is_done; });
    if (order_.empty()) return nullptr;
    const std::shared_ptr<Slot> slot = order_.front();
    order_.pop_front();
    changed_.notify_all();
    return slot;
  }

  int workers_;
  std::function<bool(Item&)> produce_;
  std::function<Result(int, Item&)> work_;
  std::atomic<bool>& is_stopped_;
  std::vector<std::thread> threads_;
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Slot>> order_, waiting_;
  bool is_ended_ = false;
};

}  // namespace ostrakon::texts
