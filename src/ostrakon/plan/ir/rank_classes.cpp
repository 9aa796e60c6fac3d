// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/ir/rank_classes.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <set>
#include <stdexcept>
#include <utility>

namespace ostrakon::plan {
namespace {

const StepPlan& first_of(const std::vector<const StepPlan*>& plans) {
  if (plans.empty()) throw std::logic_error("no rank has a plan");
  return *plans.front();
}

}  // namespace

RankClasses::RankClasses(const std::vector<const StepPlan*>& plans)
    : plans_(plans), grid_(first_of(plans).grid) {
  check();
  find_spans();
  std::map<const StepPlan*, int> of_plan;
  for (const StepPlan* plan : plans_)
    class_.push_back(of_plan.emplace(plan, static_cast<int>(of_plan.size())).first->second);
  if (of_plan.size() > 1) refine();  // otherwise all partners are of the one class
  for (int rank = 0; rank < grid_.ranks(); ++rank)
    if (class_[rank] == count()) ranks_.push_back(rank);
}

void RankClasses::check() const {
  if (static_cast<int>(plans_.size()) != grid_.ranks())
    throw std::logic_error(text("there are plans of ", plans_.size(), " ranks of ", grid_.ranks()));
  for (int rank = 0; rank < grid_.ranks(); ++rank) {
    const StepPlan& plan = *plans_[rank];
    if (plan.grid.sizes != grid_.sizes || plan.grid.shard_first != grid_.shard_first ||
        plan.grid.node != grid_.node)
      throw std::logic_error(text("the plan of rank ", rank, " is for other axes than rank 0's"));
    if (plan.stage != grid_.coordinate(rank, Axis::pipeline))
      throw std::logic_error(text("rank ", rank, " is of stage ",
                                  grid_.coordinate(rank, Axis::pipeline),
                                  ", its plan is that of stage ", plan.stage));
  }
}

void RankClasses::find_spans() {
  std::set<const StepPlan*> seen;
  for (const StepPlan* plan : plans_) {
    if (!seen.insert(plan).second) continue;
    for (const Action& action : plan->actions) {
      const Span& span = action.span;
      if (span.ranks == 1 || std::find(spans_.begin(), spans_.end(), span) != spans_.end())
        continue;
      if (span.axis == Axis::micro_batch || span.ranks < 1 || span.stride < 1 ||
          grid_.size(span.axis) % (std::int64_t{span.ranks} * span.stride) != 0)
        throw std::logic_error(text(plan->describe(action), " is over ", span.ranks,
                                    " ranks, which do not divide the ", grid_.size(span.axis),
                                    " along ", name(span.axis)));
      spans_.push_back(span);
    }
  }
}

int RankClasses::peer_rank(int rank, int stage) const {
  return rank + (stage - grid_.coordinate(rank, Axis::pipeline)) * grid_.stride(Axis::pipeline);
}

std::vector<int> RankClasses::classes_of_group(int rank, const Span& span) const {
  std::set<int> found;
  const int stride = grid_.stride(span), first = rank - grid_.coordinate(rank, span) * stride;
  for (int place = 0; place < span.ranks; ++place) found.insert(class_[first + place * stride]);
  return {found.begin(), found.end()};
}

/// Divides classes by the classes of their ranks' partners, until all ranks of a class have the
/// same. Afterwards classes are numbered by their lowest ranks.
void RankClasses::refine() {
  std::map<const StepPlan*, std::set<int>> peers;  // stages that a plan communicates with
  for (const StepPlan* plan : plans_) {
    const auto [found, is_new] = peers.try_emplace(plan);
    if (!is_new) continue;
    for (const Action& action : plan->actions)
      if (action.peer >= 0 && action.peer < grid_.stages()) found->second.insert(action.peer);
  }
  for (int before = -1, now = 0; now != before;) {
    std::vector<std::vector<int>> facts(class_.size());
    for (std::size_t r = 0; r < class_.size(); ++r) {
      facts[r] = {class_[r]};
      for (int stage : peers[plans_[r]])
        facts[r].push_back(class_[peer_rank(static_cast<int>(r), stage)]);
    }
    for (const Span& span : spans_) {
      std::map<std::vector<int>, int> sorts;  // groups by the classes of their ranks
      for (int rank = 0; rank < grid_.ranks(); ++rank) {
        const int first = rank - grid_.coordinate(rank, span) * grid_.stride(span);
        facts[rank].push_back(
            first < rank ? facts[first].back()
                         : sorts.emplace(classes_of_group(rank, span), sorts.size()).first->second);
      }
    }
    std::map<std::vector<int>, int> numbers;
    for (std::size_t r = 0; r < class_.size(); ++r)
      class_[r] = numbers.emplace(facts[r], static_cast<int>(numbers.size())).first->second;
    before = std::exchange(now, static_cast<int>(numbers.size()));
  }
}

std::vector<int> RankClasses::group(int of_class, const Span& span) const {
  return classes_of_group(ranks_[of_class], span);
}

int RankClasses::peer(int of_class, int stage) const {
  return class_[peer_rank(ranks_[of_class], stage)];
}

std::string RankClasses::describe(int of_class) const {
  const int rank = ranks_[of_class];
  if (grid_.stages() == 1) return text("rank ", rank);
  const bool are_alike = std::count_if(ranks_.begin(), ranks_.end(), [&](int other) {
                           return plans_[other]->stage == plans_[rank]->stage;
                         }) == 1;
  return text("stage ", plans_[rank]->stage) + (are_alike ? "" : text(" (rank ", rank, ")"));
}

}  // namespace ostrakon::plan
