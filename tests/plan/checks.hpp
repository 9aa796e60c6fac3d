// SPDX-License-Identifier: Apache-2.0
#pragma once

// What tests of plans share: plans to train with, what is refused, and looking things up in plans.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/memory/memory_plan.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::tests {

using namespace ostrakon::plan;

inline StepPlan train_plan(const ModelDescription& model, int ranks, const Policy& policy) {
  return build_step_plan(model, ranks, policy, Purpose::train);
}

constexpr Space both_spaces[] = {Space::device, Space::host};

/// Returns what a user is told where act() is refused, or nothing.
template <class Act>
std::string refusal(const Act& act) {
  return testing::error_of<Error>(act, "");
}
/// Returns what a proof says that refuses something in act(), or nothing.
template <class Act>
std::string refused_by(const Act& act) {
  return testing::error_of<std::logic_error>(act, "");
}

/// What the proof that the plans of ranks fit together says; of one plan, which all ranks run.
inline std::string refused(const std::vector<StepPlan>& stages) {
  return refused_by([&] { prove_stages(stages); });
}
inline std::string refused(const StepPlan& plan) {
  return refused_by([&] { prove_stages({&plan}); });
}
/// What the proof of a rank's memory says.
inline std::string memory_refused(const StepPlan& plan) {
  return refused_by([&] {
    for (Space space : both_spaces) prove_memory(plan, plan_memory(plan, space));
  });
}
inline void expect_proven(const std::vector<StepPlan>& stages) {
  for (const StepPlan& plan : stages) EXPECT_EQ(memory_refused(plan), "");
  EXPECT_EQ(refused(stages), "");
}
inline void expect_proven(const StepPlan& plan) { expect_proven(std::vector<StepPlan>{plan}); }

inline bool has_one_of(const std::string& text, const std::vector<std::string>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const auto& part) { return testing::contains(text, part); });
}

inline std::vector<std::size_t> actions_of(const StepPlan& plan,
                                           const std::function<bool(const Action&)>& which) {
  std::vector<std::size_t> found;
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    if (which(plan.actions[a])) found.push_back(a);
  return found;
}
inline std::function<bool(const Action&)> of_kind(Kind kind) {
  return [kind](const Action& action) { return action.kind == kind; };
}
inline std::function<bool(const Action&)> of_kind(Kind kind, int unit) {
  return [=](const Action& action) { return action.kind == kind && action.unit == unit; };
}
inline int count_of(const StepPlan& plan, Kind kind) {
  return static_cast<int>(actions_of(plan, of_kind(kind)).size());
}
inline bool is_copy(const Action& action) {
  return action.kind == Kind::copy_to_device || action.kind == Kind::copy_to_host;
}
inline bool is_collective(const Action& action) {
  return communicates(action.kind) && action.span.ranks > 1;
}

inline Buffer& buffer_of(StepPlan& plan, const Action& action, Role role) {
  return plan.buffers.at(static_cast<std::size_t>(action.buffer(role)));
}
inline const Buffer& buffer_of(const StepPlan& plan, const Action& action, Role role) {
  return plan.buffers.at(static_cast<std::size_t>(action.buffer(role)));
}
inline Use& use_in(Action& action, Role role) {
  return *std::find_if(action.uses.begin(), action.uses.end(),
                       [&](const Use& use) { return use.role == role; });
}

inline std::int64_t aligned(std::int64_t bytes) {
  return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

inline std::vector<const StepPlan*> pointers(const std::vector<StepPlan>& plans) {
  std::vector<const StepPlan*> all;
  for (const StepPlan& plan : plans) all.push_back(&plan);
  return all;
}

}  // namespace ostrakon::tests
