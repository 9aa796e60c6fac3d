// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <string>

namespace ostrakon::runtime {
namespace {

namespace tools = Kokkos::Tools::Experimental;

std::atomic<std::int64_t> current{0}, peak{0}, allocations{0};
tools::EventSet previous;

void on_allocate(Kokkos_Profiling_SpaceHandle space, const char* label, const void* pointer,
                 std::uint64_t bytes) {
  const std::int64_t now = current += static_cast<std::int64_t>(bytes);
  if (now > peak) peak = now;
  ++allocations;
  if (previous.allocate_data) previous.allocate_data(space, label, pointer, bytes);
}

void on_deallocate(Kokkos_Profiling_SpaceHandle space, const char* label, const void* pointer,
                   std::uint64_t bytes) {
  current -= static_cast<std::int64_t>(bytes);
  if (previous.deallocate_data) previous.deallocate_data(space, label, pointer, bytes);
}

/// The number in `file` after `key`, or -1. An empty key takes the first word.
std::int64_t number_in(const char* file, const std::string& key) {
  std::ifstream stream(file);
  std::string word;
  while (stream >> word) {
    if (!key.empty()) {
      if (word != key) continue;
      stream >> word;
    }
    return word.find_first_not_of("0123456789") == std::string::npos && word.size() < 19
               ? std::stoll(word)
               : -1;
  }
  return -1;
}

}  // namespace

void start_counting_memory() {
  static bool counting = false;
  if (counting) return;
  counting = true;
  previous = tools::get_callbacks();
  tools::set_allocate_data_callback(on_allocate);
  tools::set_deallocate_data_callback(on_deallocate);
}

MemoryCount memory_count() { return {current, peak, allocations}; }

std::int64_t peak_resident_bytes() {
  return std::max<std::int64_t>(0, number_in("/proc/self/status", "VmHWM:")) * 1024;
}

std::int64_t available_memory_bytes() {
  std::int64_t available = number_in("/proc/meminfo", "MemAvailable:");
  available = available < 0 ? std::numeric_limits<std::int64_t>::max() : available * 1024;
  // A control group's limit: version 2, then version 1.
  const char* limits[][2] = {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
                             {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                              "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, usage_file] : limits) {
    const std::int64_t limit = number_in(limit_file, "");
    const std::int64_t usage = number_in(usage_file, "");
    if (limit > 0 && usage >= 0)
      available = std::min(available, std::max<std::int64_t>(0, limit - usage));
  }
  return available;
}

}  // namespace ostrakon::runtime
