// SPDX-License-Identifier: Apache-2.0
#pragma once

// Canonical listings of plans: what pins the planner down while it is rebuilt.

#include <cstdint>
#include <functional>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <vector>

namespace ostrakon::tests {

/// All that a plan determines, in words and numbers that do not depend on the names of the
/// planner's types: each buffer with its bytes, lifetime and share of a unit's parameters, each
/// action with its stream, group, sizes, uses and waits, the leaves that ranks work on. A line
/// each.
std::string listing(const plan::StepPlan& plan);

/// A plan to list: its name, and how it is made.
struct ListedPlan {
  std::string name;
  std::function<plan::StepPlan()> make;
};

/// Random plans of all purposes, and those of the shipped decks on several numbers of ranks with
/// each kind of sharding and offload. `decks` is their folder.
std::vector<ListedPlan> listed_plans(const std::string& decks);

/// The listing of a plan, or the message of the Error where it can't be made.
std::string listing(const ListedPlan& plan);

/// FNV-1a, 64 bits.
std::uint64_t hash_of(const std::string& text);

/// Plans are pinned in runs of this many: the hash of their listings, one after the other.
constexpr int plans_a_line = 16;

/// One line for each run: the name of its first plan, and the hash.
std::vector<std::string> listing_hashes(const std::vector<ListedPlan>& plans);

}  // namespace ostrakon::tests
