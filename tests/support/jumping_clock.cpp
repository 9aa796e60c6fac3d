// SPDX-License-Identifier: Apache-2.0
// Preloaded library: the system's date changes while a program runs. Each n-th query
// (OSTRAKON_CLOCK_JUMPS_EVERY) moves it forward by a number of seconds (OSTRAKON_CLOCK_JUMP), and
// the next query moves it back. Clocks that are independent of the date are unchanged.

#include <dlfcn.h>
#include <sys/time.h>

#include <atomic>
#include <cstdlib>
#include <ctime>

namespace {

long number(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? 0 : std::strtol(value, nullptr, 10);
}

std::time_t jump() {
  static std::atomic<long> asked{0};
  static const long every = number("OSTRAKON_CLOCK_JUMPS_EVERY");
  static const long seconds = number("OSTRAKON_CLOCK_JUMP");
  return every > 0 && ++asked / every % 2 == 1 ? seconds : 0;
}

template <class Function>
Function original(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, struct timespec* now) {
  static const auto real = original<int (*)(clockid_t, struct timespec*)>("clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += jump();
  return result;
}

int gettimeofday(struct timeval* __restrict now, void* __restrict zone) {
  static const auto real = original<int (*)(struct timeval*, void*)>("gettimeofday");
  const int result = real(now, zone);
  if (result == 0) now->tv_sec += jump();
  return result;
}

std::time_t time(std::time_t* out) {
  static const auto real = original<std::time_t (*)(std::time_t*)>("time");
  const std::time_t now = real(nullptr) + jump();
  if (out != nullptr) *out = now;
  return now;
}
}
