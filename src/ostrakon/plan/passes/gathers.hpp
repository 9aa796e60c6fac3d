// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/ir/policy.hpp>
#include <vector>

namespace ostrakon::plan {

/// A forward or backward that needs gathered parameters of up to two units: its own, and those of
/// one that it is tied to.
struct Visit {
  std::array<int, 2> needs{-1, -1};  ///< units; -1: none
  int unit = -1;
  int micro_batch = -1;
  bool forward = true;
};

/// The settings of a unit for GatherOrder.
struct GatherRules {
  std::int64_t bytes = 0;  ///< size of its gathered parameters and of their codes
  Reshard reshard;
  Prefetch forward_prefetch, backward_prefetch;
  std::vector<int> forward_list, backward_list;  ///< indices of the units that Prefetch names
};

/// Decides, visit by visit in the order of computing, which units are gathered before it and which
/// stay after it. Keeps GatherLimit: units that a visit needs are always gathered, and nothing is
/// prefetched that would exceed the limit at a visit before its use.
class GatherOrder {
 public:
  /// Whether parameters are released after a visit.
  enum class End { release, stay, keep_part };

  /// Throws Error where a visit alone needs more than `limit`; `names` are those of the units.
  GatherOrder(std::vector<Visit> visits, std::vector<GatherRules> rules, GatherLimit limit,
              const std::vector<std::string>& names);

  /// Returns the units to gather before visit `index`, in this order. It is called for each visit,
  /// then `end` for each unit that the visit needs.
  std::vector<int> begin(int index);
  End end(int index, int unit);

 private:
  enum class State { away, in_flight, kept };
  struct InFlight {
    std::int64_t units = 0;
    std::int64_t bytes = 0;
  };

  std::vector<int> wanted(int index) const;
  void fly(int unit);
  void add(InFlight& load, int unit, int sign) const;
  int next_use(int unit, int after) const;
  void find_open(const std::vector<int>& first);
  int next_at(int index, int unit) const;
  bool is_open(int index, int unit) const;
  State state_after(int index, int unit) const;
  bool leaves_room(int unit, int index, int use, const std::vector<int>& found) const;

  const std::vector<Visit> visits_;
  const std::vector<GatherRules> rules_;
  const GatherLimit limit_;
  std::vector<std::array<int, 2>> next_;  // per visit and need: the next visit that needs the same
                                          // unit
  // Per visit and need: whether a micro-batch that has needed the unit by then will need it again.
  std::vector<std::array<bool, 2>> is_open_;
  std::vector<State> state_;  // one per unit
  InFlight in_flight_;
};

}  // namespace ostrakon::plan
