// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/threads.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ostrakon {

void in_threads(int threads, std::int64_t count,
                const std::function<void(int thread, std::int64_t i)>& work) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::int64_t failed = count;
  std::mutex guard;
  const auto take = [&](int thread) {
    std::int64_t i = 0;
    try {
      for (i = next++; i < count; i = next++) work(thread, i);
    } catch (...) {
      next = count;
      // All lower indices have begun, so the lowest failure is known at the end.
      const std::lock_guard<std::mutex> lock(guard);
      if (i < failed) failure = std::current_exception();
      failed = std::min(failed, i);
    }
  };
  const auto most = static_cast<int>(std::min<std::int64_t>(threads, count));
  std::vector<std::thread> others;
  others.reserve(static_cast<std::size_t>(std::max(most, 1) - 1));
  // Signals are blocked in the new threads: they belong to threads that expect them.
  sigset_t all, former;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &former);
  try {
    for (int thread = 1; thread < most; ++thread) others.emplace_back(take, thread);
  } catch (...) {
    // If the system has no more threads or memory, the threads that were created do the work.
  }
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
  take(0);
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ostrakon
