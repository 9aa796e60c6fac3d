// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::plan {

/// The proof for what no rank's plan shows alone: that the communication of ranks which run these
/// plans together matches, and all come to the end. plans[r] is what rank r runs; ranks with the
/// same plan point to the same one. It trusts nothing that made the plans, and assumes no
/// buffering: a send is done only once it is received, a collective once all its ranks are there,
/// and all else on the stream behind it waits. It shows that
/// - a collective is over the parts of an array that its buffers have at that point of the plan,
///   and persistent buffers are whole again at the end;
/// - what a unit computes with is gathered, and a forward is recomputed from what it read before;
/// - each exchange of activations is the one that the unit asks for, of what its phase has left,
/// and
///   the next phase reads what came of it;
/// - each sum of gradients over ranks is made in the order that the layouts say, and added to that
///   over the micro-batches before where it has to be;
/// - what goes by the step's sums over ranks waits for them (where all waits are for earlier
///   actions);
/// - the ranks of a group submit that group's collectives on a stream in one order: the same ones,
///   over the same elements, summed by the same trees;
/// - from rank to rank, the k-th send matches the k-th receive: of the same micro-batch and
///   direction, with the same number of elements of the same size;
/// - with all ranks together, each stream in its order and all waits kept, every action comes to
///   run.
///
/// Throws std::logic_error with the stage (and, where plans of a stage differ, the rank), the
/// action and the reason; of a deadlock, the cycle of waits.
///
/// Ranks with the same plan, whose partners have the same plans too, do the same at the same time,
/// so one of them represents all: time and memory are in proportion to the actions of plans that
/// differ, and to the number of ranks. What one plan shows by itself (races, lifetimes) is proven
/// by prove_memory.
void prove_ranks(const std::vector<const StepPlan*>& plans);

/// Proves the stages of a pipeline: all ranks of a stage run its plan. One plan: no pipeline.
void prove_stages(const std::vector<const StepPlan*>& stages);
void prove_stages(const std::vector<StepPlan>& stages);

}  // namespace ostrakon::plan
