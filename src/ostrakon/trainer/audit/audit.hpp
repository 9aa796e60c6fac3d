// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <string>
#include <vector>

// An audited step runs a plan in which each rank also computes a leaf of another rank again
// (plan/passes/audit_pass.hpp). This file says whose, and judges what ranks have computed: pure
// functions, which all ranks call with the same arguments.
//
// Ranks that share samples, experts or tensors exchange activations, so an error of one of them
// changes the gradients of all. Such a group is judged as one. With data parallelism alone a group
// is one rank.

namespace ostrakon::train {

/// How many groups of ranks compute leaves together. One alone computes its own leaves again.
int groups_of(const plan::StepPlan& plan);

/// The group of a rank. Numbers of ranks are those of plans.
int group_of(const plan::StepPlan& plan, int rank);

/// Says which leaves are computed again, and by whom.
struct AuditRound {
  std::int64_t micro_batch = 0;  ///< of each rank
  /// How many groups ahead the group is whose leaves a group computes, each rank those of the rank
  /// at its own position.
  int shift = 0;
};

/// The round of the `attempt`-th run of a step, from 0, in which the `audit`-th audit of the run is
/// made. In time all micro-batches are audited with all shifts; attempts differ in the shift where
/// there are three groups or more.
AuditRound audit_round(const plan::StepPlan& plan, std::int64_t audit, int attempt);

/// The rank whose leaf `rank` computes again.
int audited_rank(const plan::StepPlan& plan, int rank, int shift);

/// What all ranks have computed in one run of an audited step.
struct AuditTable {
  AuditRound round;
  /// By rank, then as StepPlan::digests; 0: not computed. Empty: ranks have received different
  /// tables, so none is known.
  std::vector<std::vector<std::uint64_t>> digests;
};

/// Something that an audit has found to be wrong.
struct AuditFinding {
  enum class What {
    changed,   ///< parameters that a rank stores have changed during the step
    replica,   ///< parameters that a rank stores are not those of other replicas
    digest,    ///< another digest of parameters that a rank stores, which are as they were
    read,      ///< other parameters were read than are stored
    sent,      ///< several ranks that gather a unit together have read the same wrong parameters
    gradient,  ///< another gradient of a leaf than other ranks compute
    exchange   ///< ranks have received different tables of digests
  };
  What what = What::gradient;
  int unit = -1;  ///< of the plan, except for `exchange`; of several the one nearest to the loss
  /// The rank that is wrong; of several it is not known which. `exchange`: not known, none.
  std::vector<int> ranks;
};

/// Judges one or several runs of the same step, in their order: who differs from the others.
/// Between runs nothing is updated, so ranks store the same throughout. With one run two groups
/// that differ in a leaf are both named, with another one the majority decides. Ranks that have
/// computed with wrong parameters have no say about gradients. Empty if all agree. `plan`: of the
/// audited step.
std::vector<AuditFinding> judge(const plan::StepPlan& plan, const std::vector<AuditTable>& tables);

/// Whether a finding says that what ranks store from step to step is wrong, so that a repeated step
/// computes with it. After one run a wrong digest looks alike.
bool damages_state(const std::vector<AuditFinding>& findings);

/// Where a rank of a plan runs.
struct RankPlace {
  int rank = 0;  ///< in the world
  std::string host;
};

/// Returns "rank 2 (n03) has computed a wrong gradient of block.1; ...", where several ranks may be
/// wrong "one of ranks 4-5 (n03) has ..."; after the first four findings only how many more there
/// are. `places`: of the ranks of the plan.
std::string describe(const plan::StepPlan& plan, const std::vector<AuditFinding>& findings,
                     const std::vector<RankPlace>& places);

}  // namespace ostrakon::train
