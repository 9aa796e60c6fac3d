// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests that break the plans of ranks on purpose share.

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "plan/random_plans.hpp"
#include "plan/rank_oracle.hpp"

namespace ostrakon::tests {

inline std::string refused(const RankPlans& ranks) {
  return refused_by([&] { prove_ranks(ranks.pointers()); });
}

template <class T>
auto& draw(T& from, Random& random) {
  return from[random() % from.size()];
}

inline bool is_in_place(const Action& action) {
  return action.kind == Kind::gather && action.span.ranks > 1 && action.buffer(Role::shard) < 0;
}

inline void remove_action(StepPlan& plan, std::size_t a) {
  plan.actions.erase(plan.actions.begin() + static_cast<std::ptrdiff_t>(a));
  for (Action& action : plan.actions) {
    auto& waits = action.waits;
    waits.erase(std::remove(waits.begin(), waits.end(), static_cast<int>(a)), waits.end());
    for (int& wait : waits) wait -= wait > static_cast<int>(a) ? 1 : 0;
  }
}

inline void insert_action(StepPlan& plan, std::size_t at, const Action& action) {
  for (Action& other : plan.actions)
    for (int& wait : other.waits) wait += wait >= static_cast<int>(at) ? 1 : 0;
  plan.actions.insert(plan.actions.begin() + static_cast<std::ptrdiff_t>(at), action);
}

/// Changes the plans in one way; false where there is nothing that could be changed so.
using Mutation = std::function<bool(RankPlans&, Random&)>;

/// One, and what is said of it: one of these.
struct NamedMutation {
  const char* name;
  Mutation mutate;
  std::vector<std::string> reasons;
};

/// Exchanges two actions, each of which keeps what it waits for.
inline void swap_places(StepPlan& plan, std::size_t a, std::size_t b) {
  std::swap(plan.actions[a], plan.actions[b]);
  std::swap(plan.actions[a].waits, plan.actions[b].waits);
}

/// Changes an action, drawn from those of a stage that fit, for all ranks of the stage.
inline Mutation change(const std::function<bool(const Action&)>& fits,
                       const std::function<void(StepPlan&, std::size_t)>& to) {
  return [=](RankPlans& ranks, Random& random) {
    StepPlan& plan = draw(ranks.plans, random);
    const auto found = actions_of(plan, fits);
    if (found.empty()) return false;
    to(plan, draw(found, random));
    return true;
  };
}
inline Mutation change(Kind kind, const std::function<void(StepPlan&, std::size_t)>& to) {
  return change(of_kind(kind), to);
}

/// Calls with(a, b) for two actions that fit, one after the other, if there are two; what it says,
/// or false.
template <class With>
bool with_neighbours(StepPlan& plan, Random& random, const std::function<bool(const Action&)>& fits,
                     const With& with) {
  const auto found = actions_of(plan, fits);
  if (found.size() < 2) return false;
  const std::size_t k = random() % (found.size() - 1);
  return with(plan.actions[found[k]], plan.actions[found[k + 1]]);
}

}  // namespace ostrakon::tests
