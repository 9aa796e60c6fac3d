// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/memory_counter.hpp>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <ostrakon/math/portability.hpp>
#include <string>
#include <string_view>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/memory.hpp>
#endif

namespace ostrakon::runtime {
namespace {

namespace tools = Kokkos::Tools::Experimental;

std::atomic<std::int64_t> current{0}, peak{0}, allocations{0};
tools::EventSet previous;
bool counting = false;

/// Whether a label is of memory that Kokkos allocates for itself, some of which has none.
bool is_of_kokkos(std::string_view label) {
  return label.substr(0, 8) == "Kokkos::" || label == "[unlabeled]";
}

/// The memory that Kokkos has allocated for itself. It is found by address, as Kokkos does not
/// repeat the label when it frees such memory.
class KokkosMemory {
 public:
  void take(const void* pointer, std::int64_t bytes) {
    ++allocations_;
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_ += bytes;
    pieces_[pointer] = bytes;
  }
  /// Returns false if the pointer is not of this memory.
  bool give_back(const void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto piece = pieces_.find(pointer);
    if (piece == pieces_.end()) return false;
    bytes_ -= piece->second;
    pieces_.erase(piece);
    return true;
  }
  std::int64_t bytes() const { return bytes_; }
  std::int64_t allocations() const { return allocations_; }

 private:
  std::mutex mutex_;
  std::map<const void*, std::int64_t> pieces_;
  std::atomic<std::int64_t> bytes_{0}, allocations_{0};
};

KokkosMemory& of_kokkos() {
  static KokkosMemory* const one = new KokkosMemory;  // never deleted, as Kokkos may end after
                                                      // everything else
  return *one;
}

void on_allocate(Kokkos_Profiling_SpaceHandle space, const char* label, const void* pointer,
                 std::uint64_t bytes) {
  if (is_of_kokkos(label))
    of_kokkos().take(pointer, static_cast<std::int64_t>(bytes));
  else
    count_allocation(static_cast<std::int64_t>(bytes));
  if (previous.allocate_data) previous.allocate_data(space, label, pointer, bytes);
}

void on_deallocate(Kokkos_Profiling_SpaceHandle space, const char* label, const void* pointer,
                   std::uint64_t bytes) {
  // Memory with a label of Kokkos that is not registered was allocated before counting began.
  if (!of_kokkos().give_back(pointer) && !is_of_kokkos(label))
    count_deallocation(static_cast<std::int64_t>(bytes));
  if (previous.deallocate_data) previous.deallocate_data(space, label, pointer, bytes);
}

/// Returns the number in `file` after `key`, or -1. With an empty key it is the first word.
std::int64_t number_in(const std::string& file, const std::string& key) {
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

/// Returns the free part of a control group's limit: the file cache, which the system drops when
/// memory is short, counts as free.
std::int64_t left_in(const std::string& folder, const char* limit_name, const char* usage_name) {
  const std::int64_t limit = number_in(folder + limit_name, "");
  const std::int64_t usage = number_in(folder + usage_name, "");
  if (limit <= 0 || usage < 0) return std::numeric_limits<std::int64_t>::max();
  const std::string statistics = folder + "memory.stat";
  const std::int64_t cache = std::max<std::int64_t>(0, number_in(statistics, "inactive_file")) +
                             std::max<std::int64_t>(0, number_in(statistics, "active_file"));
  return std::max<std::int64_t>(0, limit - std::max<std::int64_t>(0, usage - cache));
}

/// Returns the minimum that the control groups of this process leave: its own and all above it,
/// since a job's limit is often set a few levels up.
std::int64_t left_in_control_groups() {
  std::int64_t left = std::numeric_limits<std::int64_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    // Lines are "0::/path" in version 2, "7:memory:/path" in version 1.
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const bool version2 = controllers.empty();
    const std::string root = version2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    std::string path = line.substr(second + 1);
    for (;;) {
      if (path == "/") path.clear();
      left = std::min(left,
                      left_in(root + path + "/", version2 ? "memory.max" : "memory.limit_in_bytes",
                              version2 ? "memory.current" : "memory.usage_in_bytes"));
      if (path.empty()) break;
      path.erase(path.rfind('/'));
    }
  }
  return left;
}

}  // namespace

void start_counting_memory() {
  if (counting) return;
  counting = true;
  previous = tools::get_callbacks();
  tools::set_allocate_data_callback(on_allocate);
  tools::set_deallocate_data_callback(on_deallocate);
}

void count_allocation(std::int64_t bytes) {
  if (!counting) return;
  const std::int64_t now = current += bytes;
  if (now > peak) peak = now;
  ++allocations;
}

void count_deallocation(std::int64_t bytes) {
  if (counting) current -= bytes;
}

MemoryCount memory_count() {
  return {current, peak, allocations, of_kokkos().bytes(), of_kokkos().allocations()};
}

std::int64_t peak_resident_bytes() {
  return std::max<std::int64_t>(0, number_in("/proc/self/status", "VmHWM:")) * 1024;
}

std::int64_t available_memory_bytes([[maybe_unused]] plan::Space space) {
#if OSTRAKON_HAS_DEVICE
  if (space == plan::Space::device) return device::memory_info().free;
#endif
  std::int64_t available = number_in("/proc/meminfo", "MemAvailable:");
  available = available < 0 ? std::numeric_limits<std::int64_t>::max() : available * 1024;
  return std::min(available, left_in_control_groups());
}

}  // namespace ostrakon::runtime
