// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/sums_check.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/proof/communication_check.hpp>

namespace ostrakon::plan {
namespace {

constexpr unsigned own_use = 1, tied_use = 2;

/// The bit of the gradients that a backward writes in a role; 0: none.
unsigned use_bit(Role role) {
  return role == Role::parameter_gradients ? own_use : role == Role::tied_gradients ? tied_use : 0;
}

/// Returns the use in `role` of a reduction, an accumulation or a copy.
const Use& use_in(const Action& action, Role role) {
  return *std::find_if(action.uses.begin(), action.uses.end(),
                       [&](const Use& use) { return use.role == role; });
}

}  // namespace

SumsCheck::SumsCheck(const StepPlan& plan)
    : plan_(plan), uses_(plan.units.size(), 0), sums_(plan.buffers.size()) {
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) spans_.push_back(plan.span_sums(u));
  for (const Action& action : plan.actions)
    if (action.kind == Kind::backward)
      for (const Use& use : action.uses)
        if (const int unit = plan.owner(plan.buffers[use.buffer]); unit >= 0)
          uses_[unit] |= use_bit(use.role);
  // Gradients of the other stage that uses the parameters come with a message.
  for (std::size_t u = 0; u < uses_.size(); ++u)
    if (plan.units[u].tied_stages.replica_has_gradient) uses_[u] |= tied_use;
}

std::string SumsCheck::wrong(const Action& action) {
  if (is_copy(action.kind)) sums_[action.buffer(Role::target)] = sums_[action.buffer(Role::source)];
  switch (action.kind) {
    case Kind::backward:
      return wrong_backward(action);
    case Kind::reduce_scatter:
      return wrong_reduce_scatter(action);
    case Kind::accumulate:
      return wrong_accumulate(action);
    case Kind::norm:
      return wrong_norm(action);
    case Kind::send:
      return action.buffer(Role::gradient_shard) < 0 ? "" : wrong_norm(action);
    case Kind::receive:
      if (const int buffer = action.buffer(Role::gradient_shard); buffer >= 0)
        sums_[buffer] = {
            action.unit, tied_use, {0, plan_.grid.micro_batches()}, spans_[action.unit].size()};
      return "";
    default:
      return "";
  }
}

/// Sets the sum of a buffer. A sum over all of a rank's micro-batches is complete over that span.
void SumsCheck::set(int buffer, Sum sum) {
  const std::vector<SpanSum>& spans = spans_[sum.unit];
  if (sum.spans < spans.size() && spans[sum.spans].span.axis == Axis::micro_batch &&
      sum.micro_batches.leaves == plan_.grid.micro_batches())
    ++sum.spans;
  sums_[buffer] = sum;
}

/// Checks a backward: its first phase that writes gradients begins a leaf's sum, or adds to what
/// `adds_to` says: gradients of a tied unit, or a partial sum.
std::string SumsCheck::wrong_backward(const Action& action) {
  const int phase = std::max(action.phase, 0);
  const int first = plan_.units[static_cast<std::size_t>(action.unit)].first_gradient_phase;
  if (phase > first) return "";
  if (plan_.is_again(action)) return begin_again(action);
  if (action.micro_batch < 0 || action.micro_batch >= plan_.grid.micro_batches())
    return "of a micro-batch that is not there";
  for (const Use& use : action.uses) {
    const unsigned by = use_bit(use.role);
    const int unit = plan_.owner(plan_.buffers[use.buffer]);
    if (by == 0 || unit < 0) continue;
    if (phase < first) return "has gradients of parameters, which its unit defers";
    const bool adds = by == own_use && action.adds_gradients();
    if (adds != (use.access == Access::read_write))
      return text(adds ? "adds to '" : "overwrites '", plan_.buffers[use.buffer].name,
                  adds ? "', which it begins" : "', to which it adds");
    Sum leaf{unit, by, {action.micro_batch, 1}, 0};
    if (adds && !join(leaf, sums_[use.buffer], action.adds_to))
      return text(
          "adds to '", plan_.buffers[use.buffer].name,
          "', which has neither the tied gradients of this leaf nor the sum that these come "
          "to next");
    set(use.buffer, leaf);
  }
  return "";
}

/// Adds what a buffer has to a leaf that backward adds to it. Returns whether that is the next
/// addition: of the tied gradients of the leaf, or of the sibling in the tree over micro-batches
/// where backward adds finished gradients.
bool SumsCheck::join(Sum& leaf, const Sum& before, AddsTo to) const {
  if (before.unit != leaf.unit) return false;
  if (to == AddsTo::tied_gradients) {
    leaf.uses |= before.uses;
    return before.uses == tied_use && before.micro_batches == leaf.micro_batches;
  }
  const std::vector<SpanSum>& spans = spans_[leaf.unit];
  if (!plan_.units[leaf.unit].can_add_gradients || before.uses != leaf.uses ||
      leaf.uses != uses_[leaf.unit] || before.spans != 0 || spans.empty() ||
      spans.front().span.axis != Axis::micro_batch || spans.front().continues)
    return false;
  const auto [parent, sibling] =
      parent_and_sibling(leaf.micro_batches, plan_.grid.micro_batches(), spans.front().tree);
  leaf.micro_batches = parent;
  return before.micro_batches == sibling;
}

