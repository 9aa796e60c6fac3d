// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/ir/axes.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

struct StepPlan;

// This file defines the order in which gradients are summed over the leaves of a global batch. One
// rank that has all leaves sums them as reduction_tree.hpp says: `grain` leaves at a time by a
// tree, and the trees' sums one after the other. Ranks that share the leaves sum over one span
// after the other, each a span of ranks or of micro-batches; sums_as_one_rank says whether the
// additions are the same. Ranks that share samples or experts have neighbouring leaves. Where each
// of them sums its micro-batches before it sums over ranks, these leaves are summed apart, and the
// additions are others. Each addend of a gradient (parameter_uses.hpp) is summed in this order,
// then the addends are added.

/// The axes over which the gradients of leaves are summed, one after the other. Tensor ranks and
/// pipeline stages are not among them: they work on the same leaves, each for its own parameters.
/// Accumulation::automatic is not allowed.
std::array<Axis, 3> sum_order(Accumulation accumulation);

/// Whether items along an axis have leaves of their own.
bool has_leaves(Axis axis);

/// Returns the order as spans of more than one item, inner to outer. `parts`:
/// UnitDescription::expert_ranks, over whose ranks backward has summed.
std::vector<Span> sum_spans(const Grid& grid, Accumulation accumulation, int parts = 1);

/// Returns how many neighbours along shard share samples or experts: Policy::context_ranks and
/// expert_ranks, or a multiple of both.
int sharing_ranks(const Policy& policy);

/// Returns how leaves are numbered, as spans of which neighbouring leaves belong to neighbouring
/// items of the first: ranks that share samples or experts, then as gradients are summed, so that
/// sums are nodes of one tree where this can be. `sharing`: sharing_ranks().
std::vector<Span> leaf_spans(const Grid& grid, Accumulation accumulation, int sharing);

/// Returns how many neighbouring leaves are summed last, since the ranks that have them sum several
/// micro-batches first; 1: none. A micro-batch of a rank then counts as that many leaves of a tree
/// over `grain` leaves.
std::int64_t leaves_apart(const Grid& grid, Accumulation accumulation, int sharing);

/// How gradients are summed over one of these spans.
struct SpanSum {
  Span span;
  /// The number of neighbouring items that are summed by one tree; the trees' sums are accumulated
  /// in order. One tree sums all items if it is the size of the span.
  int tree = 1;
  /// Whether the collective over this span adds a micro-batch's trees, one by one, to the sum over
  /// the micro-batches before it, as ranks have more leaves than one tree may sum. Set for the span
  /// of that collective and for the span of micro-batches, for which nothing is left to add.
  bool continues = false;
};

/// Returns how each span is summed. A tree is over as many items as `grain` leaves allow; 0: over
/// all. Ranks that come after more leaves than that, and can't add theirs in order, are summed by
/// one tree. `leaves`: number of leaves that each addend counts as: those that it has summed
/// already, or leaves_apart(). With
/// Summation::library the ranks of a span are summed at once, in an unknown order, and only a
/// rank's micro-batches are added as the grain says.
std::vector<SpanSum> span_sums(const std::vector<Span>& spans, std::int64_t grain,
                               std::int64_t leaves = 1, Summation summation = Summation::ordered);

/// Whether sums over `spans`, by which leaves are numbered (leaves_apart() is 1), are the same
/// additions as on one rank that has all leaves. `grain`: 0 or a power of two.
bool sums_as_one_rank(const std::vector<Span>& spans, std::int64_t grain);

/// Returns policy.accumulation, with `automatic` resolved: shard_each where gradients are sharded,
/// or where the optimizer state is sharded and offloaded; else reduce_last. Where ranks share
/// samples or experts, it is shard_each also unless gradients are rounded to be sent or a library
/// sums, so that no layout changes a bit. If a grain is set with which this does not sum as one
/// rank does, `automatic` is the first of shard_each and reduce_each that does, unless gradients
/// are rounded to be sent or a library sums.
Accumulation accumulation_of(const Policy& policy, const Grid& grid);

/// Throws Error where ranks that share samples or experts are not neighbours in a shard group.
void require_order(const Policy& policy, const Grid& grid);

/// Returns "bitwise equal to 1 rank", or to how many ranks, or that sums are equal only up to
/// rounding.
std::string describe_sums(const StepPlan& plan);
/// Returns what may make bits differ besides sums: 16-bit products that are cut by rows, where a
/// library multiplies them. "" where nothing does.
std::string describe_cut_products(const StepPlan& plan);

/// Returns policy.sum_grain, or 0 where one tree is over all leaves.
std::int64_t sum_grain_of(const Policy& policy);

/// Returns "trees over 8 leaves, accumulated in order"; "" where one tree is over all leaves.
std::string describe_grain(std::int64_t grain);

/// Returns why sums over leaves differ from one rank's, and what to set, if the grain makes them
/// differ; else "".
std::string why_grain_differs(const Grid& grid, Accumulation accumulation, std::int64_t grain);
/// Returns the same text for a plan; "" also where a library sums, as its sums differ with any
/// grain.
std::string why_grain_differs(const StepPlan& plan);

}  // namespace ostrakon::plan
