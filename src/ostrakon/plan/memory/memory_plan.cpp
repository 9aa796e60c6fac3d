// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/memory/memory_plan.hpp>

#include <algorithm>
#include <cstdio>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hash.hpp>
#include <ostrakon/plan/memory/placement.hpp>

namespace ostrakon::plan {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

struct Peak {
  std::int64_t bytes = 0;
  int action = -1;  // the first one at which they are live
};

Peak find_peak(const StepPlan& plan, Space space) {
  const int actions = static_cast<int>(plan.actions.size());
  std::vector<std::int64_t> change(actions + 1, 0);
  std::int64_t live = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != space) continue;
    if (buffer.persistent) live += aligned(buffer.bytes);
    if (buffer.persistent || buffer.first < 0) continue;
    change[buffer.first] += aligned(buffer.bytes);
    change[buffer.last + 1] -= aligned(buffer.bytes);
  }
  Peak peak;
  for (int a = 0; a < actions; ++a) {
    live += change[a];
    if (live > peak.bytes) peak = {live, a};
  }
  return peak;
}

void note_peak(const StepPlan& plan, MemoryPlan& memory) {
  const Peak peak = find_peak(plan, memory.space);
  memory.peak_live_bytes = peak.bytes;
  memory.peak_action = peak.action;
  for (const Buffer& buffer : plan.buffers) {
    const bool is_live = buffer.persistent ||
                         (buffer.first <= memory.peak_action && memory.peak_action <= buffer.last);
    if (buffer.space == memory.space && is_live)
      memory.peak_by_category[static_cast<int>(buffer.category)] += aligned(buffer.bytes);
  }
}

}  // namespace

std::int64_t peak_live_bytes(const StepPlan& plan, Space space) {
  return find_peak(plan, space).bytes;
}

MemoryPlan plan_memory(const StepPlan& plan, Space space) {
  MemoryPlan memory;
  memory.space = space;
  memory.offsets.assign(plan.buffers.size(), -1);
  std::vector<int> transient;
  Rectangles rectangles;
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (buffer.space != space) continue;
    if (buffer.persistent) {
      memory.offsets[b] = memory.persistent_bytes;
      memory.persistent_bytes += aligned(buffer.bytes);
    } else if (buffer.first >= 0) {
      transient.push_back(b);
      rectangles.push_back({buffer.first, buffer.last, aligned(buffer.bytes), -1});
    }
  }
  note_peak(plan, memory);

  const int actions = static_cast<int>(plan.actions.size());
  memory.arena_bytes = place(rectangles, actions, memory.persistent_bytes);
  for (std::size_t i = 0; i < transient.size(); ++i)
    memory.offsets[transient[i]] = rectangles[i].offset;
  return memory;
}

std::int64_t ArenaSizeCache::arena_bytes(const StepPlan& plan) {
  Hasher hasher;
  std::size_t placed = 0;
  std::int64_t sum = 0, persistent = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != Space::device) continue;
    if (buffer.persistent) persistent += aligned(buffer.bytes);
    if (buffer.persistent || buffer.first < 0) continue;
    hasher.add(buffer.first, buffer.last, aligned(buffer.bytes));
    sum += aligned(buffer.bytes);
    ++placed;
  }
  const Key name = {hasher.value(), placed, sum, persistent, plan.actions.size()};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = known_.find(name);
    if (known != known_.end()) return known->second;
  }
  const std::int64_t bytes = plan_memory(plan).arena_bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  return known_[name] = bytes;
}

std::string memory_table(const StepPlan& plan, const MemoryPlan& memory) {
  std::string table;
  char line[128];
  for (int c = 0; c < categories; ++c) {
    if (memory.peak_by_category[c] == 0) continue;
    std::snprintf(line, sizeof line, "  %-22s %12s\n", name(static_cast<Category>(c)),
                  format_bytes(memory.peak_by_category[c]).c_str());
    table += line;
  }
  std::snprintf(line, sizeof line, "  %-22s %12s  peak at ", "most",
                format_bytes(memory.peak_live_bytes).c_str());
  table += line;
  table += memory.peak_action < 0 ? "no action" : plan.describe(plan.actions[memory.peak_action]);
  table += "\n";
  std::snprintf(line, sizeof line, "  %-22s %12s\n", "arena",
                format_bytes(memory.arena_bytes).c_str());
  return table + line;
}

}  // namespace ostrakon::plan
