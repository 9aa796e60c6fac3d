// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/sum_order.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>

namespace ostrakon::plan {
namespace {

/// Chooses the cheapest accumulation that works without a grain.
Accumulation cheapest(const Policy& policy) {
  // Sums that wait on the host are copied there for each micro-batch: a part is cheaper than all.
  const bool shards =
      policy.sharding == Sharding::full || policy.sharding == Sharding::gradients ||
      (policy.sharding == Sharding::optimizer && offloads(policy.offload, Offload::optimizer));
  return shards ? Accumulation::shard_each : Accumulation::reduce_last;
}

}  // namespace

std::array<Axis, 3> sum_order(Accumulation accumulation) {
  static_assert(axes == 5, "say where the leaves of the new axis are summed, if it has any");
  switch (accumulation) {
    case Accumulation::reduce_each:
      return {Axis::shard, Axis::replicate, Axis::micro_batch};
    case Accumulation::shard_each:
      return {Axis::shard, Axis::micro_batch, Axis::replicate};
    default:
      return {Axis::micro_batch, Axis::shard, Axis::replicate};
  }
}

bool has_leaves(Axis axis) {
  for (Axis summed : sum_order(Accumulation::reduce_last))
    if (summed == axis) return true;
  return false;
}

std::vector<Span> sum_spans(const Grid& grid, Accumulation accumulation, int parts) {
  std::vector<Span> spans;
  for (Axis axis : sum_order(accumulation)) {
    Spans levels = grid.levels(axis);
    if (axis == Axis::shard) levels = without_first(levels, parts);
    for (const Span& span : levels) spans.push_back(span);
  }
  return spans;
}

int sharing_ranks(const Policy& policy) {
  return std::lcm(policy.context_ranks, policy.expert_ranks);
}

std::vector<Span> leaf_spans(const Grid& grid, Accumulation accumulation, int sharing) {
  std::vector<Span> spans = {{Axis::shard, sharing}};
  for (Axis axis : sum_order(accumulation))
    spans.push_back(axis == Axis::shard ? Span{axis, grid.shard() / sharing, sharing}
                                        : grid.span(axis));
  return spans;
}

std::int64_t leaves_apart(const Grid& grid, Accumulation accumulation, int sharing) {
  return accumulation == Accumulation::reduce_last && grid.micro_batches() > 1 ? sharing : 1;
}

std::vector<SpanSum> span_sums(const std::vector<Span>& spans, std::int64_t grain,
                               std::int64_t leaves, Summation summation) {
  const bool by_library = summation == Summation::library;
  std::vector<SpanSum> sums;
  for (const Span& span : spans) {
    SpanSum sum = {span, span.ranks};
    const bool over_ranks = span.axis != Axis::micro_batch;
    if (grain > 0 && leaves <= grain && !(by_library && over_ranks))
      sum.tree = static_cast<int>(std::min<std::int64_t>(span.ranks, grain / leaves));
    if (grain > 0 && leaves > grain && !over_ranks) {
      if (by_library || sums.empty())
        sum.tree = 1;
      else
        sum.continues = sums.back().continues = true;
    }
    sums.push_back(sum);
    leaves *= span.ranks;
  }
  return sums;
}

bool sums_as_one_rank(const std::vector<Span>& spans, std::int64_t grain) {
  std::int64_t leaves = 1;  // leaves of an item
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const bool is_last = s + 1 == spans.size();
    const std::int64_t items = spans[s].ranks;
    if (is_last) return true;
    if (grain > 0 && leaves * items > grain) {
      // Each span has whole trees, and only micro-batches may add to them.
      return s + 2 == spans.size() && spans[s + 1].axis == Axis::micro_batch &&
             items % (grain / leaves) == 0;
    }
    if (!is_power_of_two(items)) return false;
    leaves *= items;
  }
  return true;
}

Accumulation accumulation_of(const Policy& policy, const Grid& any_grid) {
  if (policy.accumulation != Accumulation::automatic) return policy.accumulation;
  Grid grid = any_grid;
  grid.node = 0;  // levels don't matter here
  const std::int64_t grain = sum_grain_of(policy);
  const bool rounds = policy.reduce != DType::fp32 && grid.shard() > 1;
  const bool keeps_bits = !rounds && policy.summation == Summation::ordered;
  const Accumulation cheap = cheapest(policy);
  const bool is_apart = leaves_apart(grid, cheap, sharing_ranks(policy)) > 1;
  const Accumulation first = is_apart && keeps_bits ? Accumulation::shard_each : cheap;
  if (grain > 0 && keeps_bits)
    for (Accumulation one : {first, Accumulation::shard_each, Accumulation::reduce_each})
      if (sums_as_one_rank(sum_spans(grid, one), grain)) return one;
  return first;
}

