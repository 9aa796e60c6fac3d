// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is true of a plan in its memory, found the slow way: all pairs of uses, a full transitive
// closure, and symbolic execution in many orders. Shares nothing with plan/proof/happens_before and
// the proof.

#include <array>
#include <optional>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {

/// A plan with the memory that it runs in. `identity` says which action of the plan as it was
/// written each action is.
struct PlacedPlan {
  StepPlan plan;
  std::array<MemoryPlan, spaces> memory;
  std::vector<int> identity;

  const MemoryPlan& memory_of(int buffer) const {
    return memory[static_cast<std::size_t>(plan.buffers[static_cast<std::size_t>(buffer)].space)];
  }
  std::int64_t begin(int buffer) const {
    return memory_of(buffer).offsets[static_cast<std::size_t>(buffer)];
  }
  std::int64_t end(int buffer) const {
    return begin(buffer) + plan.buffers[static_cast<std::size_t>(buffer)].bytes;
  }
};

inline PlacedPlan place(StepPlan plan) {
  PlacedPlan placed;
  placed.memory = {plan_memory(plan, Space::device), plan_memory(plan, Space::host)};
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    placed.identity.push_back(static_cast<int>(a));
  placed.plan = std::move(plan);
  return placed;
}

/// Returns the plan with bytes for every buffer alone: what it means, whatever shares memory.
inline PlacedPlan place_apart(PlacedPlan placed) {
  for (MemoryPlan& memory : placed.memory) memory.arena_bytes = 0;
  for (std::size_t b = 0; b < placed.plan.buffers.size(); ++b) {
    const Buffer& buffer = placed.plan.buffers[b];
    MemoryPlan& memory = placed.memory[static_cast<std::size_t>(buffer.space)];
    memory.offsets[b] = memory.arena_bytes;
    memory.arena_bytes += buffer.bytes;
  }
  return placed;
}

/// Finds which actions have always ended before each begins, by streams and waits.
class Closure {
 public:
  /// Nothing where an action waits for itself or a later one.
  static std::optional<Closure> of(const StepPlan& plan) {
    Closure closure;
    const std::size_t actions = plan.actions.size(), words = actions / 64 + 1;
    std::array<int, streams> last;
    last.fill(-1);
    for (std::size_t b = 0; b < actions; ++b) {
      closure.before_.emplace_back(words, 0);
      int& previous = last[static_cast<std::size_t>(plan.actions[b].stream)];
      const auto& waits = plan.actions[b].waits;
      std::vector<int> direct(waits.begin(), waits.end());
      if (previous >= 0) direct.push_back(previous);
      for (int a : direct) {
        if (a < 0 || a >= static_cast<int>(b)) return std::nullopt;
        const auto& theirs = closure.before_[static_cast<std::size_t>(a)];
        for (std::size_t w = 0; w < words; ++w) closure.before_[b][w] |= theirs[w];
        closure.before_[b][static_cast<std::size_t>(a) / 64] |= std::uint64_t{1} << a % 64;
      }
      previous = static_cast<int>(b);
    }
    return closure;
  }

  bool before(int a, int b) const {
    return before_[static_cast<std::size_t>(b)][static_cast<std::size_t>(a) / 64] >> a % 64 & 1;
  }

 private:
  std::vector<std::vector<std::uint64_t>> before_;  // of each action, a bit for each other
};

/// Whether two uses of the same byte, one of which writes, may race.
inline bool has_race(const PlacedPlan& placed, const Closure& closure) {
  struct Used {
    int action, buffer;
    Space space;
    std::int64_t begin, end;
    bool writes;
  };
  std::vector<Used> uses;
  for (int a = 0; a < static_cast<int>(placed.plan.actions.size()); ++a)
    for (const Use& use : placed.plan.actions[static_cast<std::size_t>(a)].uses)
      uses.push_back(
          {a, use.buffer, placed.plan.buffers[static_cast<std::size_t>(use.buffer)].space,
           placed.begin(use.buffer), placed.end(use.buffer), use.access != Access::read});
  for (std::size_t i = 0; i < uses.size(); ++i)
    for (std::size_t j = i + 1; j < uses.size(); ++j) {
      const Used &x = uses[i], &y = uses[j];
      if ((!x.writes && !y.writes) || x.space != y.space) continue;
      if (x.begin >= y.end || y.begin >= x.end) continue;
      if (x.action == y.action
              ? x.buffer != y.buffer
              : !closure.before(x.action, y.action) && !closure.before(y.action, x.action))
        return true;
    }
  return false;
}

