// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/step_bound.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/plan/ir/pipeline_schedule.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/pipeline/stages.hpp>
#include <ostrakon/plan/stage_plans.hpp>

namespace ostrakon::tune {
namespace {

using namespace plan;
/// A model's units in the chunks of a pipeline.
using Division = std::vector<UnitRange>;

/// What compute waits for in the phases of a unit's forward or backward: exchanges that the next
/// phase reads, as if all were sent at the faster of two rates.
double waiting_seconds(const UnitDescription& unit, const Phases& phases, const Rates& rates) {
  std::int64_t bytes = 0;
  for (std::size_t p = 0; unit.expert_ranks > 1 && p + 1 < phases.size(); ++p) {
    const std::optional<Exchange>& sent = phases[p].then;
    if (!sent || sent->empty_if_even || sent->span.ranks < 2) continue;
    const std::vector<int>& reads = phases[p + 1].reads;
    if (std::find(reads.begin(), reads.end(), static_cast<int>(p)) == reads.end()) continue;
    bytes += sent->whole_bytes() / sent->span.ranks * (sent->span.ranks - 1);
  }
  return static_cast<double>(bytes) /
         std::max(rates.inside_node_bytes_per_second, rates.across_node_bytes_per_second);
}

/// Seconds that a chunk computes, or waits, for a micro-batch.
struct ChunkWork {
  double forward = 0.0;
  double first = 0.0;     // of backward: what waits for no other stage
  double backward = 0.0;  // then, without what may be deferred
  double deferred = 0.0;
};

std::vector<ChunkWork> work_of(const ModelDescription& model, const Division& division,
                               const Policy& policy, const Rates& rates) {
  std::vector<ChunkWork> work(division.size());
  std::vector<int> seen(static_cast<std::size_t>(policy.stages), 0);  // that could recompute
  const int units = static_cast<int>(model.units.size());
  const int every = policy.activation_checkpointing.every;
  for (std::size_t c = 0; c < division.size(); ++c)
    for (int u = division[c].first; u < division[c].end; ++u) {
      const UnitDescription& unit = model.units[u];
      const bool has_forward = u + 1 < units;  // the last has none in training
      if (has_forward)
        work[c].forward += flops(unit.forward) / rates.flops_per_second +
                           waiting_seconds(unit, unit.forward, rates);
      // Every n-th of a stage.
      const bool recomputes = every > 0 && has_forward && unit.recomputes &&
                              seen[c % static_cast<std::size_t>(policy.stages)]++ % every == 0;
      if (!has_backward(model, u)) continue;
      if (recomputes)
        (u + 1 == division[c].end ? work[c].first : work[c].backward) +=
            recompute_flops(unit.forward) / rates.flops_per_second;
      const UnitDescription plain = plan::at_once(unit);
      const double at_once = flops(plain.backward);
      if (unit.deferral.phases == 0 || policy.schedule != ScheduleKind::zero_bubble) {
        work[c].backward +=
            at_once / rates.flops_per_second + waiting_seconds(plain, plain.backward, rates);
        continue;
      }
      const double all = std::min(at_once, flops(unit.backward));
      double first = 0.0;
      for (int p = 0; p < unit.first_gradient_phase(); ++p) first += unit.backward[p].flops;
      work[c].backward += std::min(first, all) / rates.flops_per_second;
      work[c].deferred += (all - std::min(first, all)) / rates.flops_per_second;
    }
  return work;
}

/// How far a stage has come.
struct Progress {
  std::size_t next = 0;  // turn
  double begun = -1.0;   // when it began
  double worked = 0.0;   // what it had to compute since then, deferred phases too
  double ended = 0.0;    // its last forward or backward
};

}  // namespace

double least_step_seconds(const ModelDescription& model, const Policy& policy, int micro_batches,
                          const Rates& rates) {
  const Division division = make_chunks(model, policy);
  const std::vector<ChunkWork> work = work_of(model, division, policy, rates);
  const Pipeline pipeline =
      make_pipeline(policy.schedule, policy.stages, policy.chunks, first_backward(model, division),
                    leaf_sequence(micro_batches, LeafOrder::ascending), false);
  constexpr double never = -1.0;
  std::vector<std::vector<double>> forward(
      division.size(), std::vector<double>(static_cast<std::size_t>(micro_batches), never));
  std::vector<std::vector<double>> backward = forward;
  std::vector<Progress> stages(static_cast<std::size_t>(policy.stages));
  for (bool moves = true; moves;) {
    moves = false;
    for (int s = 0; s < policy.stages; ++s) {
      Progress& stage = stages[static_cast<std::size_t>(s)];
      const PipelineSchedule& turns = pipeline.turns[static_cast<std::size_t>(s)];
      for (; stage.next < turns.size(); ++stage.next, moves = true) {
        const Turn& turn = turns[stage.next];
        const auto chunk = static_cast<std::size_t>(pipeline.number(s, turn));
        const auto at = static_cast<std::size_t>(turn.micro_batch);
        // At the latest here, but it may have been where the stage waited.
        if (turn.pass == Pass::gradients) {
          stage.worked += work[chunk].deferred;
          continue;
        }
        const bool goes_forward = turn.pass == Pass::forward;
        const double arrives = goes_forward ? (chunk == 0 ? 0.0 : forward[chunk - 1][at])
                               : chunk + 1 < division.size() ? backward[chunk + 1][at]
                                                             : forward[chunk][at];
        if (arrives == never) break;
        const double first = goes_forward ? 0.0 : work[chunk].first;
        const double takes = goes_forward ? work[chunk].forward : work[chunk].backward;
        if (stage.begun < 0.0) stage.begun = arrives;
        const double begins = std::max(stage.ended, stage.begun + stage.worked);
        stage.ended = std::max(begins + first, arrives) + takes;
        stage.worked += first + takes;
        (goes_forward ? forward : backward)[chunk][at] = stage.ended;
      }
    }
  }
  double ends = 0.0;
  for (const Progress& stage : stages)
    ends = std::max({ends, stage.ended, std::max(stage.begun, 0.0) + stage.worked});
  return ends;
}

}  // namespace ostrakon::tune
