// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/signals.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <ostrakon/base/process.hpp>
#include <system_error>
#include <utility>

namespace ostrakon::train {
namespace {

constexpr std::array<int, 3> signals = {SIGTERM, SIGUSR2, SIGUSR1};

// The signal handler may access only these.
std::atomic<bool> stop_is_wanted{false}, save_is_wanted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void note_signal(int signal) {
  (signal == SIGUSR1 ? save_is_wanted : stop_is_wanted).store(true, std::memory_order_relaxed);
}

sigset_t noted_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

/// Notes pending signals.
void look_for_signals() {
  const sigset_t set = noted_signals();
  const std::timespec now{};
  for (int signal = 0; (signal = sigtimedwait(&set, nullptr, &now)) > 0;) note_signal(signal);
}

/// Returns the seconds since the machine was started.
double uptime() {
  std::timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns when this process was started, on the same clock; now, if the system does not say.
double start_of_process() {
  const auto ticks = static_cast<double>(process_start(getpid()));
  return ticks > 0.0 ? ticks / static_cast<double>(sysconf(_SC_CLK_TCK)) : uptime();
}

}  // namespace

void note_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // reads and writes are not interrupted
  for (const int signal : signals) sigaction(signal, &action, nullptr);
  const sigset_t set = noted_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalRequests::SignalRequests(std::string file) : file_(std::move(file)) {}

bool SignalRequests::wants_stop() {
  look_for_signals();
  return stop_is_wanted;
}

SignalRequests::Found SignalRequests::take() {
  look_for_signals();
  Found requests;
  requests.stop = stop_is_wanted.exchange(false);
  requests.save = save_is_wanted.exchange(false);
  std::error_code error;
  if (!file_.empty() && std::filesystem::exists(file_, error)) {
    requests.save = requests.save || !ignores_file_;
    std::filesystem::remove(file_, error);
    ignores_file_ = static_cast<bool>(error);
  } else {
    ignores_file_ = false;
  }
  return requests;
}

double seconds_since_start() {
  static const double start = start_of_process();
  return uptime() - start;
}

}  // namespace ostrakon::train
