// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <vector>

// An audited step runs a plan in which each rank also computes a leaf of another rank again
// (plan/passes/audit_pass.hpp). This file says whose, and judges what ranks have computed: pure
// functions, which all ranks call with the same arguments.

namespace ostrakon::train {

/// Says which leaves are computed again, and by whom.
struct AuditRound {
  std::int64_t micro_batch = 0;  ///< of each rank
  /// How many places ahead the rank is whose leaf a rank computes. Ranks that share samples or
  /// experts have one place together, and tensor ranks have the same places.
  int shift = 0;
};

/// The round of the `attempt`-th run of a step, from 0, in which the `audit`-th audit of the run is
/// made. Micro-batches and shifts take turns; attempts differ in the shift where there are three
/// places or more.
AuditRound audit_round(const plan::StepPlan& plan, std::int64_t audit, int attempt);

/// The rank whose leaf `rank` computes again. Numbers are those of plans.
int audited_rank(const plan::StepPlan& plan, int rank, int shift);

/// What all ranks have computed in one run of an audited step.
struct AuditTable {
  AuditRound round;
  /// By rank, then as StepPlan::digests; 0: not computed.
  std::vector<std::vector<std::uint64_t>> digests;
};

/// Something that an audit has found to be wrong.
struct AuditFinding {
  enum class What {
    gradient,    ///< another gradient of a leaf than other ranks compute
    parameters,  ///< other parameters were read than their owners have
    state        ///< parameters that a rank owns have changed during the step
  };
  What what = What::gradient;
  int unit = -1;  ///< of the plan; of several the one nearest to the loss
  /// The rank that is wrong; of several it is not known which. Empty: none of those that have read
  /// the parameters.
  std::vector<int> ranks;
};

/// Whether all ranks agree.
bool agrees(const plan::StepPlan& plan, const AuditTable& table);

/// Judges one or several runs of the same step: who differs from the others. With one run two ranks
/// that differ in a leaf are both named, with another one the majority decides. `plan`: of the
/// audited step.
std::vector<AuditFinding> judge(const plan::StepPlan& plan, const std::vector<AuditTable>& tables);

/// Whether a finding says that what ranks keep from step to step is wrong, so that a repeated step
/// would compute with it.
bool damages_state(const plan::StepPlan& plan, const std::vector<AuditFinding>& findings);

/// Returns "rank 2 (n03) has computed a wrong gradient of block.1; ...". `names`: of ranks.
std::string describe(const plan::StepPlan& plan, const std::vector<AuditFinding>& findings,
                     const std::vector<std::string>& names);

}  // namespace ostrakon::train
