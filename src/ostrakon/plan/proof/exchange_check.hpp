// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::plan {

/// Checks the exchanges of a plan: each must be the one that its unit asks for after the phase
/// before it, of the send buffer that this phase has written; and each phase must read the results
/// of the exchanges that it asks for, of its own unit, micro-batch and direction, and work in the
/// workspace that the phase before it has kept. A unit computes all of its phases, each once, one
/// after the other, before it begins something else; only deferred phases of backward may run
/// later, from the buffers that the others have left.
class ExchangeCheck {
 public:
  explicit ExchangeCheck(const StepPlan& plan);

  /// Takes the next action, which wrong_communication accepts. Returns what is wrong with it, or
  /// "".
  std::string wrong(const Action& action);
  /// Returns what is missing at the end of the plan, or "".
  std::string wrong_end() const;

 private:
  /// Content of a buffer: written by a phase of a unit, or the result of its exchange.
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
  /// The phase that is computed after `position` others.
  int phase_at(int unit, Kind kind, int position) const;

  /// Buffers that phases of backward read from those before them: Role::input, saved, deferred.
  using Left = std::array<int, 3>;

  /// The pass that a unit is in, and how many of its phases are computed; begin: none.
  struct Computing {
    Kind kind = Kind::begin;
    int micro_batch = -1;
    int computed = 0;
    Left left{};
  };

  const StepPlan& plan_;
  std::vector<Computing> computing_;              // one per unit
  std::map<std::pair<int, int>, Left> deferred_;  // keyed by unit and micro-batch
  std::vector<int> workspaces_;                   // per unit: the workspace of its last phase
  std::vector<Handed> handed_;                    // one per buffer
};

}  // namespace ostrakon::plan