/// Notes that gradients of a leaf that is computed again are no sum: nothing may reduce them.
std::string SumsCheck::begin_again(const Action& action) {
  for (const Use& use : action.uses)
    if (use_bit(use.role) != 0) sums_[use.buffer] = Sum();
  return "";
}

std::string SumsCheck::wrong_reduce_scatter(const Action& action) {
  const std::vector<SpanSum>& spans = spans_[action.unit];
  Spans before = plan_.units[action.unit].layouts.gathered.divided;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const Span& span = spans[s].span;
    if (span == action.span) {
      if (plan_.buffers[action.buffer(Role::parameter_gradients)].divided != before)
        return of_collective(action, "the spans before it are not summed, or not these alone");
      return wrong_sum(action, s);
    }
    if (span.axis != Axis::micro_batch) before.push(span);
  }
  return of_collective(action, "the order of sums has no such span");
}

std::string SumsCheck::wrong_sum(const Action& action, std::size_t span) {
  const SpanSum& over = spans_[action.unit][span];
  const int tree = over.tree < over.span.ranks ? over.tree : 0;
  const auto trees = [](int of) {
    return of > 0 ? text("trees over ", of, " ranks") : std::string("one tree over all ranks");
  };
  if (action.tree != tree)
    return of_collective(action, text("sums by ", trees(action.tree), ", expected ", trees(tree)));
  const Use& part = use_in(action, Role::gradient_shard);
  Sum sum = sums_[action.buffer(Role::parameter_gradients)];
  if (sum.unit != action.unit || sum.spans != span)
    return of_collective(action, "what it sums is not summed over the spans before it");
  const TreeNode of_this = sum.micro_batches;
  const bool continues = over.continues && of_this.begin > 0;
  if ((part.access == Access::read_write) != continues)
    return of_collective(action, continues ? "drops the sum over the micro-batches before"
                                           : "adds to a sum that has not begun");
  ++sum.spans;
  if (continues) {
    const Sum& so_far = sums_[part.buffer];
    sum.micro_batches = {0, of_this.begin + of_this.leaves};
    if (so_far.unit != sum.unit || so_far.uses != sum.uses || so_far.spans != sum.spans ||
        !(so_far.micro_batches == TreeNode{0, of_this.begin}))
      return of_collective(action, "adds to another sum than that over the micro-batches before");
  }
  set(part.buffer, sum);
  return "";
}

/// Checks a sum of two nodes of the tree over micro-batches, or of sums over all leaves of two
/// uses.
std::string SumsCheck::wrong_accumulate(const Action& action) {
  const int source = action.buffer(Role::source), target = action.buffer(Role::parameter_gradients);
  if (source < 0 || target < 0) return "without buffers";
  const Sum& more = sums_[source];
  Sum sum = sums_[target];
  const auto refusal = [&](const char* why) {
    return text("adds '", plan_.buffers[source].name, "' to '", plan_.buffers[target].name,
                "': ", why);
  };
  if (sum.unit != action.unit || more.unit != action.unit)
    return refusal("they are not both gradients of this unit");
  if (sum.spans != more.spans) return refusal("they are not summed over the same");
  const std::vector<SpanSum>& spans = spans_[action.unit];
  if (sum.spans == spans.size()) {
    if ((sum.uses & more.uses) != 0)
      return refusal("gradients of a use of the parameters are in both");
    sum.uses |= more.uses;
  } else {
    if (sum.uses != more.uses) return refusal("sums of two uses before all leaves are in them");
    const SpanSum& over = spans[sum.spans];
    if (over.span.axis != Axis::micro_batch || over.continues)
      return refusal("the order of sums has no such addition");
    const auto [parent, sibling] =
        parent_and_sibling(more.micro_batches, plan_.grid.micro_batches(), over.tree);
    if (!(sum.micro_batches == sibling))
      return refusal("they are no siblings in the tree over micro-batches");
    sum.micro_batches = parent;
  }
  set(target, sum);
  return "";
}

std::string SumsCheck::wrong_norm(const Action& action) const {
  const int buffer = action.buffer(Role::gradient_shard);
  const auto refusal = [&](const char* why) {
    return text("of '", plan_.buffers[buffer].name, "', ", why);
  };
  if (buffer < 0) return "without buffers";
  const Sum& sum = sums_[buffer];
  if (sum.unit != action.unit) return refusal("which has not this unit's gradients");
  if (sum.spans != spans_[action.unit].size())
    return refusal("which is not summed over all leaves");
  if (sum.uses != uses_[sum.unit]) return refusal("in which a use of the parameters is missing");
  return "";
}

}  // namespace ostrakon::plan
