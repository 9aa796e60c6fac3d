// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/description.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/parameter_uses.hpp>
#include <ostrakon/plan/policy.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <vector>

namespace ostrakon::plan {

/// A plan whose persistent buffers are those of all plans of a run, and which takes little time to
/// make.
StepPlan plan_of_state(const ModelDescription& model, int ranks, const Policy& policy);

/// What is known of a candidate before a step of it is planned. `plan` is any of its policy, but to
/// decode. Keeps references to all three.
class Bounds {
 public:
  Bounds(const ModelDescription& model, const Policy& policy, const StepPlan& plan);

  /// Counts the operations of a rank's step, but for updates; in a pipeline, the least. The last
  /// unit has no forward.
  double flops() const;

  /// Sums waiting_seconds of units in parts over a rank's step.
  double waiting_seconds(const Rates& rates) const;

  /// Lower bound of bytes copied: what is gathered, summed gradients, updates, activations.
  std::int64_t copied_bytes() const;

  /// A plan of collectives that are in every step, each as one over all that it is about in the
  /// step: no more is sent in them than in the step.
  StepPlan collectives() const;

  /// Lower bound of bytes_on_host(): of updates.
  std::int64_t bytes_on_host() const;

  /// Lower bounds of what sums over micro-batches take besides, where they are on the host: bytes
  /// copied to it, and bytes_on_host().
  std::int64_t copied_sum_bytes() const;
  std::int64_t summed_bytes_on_host() const;

  /// Live bytes of device memory, besides persistent ones, at one backward or another of the last
  /// micro-batch, or while matrices are updated.
  std::int64_t transient_bytes() const;

  /// Counts, for a stage that has some of the units, in chunks, live bytes of device memory, with
  /// persistent ones, at one backward or another. `in_flight`: of how many micro-batches it keeps
  /// what forward left, when their first backward begins.
  std::int64_t stage_bytes(const std::vector<UnitRange>& chunks, std::int64_t in_flight) const;
  /// Persistent bytes of device memory, at least, of all units.
  std::int64_t persistent_bytes() const;

 private:
  const UnitDescription& unit(int index) const { return model_.units[index]; }
  const Layouts& layouts_of(int u) const { return plan_.units[u].layouts; }
  bool parameters_are_on_host() const;
  std::int64_t persistent_bytes(int u) const;
  /// Bytes of a unit's gradients of a micro-batch, as they are summed over micro-batches.
  std::int64_t addend_bytes(int u) const { return completed(u, summed_spans(u)); }
  /// Whether a rank's micro-batches are summed by trees, not one after the other.
  bool folds(int u) const;
  /// In a step, where a unit's parameters are gathered at all.
  std::int64_t gathers_at_least(int u) const;
  int prefetch_depth() const;
  std::int64_t gathered(int u) const;
  std::int64_t gathered_for_backward(int u) const;
  std::int64_t tied_bytes(int u) const;
  /// Whether all units' parameters stay from forward to backward.
  bool stays_gathered() const;
  /// Whether those of the unit before are always gathered while one computes backward.
  bool prefetches() const;
  /// Gradients of units after `u` that are reduced, or copied, while it computes.
  std::int64_t in_flight(int u) const;
  std::int64_t gradients(int u, const Spans& divided) const;
  /// Those that the backward of `u` completes for a leaf: its own, and those of the unit that it is
  /// tied to where they are an addend of their own.
  std::int64_t completed(int u, const Spans& divided) const;
  /// Bytes of completed gradients that wait for others, where they are updated.
  std::int64_t summed(int u, const Spans& divided) const;
  /// What sums of a unit over some of a rank's micro-batches are divided over.
  Spans summed_spans(int u) const;
  bool is_in_each_micro_batch(Axis axis) const;
  /// How many sums over earlier micro-batches wait for the last one: the siblings of all nodes from
  /// its leaf to the root. Where it is not known which is the last, no more than there are.
  std::int64_t sums_before(int u) const;
  /// The bytes for another micro-batch, by its place in the order in which a rank has them.
  std::int64_t sums_before(int u, std::int64_t micro_batch) const;
  std::int64_t siblings(int u, std::int64_t micro_batch) const;
  std::int64_t input_bytes(int u) const { return u > 0 ? unit(u - 1).output_bytes : 0; }
  /// In a pipeline every n-th unit of each stage is.
  bool may_be_checkpointed(int u) const;
  /// Bytes of what forward leaves for backward of `u`, wherever it waits.
  std::int64_t bytes_away(int u) const;

  const ModelDescription& model_;
  const Policy& policy_;
  const StepPlan& plan_;
  const int units_;
  const int first_trained_;
  const std::vector<bool> checkpointed_;
  std::vector<std::vector<ParameterUse>> uses_;  // of each unit
  std::vector<bool> waits_on_host_;              // of each unit: what its backward reads
  bool continues_ = false;  // whether gradients are added to those before, one after the other
  int tree_ = 0;            // SpanSum::tree over micro-batches
  int reach_ = 0;           // most units that are gathered ahead
};

/// The least arena of a run, as least_arena_bytes of fit.hpp; `memory` is that of the plan of
/// `bounds`.
std::int64_t least_arena_bytes(const Bounds& bounds, const MemoryPlan& memory);

}  // namespace ostrakon::plan
