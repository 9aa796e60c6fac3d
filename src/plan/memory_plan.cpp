// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <stdexcept>

namespace ostrakon::plan {
namespace {

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

bool alive_together(const Buffer& a, const Buffer& b) {
  return a.first <= b.last && b.first <= a.last;
}

/// What has been placed, found by the time in which it is alive.
class Placed {
 public:
  explicit Placed(const StepPlan& plan)
      : plan_(plan),
        slots_(plan.actions.size() / slot_actions + 1),
        seen_(plan.buffers.size(), -1) {}

  void add(int index) {
    const Buffer& buffer = plan_.buffers[index];
    for (int slot = buffer.first / slot_actions; slot <= buffer.last / slot_actions; ++slot)
      slots_[static_cast<std::size_t>(slot)].push_back(index);
  }

  /// How many pairs `find` would look at if all of `indices` were placed and found.
  static double pairs(const StepPlan& plan, const std::vector<int>& indices) {
    std::vector<double> in_slot(plan.actions.size() / slot_actions + 1, 0.0);
    for (int index : indices)
      for (int slot = plan.buffers[index].first / slot_actions;
           slot <= plan.buffers[index].last / slot_actions; ++slot)
        in_slot[static_cast<std::size_t>(slot)] += 1.0;
    double sum = 0.0;
    for (double count : in_slot) sum += count * count;
    return sum;
  }

  /// Those that are alive together with `index`, each once, in `found`.
  void find(int index, std::vector<int>& found) {
    const Buffer& buffer = plan_.buffers[index];
    found.clear();
    for (int slot = buffer.first / slot_actions; slot <= buffer.last / slot_actions; ++slot)
      for (int other : slots_[static_cast<std::size_t>(slot)]) {
        if (seen_[other] == index || !alive_together(buffer, plan_.buffers[other])) continue;
        seen_[other] = index;
        found.push_back(other);
      }
  }

 private:
  static constexpr int slot_actions = 32;
  const StepPlan& plan_;
  std::vector<std::vector<int>> slots_;
  std::vector<int> seen_;  // for whom each was found last
};

/// Places buffers one by one in the given order, each at the lowest offset where it meets no buffer
/// that is alive with it. Returns the end of the highest.
std::int64_t place(const StepPlan& plan, const std::vector<int>& order, std::int64_t base,
                   std::vector<std::int64_t>& offsets) {
  Placed placed(plan);
  std::vector<int> neighbours;
  std::int64_t end = base;
  for (int index : order) {
    const std::int64_t bytes = aligned(plan.buffers[index].bytes);
    placed.find(index, neighbours);
    std::sort(neighbours.begin(), neighbours.end(),
              [&](int a, int b) { return offsets[a] < offsets[b]; });
    std::int64_t offset = base;
    for (int other : neighbours) {
      if (offset + bytes <= offsets[other]) break;
      offset = std::max(offset, offsets[other] + aligned(plan.buffers[other].bytes));
    }
    offsets[index] = offset;
    end = std::max(end, offset + bytes);
    placed.add(index);
  }
  return end;
}

/// Walks through the plan in time and gives each buffer that is born the smallest hole that holds
/// it. Looks at nothing but what is alive, so that it is quick for plans of a million actions.
std::int64_t place_in_time(const StepPlan& plan, const std::vector<int>& transient,
                           std::int64_t base, std::vector<std::int64_t>& offsets) {
  std::vector<std::vector<int>> born(plan.actions.size()), dies(plan.actions.size());
  for (int index : transient) {
    born[static_cast<std::size_t>(plan.buffers[index].first)].push_back(index);
    dies[static_cast<std::size_t>(plan.buffers[index].last)].push_back(index);
  }
  std::map<std::int64_t, std::int64_t> holes;  // below `end`: offset -> bytes
  std::int64_t end = base;
  const auto take = [&](std::int64_t bytes) {
    auto best = holes.end();
    for (auto hole = holes.begin(); hole != holes.end(); ++hole)
      if (hole->second >= bytes && (best == holes.end() || hole->second < best->second))
        best = hole;
    std::int64_t offset = end;
    if (best != holes.end()) {
      offset = best->first;
      if (best->second > bytes) holes.emplace(offset + bytes, best->second - bytes);
      holes.erase(best);
    } else {
      // Grow the last hole where it ends at the end.
      if (!holes.empty() && holes.rbegin()->first + holes.rbegin()->second == end) {
        offset = holes.rbegin()->first;
        holes.erase(std::prev(holes.end()));
      }
      end = offset + bytes;
    }
    return offset;
  };
  const auto give_back = [&](std::int64_t offset, std::int64_t bytes) {
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && offset + bytes == next->first) {
      bytes += next->second;
      next = holes.erase(next);
    }
    if (next != holes.begin() && std::prev(next)->first + std::prev(next)->second == offset)
      std::prev(next)->second += bytes;
    else
      holes.emplace(offset, bytes);
  };
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    std::sort(born[a].begin(), born[a].end(), [&](int x, int y) {
      return plan.buffers[x].bytes != plan.buffers[y].bytes
                 ? plan.buffers[x].bytes > plan.buffers[y].bytes
                 : x < y;
    });
    for (int index : born[a]) offsets[index] = take(aligned(plan.buffers[index].bytes));
    for (int index : dies[a]) give_back(offsets[index], aligned(plan.buffers[index].bytes));
  }
  return end;
}