/// An order of all actions that streams and waits allow; shorter where all wait for each other.
/// Streams run ahead of each other by chance, much or little.
inline std::vector<int> random_order(const StepPlan& plan, Random& random) {
  std::array<std::vector<int>, streams> queues;
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    queues[static_cast<std::size_t>(plan.actions[a].stream)].push_back(static_cast<int>(a));
  std::array<std::size_t, streams> next{};
  std::array<std::uint64_t, streams> haste{};
  for (std::uint64_t& h : haste) h = std::uint64_t{1} << 3 * (random() % 4);
  std::vector<bool> done(plan.actions.size(), false);
  std::vector<int> order;
  while (order.size() < plan.actions.size()) {
    std::array<std::uint64_t, streams> chance{};
    std::uint64_t sum = 0;
    for (std::size_t s = 0; s < streams; ++s) {
      if (next[s] == queues[s].size()) continue;
      const auto& waits = plan.actions[static_cast<std::size_t>(queues[s][next[s]])].waits;
      const bool ready = std::all_of(waits.begin(), waits.end(), [&](int waited) {
        return done[static_cast<std::size_t>(waited)];
      });
      sum += chance[s] = ready ? haste[s] : 0;
    }
    if (sum == 0) return order;
    std::uint64_t drawn = random() % sum;
    std::size_t stream = 0;
    while (drawn >= chance[stream]) drawn -= chance[stream++];
    order.push_back(queues[stream][next[stream]++]);
    done[static_cast<std::size_t>(order.back())] = true;
  }
  return order;
}

/// What a step comes to: of each action that shows something to the outside (clip, optimize, visit)
/// what it read, and at the end what persistent buffers hold. As hashes that stand for values.
struct Outcome {
  std::vector<std::uint64_t> values;
  bool reads_nothing = false;  ///< an action read bytes that hold nothing

  bool operator==(const Outcome& other) const {
    return values == other.values && reads_nothing == other.reads_nothing;
  }
};

