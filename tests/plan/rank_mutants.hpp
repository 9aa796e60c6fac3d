// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests that break the plans of ranks on purpose share.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostrakon/plan/stage_proof.hpp>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/rank_oracle.hpp"

namespace ostrakon::tests {

using namespace ostrakon::plan;
using Random = std::mt19937_64;

inline void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' does not say '" << part << "'";
}

/// What the proof says, or nothing if it holds.
inline std::string refused(const RankPlans& ranks) {
  try {
    prove_ranks(ranks.pointers());
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

template <class T>
auto& draw(T& from, Random& random) {
  return from[random() % from.size()];
}

inline std::vector<std::size_t> actions_of(const StepPlan& plan,
                                           const std::function<bool(const Action&)>& which) {
  std::vector<std::size_t> found;
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    if (which(plan.actions[a])) found.push_back(a);
  return found;
}
inline auto of_kind(Kind kind) {
  return [kind](const Action& action) { return action.kind == kind; };
}
inline bool is_collective(const Action& action) {
  return communicates(action.kind) && action.span.ranks > 1;
}

inline void remove_action(StepPlan& plan, std::size_t a) {
  plan.actions.erase(plan.actions.begin() + static_cast<std::ptrdiff_t>(a));
  for (Action& action : plan.actions) {
    auto& waits = action.waits;
    waits.erase(std::remove(waits.begin(), waits.end(), static_cast<int>(a)), waits.end());
    for (int& wait : waits) wait -= wait > static_cast<int>(a) ? 1 : 0;
  }
}

/// Changes the plans in one way; false where there is nothing that could be changed so.
using Mutation = std::function<bool(RankPlans&, Random&)>;

}  // namespace ostrakon::tests
