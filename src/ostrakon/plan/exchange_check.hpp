// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <ostrakon/plan/step_plan.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Follows what phases hand over: each exchange must be the one that its unit asks for after that
/// phase, of what this phase has left; and each phase must read what came of the exchanges that it
/// asks for, of its own unit, micro-batch and direction, and work in the workspace that the one
/// before it has kept. A unit computes all of its phases, each once, one after the other, before it
/// begins something else; but those of backward that it defers, also later, from what the others
/// have left.
class ExchangeCheck {
 public:
  explicit ExchangeCheck(const StepPlan& plan);

  /// The next action, which wrong_communication accepts. What is wrong with it, or "".
  std::string wrong(const Action& action);
  /// What is left at the end of the plan, or "".
  std::string wrong_end() const;

 private:
  /// What a buffer holds: what a phase of a unit left, or what came of its exchange.
  struct Handed {
    Kind by = Kind::begin;  ///< forward, recompute or backward; begin: nothing
    int unit = -1;
    int micro_batch = -1;
    int phase = -1;
    bool exchanged = false;
  };
  std::string wrong_exchange(const Action& action);
  std::string wrong_phase(const Action& action);
  std::string wrong_workspace(const Action& action);
  std::string wrong_order(const Action& action);
  int phases_of(int unit, Kind kind) const;
  /// The one that is computed after `position` others.
  int phase_at(int unit, Kind kind, int position) const;

  /// What phases of backward find of those before them: Role::input, saved, deferred.
  using Left = std::array<int, 3>;

  /// What a unit computes, and how many of its phases it has; begin: nothing.
  struct Computing {
    Kind kind = Kind::begin;
    int micro_batch = -1;
    int computed = 0;
    Left left{};
  };

  const StepPlan& plan_;
  std::vector<Computing> computing_;              // of each unit
  std::map<std::pair<int, int>, Left> deferred_;  // by unit and micro-batch
  std::vector<int> workspaces_;                   // of each unit: that of its last phase
  std::vector<Handed> handed_;                    // of each buffer
};

}  // namespace ostrakon::plan
