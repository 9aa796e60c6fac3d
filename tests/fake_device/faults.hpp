// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of the fake device fails or takes longer on request, and how often it is called.

#include <fake_device/runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace fake {

/// The only T; it is never destroyed, as threads may use it until the program ends.
template <class T>
T& only() {
  static T* const one = new T;
  return *one;
}

struct Faults {
  std::atomic<std::uint64_t> seed{0};
  std::atomic<double> microseconds{0.0};
  std::atomic<double> copy_seconds{0.0};
  std::atomic<double> load_seconds{0.0};
  std::atomic<long> drop_wait{0};
  std::string failing;
  long failing_call = 0;

  Faults() {
    if (const char* shake = std::getenv("FAKE_DEVICE_SHAKE")) {
      char* end = nullptr;
      seed = std::strtoul(shake, &end, 10);
      microseconds = *end == ',' ? std::strtod(end + 1, nullptr) : 0.0;
    }
    if (const char* copy = std::getenv("FAKE_DEVICE_COPY"))
      copy_seconds = std::strtod(copy, nullptr);
    if (const char* drop = std::getenv("FAKE_DEVICE_DROP_WAIT"))
      drop_wait = std::strtol(drop, nullptr, 10);
    const char* const fail = std::getenv("FAKE_DEVICE_FAIL");
    if (fail == nullptr) return;
    const std::string all = fail;
    const std::size_t comma = all.find(',');
    const std::size_t second = all.find(',', comma + 1);
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (second != std::string::npos && rank != nullptr && all.substr(second + 1) != rank) return;
    failing = all.substr(0, comma);
    failing_call =
        comma == std::string::npos ? 1 : std::strtol(all.c_str() + comma + 1, nullptr, 10);
  }
};

inline Faults& faults() { return only<Faults>(); }

struct Calls {
  std::mutex mutex;
  std::map<std::string, long, std::less<>> count;
};
inline Calls& calls() { return only<Calls>(); }

inline void sleep_for(double seconds) {
  if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// The device is in the state after a sticky CUDA error: each later call fails, and nothing runs.
inline std::atomic<bool> is_lost{false};

}  // namespace fake
