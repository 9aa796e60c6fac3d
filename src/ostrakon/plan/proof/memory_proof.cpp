// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <stdexcept>

namespace ostrakon::plan {
namespace {

[[noreturn]] void refuse(const std::string& reason) {
  throw std::logic_error("the memory plan is wrong: " + reason);
}

/// Walks a plan in plan order and tracks which buffer's content each byte holds. A buffer is
/// always used as a whole, so its bytes are all written and read by the same actions, and one state
/// for the buffer is enough.
class Proof {
 public:
  Proof(const StepPlan& plan, const MemoryPlan& memory)
      : plan_(plan), memory_(memory), order_(plan), states_(plan.buffers.size()) {}

  void run() {
    check_places();
    for (int a = 0; a < static_cast<int>(plan_.actions.size()); ++a) {
      for (const Use& used : plan_.actions[a].uses) check_use(a, used.buffer);
      for (const Use& used : plan_.actions[a].uses)
        if (used.access != Access::write && is_here(used.buffer)) read(a, used.buffer);
      for (const Use& used : plan_.actions[a].uses)
        if (used.access != Access::read && is_here(used.buffer)) write(a, used.buffer);
    }
  }

 private:
  static std::array<int, streams> nobody() {
    std::array<int, streams> actions;
    actions.fill(-1);
    return actions;
  }

  /// State of a buffer's bytes since it was last written.
  struct State {
    bool whole = false;                        // all of them hold its content
    int overwritten_by = -1;                   // the buffer that took some of them
    int written = -1;                          // the action that wrote it last, or before the step
    std::array<int, streams> read = nobody();  // the last action of each stream that read it
  };
  /// Bytes up to `end` that were last written as bytes of `buffer`.
  struct ByteRange {
    std::int64_t end = 0;
    int buffer = -1;
  };

  bool is_here(int buffer) const { return plan_.buffers[buffer].space == memory_.space; }
  std::int64_t begin(int buffer) const { return memory_.offsets[buffer]; }
  std::int64_t end(int buffer) const { return begin(buffer) + plan_.buffers[buffer].bytes; }
  std::string quoted(int buffer) const { return "'" + plan_.buffers[buffer].name + "'"; }
  std::string described(int action) const { return plan_.describe(plan_.actions[action]); }

  void check_places() {
    if (memory_.offsets.size() != plan_.buffers.size())
      refuse("it places " + std::to_string(memory_.offsets.size()) + " buffers of " +
             std::to_string(plan_.buffers.size()));
    for (int b = 0; b < static_cast<int>(plan_.buffers.size()); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (!is_here(b) || (!buffer.persistent && buffer.first < 0)) continue;
      const std::int64_t lowest = buffer.persistent ? 0 : memory_.persistent_bytes;
      const std::int64_t highest = std::min(
          memory_.arena_bytes, buffer.persistent ? memory_.persistent_bytes : memory_.arena_bytes);
      if (begin(b) % buffer_alignment != 0 || buffer.bytes < 0 || begin(b) < lowest ||
          end(b) > highest)
        refuse(quoted(b) + " does not lie in its part of the arena");
      if (!buffer.persistent) continue;
      take(b, [&](int other) {
        refuse(quoted(b) + " and " + quoted(other) + " share bytes at all times");
      });
    }
  }

  void check_use(int action, int buffer) const {
    if (buffer < 0 || buffer >= static_cast<int>(plan_.buffers.size()))
      refuse(described(action) + " uses a buffer that is not there");
    const Buffer& used = plan_.buffers[buffer];
    if (!used.persistent && (action < used.first || action > used.last))
      refuse(described(action) + " uses " + quoted(buffer) + " outside its lifetime");
  }

  /// Checks that `action`, which uses the bytes of `buffer`, comes after `earlier`, which used them
  /// as bytes of `owner`.
  void check_order(int earlier, int owner, int action, int buffer) const {
    if (earlier < 0 || (earlier == action && owner == buffer) || order_.before(earlier, action))
      return;
    if (earlier == action)
      refuse(described(action) + " uses " + quoted(owner) + " and " + quoted(buffer) +
             ", which share bytes");
    refuse(described(action) + " uses " + quoted(buffer) + " and does not wait for " +
           described(earlier) + ", which uses " +
           (owner == buffer ? "it too" : quoted(owner) + " at the same bytes"));
  }

  void read(int action, int buffer) {
    State& state = states_[buffer];
    if (!state.whole)
      refuse(described(action) + " reads " + quoted(buffer) +
             (state.overwritten_by < 0
                  ? ", which nothing has written"
                  : ", whose bytes " + quoted(state.overwritten_by) + " has overwritten"));
    check_order(state.written, buffer, action, buffer);
    state.read[static_cast<std::size_t>(plan_.actions[action].stream)] = action;
  }

  void write(int action, int buffer) {
    const auto check_done = [&](int owner) {
      check_order(states_[owner].written, owner, action, buffer);
      for (int reader : states_[owner].read) check_order(reader, owner, action, buffer);
    };
    if (states_[buffer].whole)
      check_done(buffer);
    else
      take(buffer, check_done);
    states_[buffer].written = action;
    states_[buffer].read = nobody();
  }

  /// Makes all bytes of `buffer` its own; calls taken_from(owner) for each range that belonged to
  /// another buffer, or to itself.
  template <class TakenFrom>
  void take(int buffer, const TakenFrom& taken_from) {
    states_[buffer].whole = true;
    const std::int64_t first = begin(buffer), last = end(buffer);
    if (first == last) return;
    auto range = ranges_.upper_bound(first);
    if (range != ranges_.begin() && std::prev(range)->second.end > first) --range;
    while (range != ranges_.end() && range->first < last) {
      const std::int64_t range_begin = range->first;
      const ByteRange old = range->second;
      taken_from(old.buffer);
      states_[old.buffer].whole = false;
      states_[old.buffer].overwritten_by = buffer;
      range = ranges_.erase(range);
      if (range_begin < first) ranges_[range_begin] = {first, old.buffer};
      if (old.end > last) ranges_[last] = old;
    }
    ranges_[first] = {last, buffer};
    states_[buffer].whole = true;  // also where ranges of its own were taken
  }

  const StepPlan& plan_;
  const MemoryPlan& memory_;
  const HappensBefore order_;
  std::vector<State> states_;                 // one per buffer
  std::map<std::int64_t, ByteRange> ranges_;  // keyed by their first byte
};

}  // namespace

void prove_memory(const StepPlan& plan, const MemoryPlan& memory) { Proof(plan, memory).run(); }

}  // namespace ostrakon::plan