void find_peak(const StepPlan& plan, MemoryPlan& memory) {
  const int actions = static_cast<int>(plan.actions.size());
  std::vector<std::int64_t> change(actions + 1, 0);
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.persistent || buffer.first < 0) continue;
    change[buffer.first] += aligned(buffer.bytes);
    change[buffer.last + 1] -= aligned(buffer.bytes);
  }
  std::int64_t live = memory.persistent_bytes;
  for (int a = 0; a < actions; ++a) {
    live += change[a];
    if (live > memory.peak_live_bytes) {
      memory.peak_live_bytes = live;
      memory.peak_action = a;
    }
  }
  for (const Buffer& buffer : plan.buffers) {
    const bool alive = buffer.persistent ||
                       (buffer.first <= memory.peak_action && memory.peak_action <= buffer.last);
    if (alive) memory.peak_by_category[static_cast<int>(buffer.category)] += aligned(buffer.bytes);
  }
}

[[noreturn]] void refuse(const std::string& reason) {
  throw std::logic_error("the memory plan is wrong: " + reason);
}

void prove_uses(const StepPlan& plan) {
  std::vector<bool> written(plan.buffers.size(), false);
  for (std::size_t b = 0; b < plan.buffers.size(); ++b) written[b] = plan.buffers[b].persistent;
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    const Action& action = plan.actions[a];
    for (const Use& used : action.uses) {
      const Buffer& buffer = plan.buffers[used.buffer];
      if (a < buffer.first || a > buffer.last)
        refuse(plan.describe(action) + " uses '" + buffer.name + "' outside its lifetime");
      if (used.access != Access::write && !written[used.buffer])
        refuse(plan.describe(action) + " reads '" + buffer.name + "', which nothing has written");
    }
    for (const Use& used : action.uses)
      if (used.access != Access::read) written[used.buffer] = true;
  }
}

void prove_disjoint(const StepPlan& plan, const MemoryPlan& memory) {
  // Sweeps over the actions, keeping what is alive by offset: neighbours must not overlap.
  const int actions = static_cast<int>(plan.actions.size());
  std::vector<std::vector<int>> born(actions), dead(actions);
  std::map<std::int64_t, int> alive;
  const auto enter = [&](int index, int action) {
    const std::int64_t begin = memory.offsets[index];
    const std::int64_t end = begin + plan.buffers[index].bytes;
    const auto clash = [&](int other) {
      refuse("'" + plan.buffers[index].name + "' and '" + plan.buffers[other].name +
             "' share bytes at " +
             (action < 0 ? "all times" : plan.describe(plan.actions[action])));
    };
    const auto next = alive.lower_bound(begin);
    if (next != alive.end() && next->first < end) clash(next->second);
    if (next != alive.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + plan.buffers[previous->second].bytes > begin) clash(previous->second);
    }
    alive.emplace(begin, index);
  };
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (memory.offsets[b] < 0 || memory.offsets[b] % buffer_alignment != 0 ||
        memory.offsets[b] + buffer.bytes > memory.arena_bytes)
      refuse("'" + buffer.name + "' does not lie in the arena");
    if (buffer.persistent) {
      enter(b, -1);
    } else if (buffer.first >= 0) {
      born[buffer.first].push_back(b);
      dead[buffer.last].push_back(b);
    }
  }
  for (int a = 0; a < actions; ++a) {
    for (int b : born[a]) enter(b, a);
    for (int b : dead[a]) alive.erase(memory.offsets[b]);
  }
}

}  // namespace

MemoryPlan plan_memory(const StepPlan& plan) {
  MemoryPlan memory;
  memory.offsets.assign(plan.buffers.size(), 0);
  std::vector<int> transient;
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) {
    if (plan.buffers[b].persistent) {
      memory.offsets[b] = memory.persistent_bytes;
      memory.persistent_bytes += aligned(plan.buffers[b].bytes);
    } else if (plan.buffers[b].first >= 0) {
      transient.push_back(b);
    }
  }
  find_peak(plan, memory);

  // No way of placing is best for all plans: the best of three. Two of them look at every pair of
  // buffers that are alive at about the same time, which takes too long for the longest plans.
  memory.arena_bytes = place_in_time(plan, transient, memory.persistent_bytes, memory.offsets);
  constexpr double most_pairs = 1e9;
  if (Placed::pairs(plan, transient) > most_pairs) return memory;
  const auto bytes = [&](int b) { return plan.buffers[b].bytes; };
  const auto span = [&](int b) { return plan.buffers[b].last - plan.buffers[b].first; };
  std::vector<int> by_size = transient, by_span = transient;
  std::stable_sort(by_size.begin(), by_size.end(), [&](int a, int b) {
    return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : span(a) > span(b);
  });
  std::stable_sort(by_span.begin(), by_span.end(), [&](int a, int b) {
    return span(a) != span(b) ? span(a) > span(b) : bytes(a) > bytes(b);
  });
  for (const std::vector<int>& order : {by_size, by_span}) {
    std::vector<std::int64_t> offsets = memory.offsets;
    const std::int64_t end = place(plan, order, memory.persistent_bytes, offsets);
    if (end >= memory.arena_bytes) continue;
    memory.arena_bytes = end;
    memory.offsets = std::move(offsets);
  }
  return memory;
}

void prove_memory(const StepPlan& plan, const MemoryPlan& memory) {
  prove_uses(plan);
  prove_disjoint(plan, memory);
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
  std::snprintf(line, sizeof line, "  %-22s %12s  alive at ", "most",
                format_bytes(memory.peak_live_bytes).c_str());
  table += line;
  table += plan.describe(plan.actions[memory.peak_action]) + "\n";
  std::snprintf(line, sizeof line, "  %-22s %12s\n", "arena",
                format_bytes(memory.arena_bytes).c_str());
  return table + line;
}

}  // namespace ostrakon::plan