void require_order(const Policy& policy, const Grid& grid) {
  const int experts = policy.expert_ranks, tensor = std::max(policy.tensor_ranks, 1);
  if (experts > 1) {
    const std::string key = text("parallel.expert = ", experts * tensor);
    require(is_power_of_two(experts), key,
            ": expected a power of two, with which sums keep their bits");
    require(grid.shard() % experts == 0, key, " does not divide the ", grid.shard() * tensor,
            " ranks of a shard group");
    const std::int64_t grain = sum_grain_of(policy);
    require(
        grain == 0 || grain >= experts, "training.sum_grain = ", policy.sum_grain, " is less than ",
        tensor > 1 ? "parallel.expert / parallel.tensor" : "parallel.expert", " = ", experts,
        ", the leaves whose gradients are summed by one tree; expected as much ", "or more, or 0");
  }
  const int sharing = policy.context_ranks;
  require(sharing >= 1 && grid.shard() % sharing == 0, "parallel.context = ", sharing,
          " does not divide the ", grid.shard(), " ranks of a shard group");
}

std::string describe_sums(const StepPlan& plan) {
  if (plan.layouts.summation == Summation::library && !plan.sums_in_one_order())
    return "equal to 1 rank up to rounding, as the library adds ranks in an order of its own "
           "(parallel.reduction = library)";
  if (plan.layouts.splits_ties)
    return "equal to 1 rank up to rounding, as units of two stages share tied weights; bitwise "
           "equal with training.leaf = sequence";
  if (plan.leaves_apart() > 1)
    return "equal to 1 rank up to rounding, as ranks that share sequences or experts each sum "
           "their micro-batches first (parallel.accumulation = reduce_last)";
  if (!plan.sums_in_one_order()) return "equal to 1 rank up to rounding";
  const int ranks = plan.ranks_of_sample();
  const std::string equal =
      ranks == 1 ? "bitwise equal to 1 rank"
                 : text("bitwise equal to ", ranks, " ranks, which share each sequence");
  const int tensor = plan.grid.tensor();
  if (tensor > plan.layouts.tensor_grain && !is_power_of_two(tensor))
    return "equal to 1 rank up to rounding";
  return tensor <= plan.layouts.tensor_grain
             ? equal
             : text(equal, ranks == 1 ? "" : ",", " with model.tensor_grain = ", tensor);
}

std::string describe_cut_products(const StepPlan& plan) {
  return plan.layouts.cuts_16bit_products
             ? "16-bit products of fewer rows (parallel.tensor_chunks, or parallel.context with "
               "tensor pieces) may have other bits"
             : "";
}

std::int64_t sum_grain_of(const Policy& policy) {
  return policy.sum_grain < policy.leaves ? policy.sum_grain : 0;
}

std::string describe_grain(std::int64_t grain) {
  if (grain == 0) return "";
  return grain == 1 ? "one leaf after the other"
                    : text("trees over ", grain, " leaves, accumulated in order");
}

std::string why_grain_differs(const Grid& grid, Accumulation accumulation, std::int64_t grain) {
  const std::vector<Span> spans = sum_spans(grid, accumulation);
  if (sums_as_one_rank(spans, grain) || !sums_as_one_rank(spans, 0)) return "";
  std::string why = text("training.sum_grain = ", grain, ": ");
  std::int64_t leaves = 1;
  for (const Span& span : spans) {
    if (leaves > grain && span.axis != Axis::micro_batch) {
      why += text(span.axis == Axis::shard ? "ranks of a shard group" : "replicas", " add sums of ",
                  leaves, " leaves each by a tree, not in order");
      break;
    }
    leaves *= span.ranks;
  }
  for (Accumulation other : {Accumulation::shard_each, Accumulation::reduce_each})
    if (sums_as_one_rank(sum_spans(grid, other), grain))
      return why + text("; parallel.accumulation = ", name(other), " sums as one rank does");
  return why;
}

std::string why_grain_differs(const StepPlan& plan) {
  const Layouts& layouts = plan.layouts;
  if (layouts.summation == Summation::library || plan.leaves_apart() > 1) return "";
  return why_grain_differs(plan.grid, layouts.accumulation, layouts.sum_grain);
}

}  // namespace ostrakon::plan