/// Executes plans on symbols: an action hashes what it reads and writes hashes of that. Memory is
/// kept as the ranges between all ends of buffers.
class SymbolicMachine {
 public:
  explicit SymbolicMachine(const PlacedPlan& placed) : placed_(placed) {
    const auto& buffers = placed.plan.buffers;
    std::array<std::vector<std::int64_t>, spaces> ends;
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      auto& of_space = ends[static_cast<std::size_t>(buffers[b].space)];
      of_space.push_back(placed.begin(static_cast<int>(b)));
      of_space.push_back(placed.end(static_cast<int>(b)));
    }
    std::array<std::size_t, spaces> first{};
    for (std::size_t s = 0; s < spaces; ++s) {
      std::sort(ends[s].begin(), ends[s].end());
      ends[s].erase(std::unique(ends[s].begin(), ends[s].end()), ends[s].end());
      first[s] = places_.size();
      places_.insert(places_.end(), ends[s].begin(), ends[s].end());
    }
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const auto space = static_cast<std::size_t>(buffers[b].space);
      const auto cell = [&](std::int64_t place) {
        const auto found = std::lower_bound(ends[space].begin(), ends[space].end(), place);
        return first[space] + static_cast<std::size_t>(found - ends[space].begin());
      };
      cells_.push_back(
          {cell(placed.begin(static_cast<int>(b))), cell(placed.end(static_cast<int>(b)))});
    }
  }

  Outcome run(const std::vector<int>& order) {
    memory_.assign(places_.size(), {});
    Outcome outcome;
    const auto& buffers = placed_.plan.buffers;
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].persistent) write(static_cast<int>(b), mix(1, b));
    outcome.values.assign(order.size() + buffers.size(), 0);
    for (int index : order) {
      const auto a = static_cast<std::size_t>(index);
      const Action& action = placed_.plan.actions[a];
      const auto identity = static_cast<std::uint64_t>(placed_.identity[a]);
      std::uint64_t inputs = mix(2, identity);
      for (const Use& use : action.uses)
        if (use.access != Access::write) {
          bool nothing = false;
          inputs = mix(inputs, read(use.buffer, nothing));
          // Where a buffer ends, its content is not read.
          if (action.kind != Kind::release) outcome.reads_nothing |= nothing;
        }
      if (action.kind == Kind::clip || action.kind == Kind::optimize ||
          action.kind == Kind::verify || action.kind == Kind::export_parameters)
        outcome.values[identity] = inputs;
      for (std::size_t u = 0; u < action.uses.size(); ++u)
        if (action.uses[u].access != Access::read) write(action.uses[u].buffer, mix(inputs, u));
    }
    bool nothing = false;
    for (std::size_t b = 0; b < buffers.size(); ++b)
      if (buffers[b].persistent)
        outcome.values[order.size() + b] = read(static_cast<int>(b), nothing);
    return outcome;
  }

 private:
  /// Bytes that hold `value` from its byte `origin` on; 0 is nothing.
  struct Content {
    std::uint64_t value = 0;
    std::int64_t origin = 0;
  };

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15ull + b + 0x632be59bd9b4e019ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
  }

  void write(int buffer, std::uint64_t value) {
    const auto [first, last] = cells_[static_cast<std::size_t>(buffer)];
    for (std::size_t cell = first; cell < last; ++cell)
      memory_[cell] = {value, places_[cell] - places_[first]};
  }

  /// Hash of what is in a buffer: of its stretches of one value, however ranges divide them.
  std::uint64_t read(int buffer, bool& nothing) const {
    const auto [first, last] = cells_[static_cast<std::size_t>(buffer)];
    std::uint64_t hash = 3, value = 0;
    std::int64_t shift = 0;
    for (std::size_t cell = first; cell < last; ++cell) {
      const Content& content = memory_[cell];
      const std::int64_t here = places_[cell] - places_[first];
      nothing |= content.value == 0;
      if (cell > first && content.value == value && content.origin - here == shift) continue;
      value = content.value;
      shift = content.origin - here;
      hash = mix(mix(mix(hash, static_cast<std::uint64_t>(here)), value),
                 static_cast<std::uint64_t>(shift));
    }
    return hash;
  }

  const PlacedPlan& placed_;
  std::vector<std::int64_t> places_;                        // where each range begins, by space
  std::vector<std::pair<std::size_t, std::size_t>> cells_;  // ranges of each buffer
  std::vector<Content> memory_;                             // of each range
};

inline std::vector<int> plan_order(const StepPlan& plan) {
  std::vector<int> order(plan.actions.size());
  for (std::size_t a = 0; a < order.size(); ++a) order[a] = static_cast<int>(a);
  return order;
}

/// What a plan means: its plan order, with bytes for every buffer alone.
inline Outcome meaning(const PlacedPlan& placed) {
  const PlacedPlan apart = place_apart(placed);
  return SymbolicMachine(apart).run(plan_order(apart.plan));
}

/// Whether a plan can't be run as it is placed: it has no order, may have a race, or comes in
/// plan order to something else than it means.
inline bool is_broken(const PlacedPlan& placed) {
  const std::optional<Closure> closure = Closure::of(placed.plan);
  if (!closure || has_race(placed, *closure)) return true;
  const Outcome meant = meaning(placed);
  return meant.reads_nothing || !(SymbolicMachine(placed).run(plan_order(placed.plan)) == meant);
}

}  // namespace ostrakon::tests
