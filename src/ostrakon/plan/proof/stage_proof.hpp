// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/ir/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// Proves that the communication of ranks which run these plans together matches, and that all come
/// to the end: no rank's plan shows that alone. plans[r] is the plan of rank r; ranks with the same
/// plan point to the same one. The proof trusts nothing that made the plans, and assumes no
/// buffering: a send ends only once it is received, a collective once all its ranks are there, and
/// later actions of the stream wait until then. It shows that
/// - a collective is over the parts of an array that its buffers have at that point of the plan,
///   and persistent buffers are whole again at the end;
/// - parameters are gathered where a unit computes with them, and a recompute reads what its
///   forward read;
/// - each exchange of activations is the one that the unit asks for, of the send buffer that its
///   phase has written, and the next phase reads its result;
/// - each sum of gradients over ranks is made in the order that the layouts say, and added to the
///   sum over the micro-batches before where it has to be;
/// - actions that depend on the step's sums over ranks wait for them (if all waits are for earlier
///   actions);
/// - the ranks of a group submit that group's collectives on a stream in one order: the same ones,
///   over the same elements, summed by the same trees;
/// - from rank to rank, the k-th send matches the k-th receive: of the same micro-batch and
///   direction, with the same number of elements of the same size;
/// - with all ranks together, each stream in its order and all waits kept, every action comes to
///   run.
///
/// Throws std::logic_error with the stage (and, where plans of a stage differ, the rank), the
/// action and the reason; for a deadlock, with the cycle of waits.
///
/// Ranks with the same plan, whose partners have the same plans too, do the same at the same time,
/// so one of them represents all: time and memory are in proportion to the actions of different
/// plans, and to the number of ranks. prove_memory proves the properties of a single plan (races,
/// lifetimes).
void prove_ranks(const std::vector<const StepPlan*>& plans);

/// Proves the stages of a pipeline: all ranks of a stage run its plan. One plan: no pipeline.
void prove_stages(const std::vector<const StepPlan*>& stages);
void prove_stages(const std::vector<StepPlan>& stages);

}  // namespace ostrakon::plan
