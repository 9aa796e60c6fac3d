// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <ostrakon/plan/axes.hpp>
#include <ostrakon/plan/policy.hpp>
#include <string>
#include <vector>

namespace ostrakon::plan {

struct StepPlan;

// In which order gradients are summed over the leaves of a global batch. One rank that has all
// leaves sums them as reduction_tree.hpp says: `grain` leaves at a time by a tree, and the trees'
// sums one after the other. Ranks that share the leaves sum over one span after the other, ranks or
// micro-batches; sums_as_one_rank says where these are the same additions. Addends of a gradient
// (parameter_uses.hpp) are summed so each, and then added.

/// The axes over which leaves' gradients are summed, one after the other. Tensor ranks and stages
/// of a pipeline work on the same leaves, each for its own parameters. Not of `automatic`.
std::array<Axis, 3> sum_order(Accumulation accumulation);

/// Whether items along an axis have leaves of their own.
bool has_leaves(Axis axis);

/// Returns the order as spans of more than one item, inner to outer: neighbouring leaves belong to
/// neighbouring items of the first. `parts`: UnitDescription::parts, over whose ranks backward has
/// summed.
std::vector<Span> sum_spans(const Grid& grid, Accumulation accumulation, int parts = 1);

/// How gradients are summed over one of these spans.
struct SpanSum {
  Span span;
  /// The number of neighbouring items that are summed by one tree; the trees' sums are accumulated
  /// in order. As many as the span has: one tree.
  int tree = 1;
  /// Ranks before the micro-batches sum more leaves than a tree may be over. So the collective over
  /// the last of them adds a micro-batch's trees, one by one, to the sum over the micro-batches
  /// before it. Set for the span of this collective, and for the micro-batches, for which nothing
  /// is left to add.
  bool continues = false;
};

/// A tree is over as many items as `grain` leaves allow; 0: over all. Ranks that come after more
/// leaves than that, and can't add theirs in order, are summed by one tree. `leaves` are in what is
/// summed, already. A library sums all ranks of a span at once, in no order that is known; then
/// only a rank's micro-batches are added as the grain says.
std::vector<SpanSum> span_sums(const std::vector<Span>& spans, std::int64_t grain,
                               std::int64_t leaves = 1, Summation summation = Summation::ordered);

/// Whether these are the additions of one rank that has all leaves. `grain`: 0 or a power of two.
bool sums_as_one_rank(const std::vector<Span>& spans, std::int64_t grain);

/// policy.accumulation, or what `automatic` stands for. That is shard_each where gradients are
/// sharded, or optimizer state is and waits on the host, or ranks share samples; else reduce_last.
/// With a grain with which this does not sum as one rank does, it is shard_each or reduce_each, the
/// first that does, if one does, no gradient is rounded to be sent and no library sums.
Accumulation accumulation_of(const Policy& policy, const Grid& grid);

/// Throws Error where ranks that share samples are no neighbours in a shard group, or where sums
/// over them would not come first.
void require_order(const Policy& policy, const Grid& grid);

/// "bitwise equal to 1 rank", or to how many, or only up to rounding.
std::string describe_sums(const StepPlan& plan);
/// What may make bits differ besides sums: 16-bit products that are cut by rows, where a library
/// multiplies them. Empty: nothing.
std::string describe_cut_products(const StepPlan& plan);

/// policy.sum_grain, or 0 where one tree is over all leaves.
std::int64_t sum_grain_of(const Policy& policy);

/// "trees over 8 leaves, accumulated in order"; "" where one tree is over all leaves.
std::string describe_grain(std::int64_t grain);

/// Why sums over leaves differ from one rank's, and what to set, if it is the grain that makes them
/// differ; else "".
std::string why_grain_differs(const Grid& grid, Accumulation accumulation, std::int64_t grain);
/// Says so of a plan; "" also where a library sums, with which sums differ whatever the grain.
std::string why_grain_differs(const StepPlan& plan);

}  // namespace ostrakon::plan
