// SPDX-License-Identifier: Apache-2.0
#pragma once

// What happens when ranks run their plans together, found the slow way: each rank by itself, one
// action after the other by chance. Shares nothing with plan/ir/rank_classes and the proof.

#include <array>
#include <deque>
#include <map>
#include <utility>

#include "plan/random_plans.hpp"

namespace ostrakon::tests {

/// Plans, and which of them each rank runs.
struct RankPlans {
  std::vector<StepPlan> plans;
  std::vector<std::size_t> plan_of_rank;

  std::vector<const StepPlan*> pointers() const {
    std::vector<const StepPlan*> pointers;
    for (std::size_t p : plan_of_rank) pointers.push_back(&plans[p]);
    return pointers;
  }
  /// Gives a rank a copy of its plan, to be changed.
  StepPlan& own_plan(std::size_t rank) {
    plans.push_back(plans[plan_of_rank[rank]]);
    plan_of_rank[rank] = plans.size() - 1;
    return plans.back();
  }
};

inline RankPlans all_ranks(std::vector<StepPlan> stages) {
  RankPlans all;
  for (std::size_t s = 0; s < stages.size(); ++s)
    all.plan_of_rank.insert(all.plan_of_rank.end(),
                            static_cast<std::size_t>(stages[s].grid.ranks_of_stage()), s);
  all.plans = std::move(stages);
  return all;
}

/// How sends end: when they are received, or at once.
enum class Sending { rendezvous, buffered };

/// Runs all ranks in one order that streams and waits allow. Returns what came of it: "" where all
/// actions have run, "mismatch" where different things met, "stuck" where nobody could go on.
class RankOracle {
 public:
  RankOracle(const RankPlans& ranks, Sending sending, Random& random)
      : plans_(ranks.pointers()), sending_(sending), random_(random) {
    for (const StepPlan* plan : plans_) {
      queues_.emplace_back();
      for (std::size_t a = 0; a < plan->actions.size(); ++a)
        queues_.back()[static_cast<std::size_t>(plan->actions[a].stream)].push_back(a);
      done_.emplace_back(plan->actions.size(), false);
    }
  }

  std::string run() {
    std::vector<std::pair<std::size_t, std::size_t>> heads;
    for (std::size_t r = 0; r < plans_.size(); ++r)
      for (std::size_t s = 0; s < streams; ++s) heads.emplace_back(r, s);
    for (bool moves = true; moves;) {
      moves = false;
      std::shuffle(heads.begin(), heads.end(), random_);
      for (const auto& [rank, stream] : heads) {
        if (!is_ready(rank, stream)) continue;
        moves = try_to_run(rank, stream) || moves;
        if (mismatch_) return "mismatch";
      }
    }
    for (const auto& queues : queues_)
      for (const auto& queue : queues)
        if (!queue.empty()) return "stuck";
    return left_on_the_way() ? "mismatch" : "";
  }

 private:
  using Message = std::array<std::int64_t, 4>;

  const Action& head(std::size_t rank, std::size_t stream) const {
    return plans_[rank]->actions[queues_[rank][stream].front()];
  }
  bool is_ready(std::size_t rank, std::size_t stream) const {
    if (queues_[rank][stream].empty()) return false;
    const auto& waits = head(rank, stream).waits;
    return std::all_of(waits.begin(), waits.end(),
                       [&](int wait) { return done_[rank][static_cast<std::size_t>(wait)]; });
  }
  void finish(std::size_t rank, std::size_t stream) {
    done_[rank][queues_[rank][stream].front()] = true;
    queues_[rank][stream].pop_front();
  }
  static Message content(const Action& action) {
    return {action.micro_batch, action.elements, action.element_bytes,
            action.buffer(Role::gradient) >= 0};
  }

  bool try_to_run(std::size_t rank, std::size_t stream) {
    const Action& action = head(rank, stream);
    switch (action.kind) {
      case Kind::send:
        return send(rank, stream);
      case Kind::receive:
        return receive(rank, stream);
      default:
        break;
    }
    const bool is_collective =
        is_of_all(action) || (communicates(action.kind) && action.span.ranks > 1);
    if (is_collective) return meet(rank, stream);
    finish(rank, stream);
    return true;
  }

  /// The rank with the same place in another stage.
  std::size_t other(std::size_t rank, int stage) const {
    const auto of_stage = static_cast<std::size_t>(plans_[rank]->grid.ranks_of_stage());
    return static_cast<std::size_t>(stage) * of_stage + rank % of_stage;
  }
  int stage(std::size_t rank) const { return plans_[rank]->stage; }

  bool send(std::size_t rank, std::size_t stream) {
    const Action& action = head(rank, stream);
    const std::size_t to = other(rank, action.peer);
    if (sending_ == Sending::buffered) {
      on_the_way_[{rank, to}].push_back(content(action));
      finish(rank, stream);
      return true;
    }
    for (std::size_t s = 0; s < streams; ++s) {
      if (!is_ready(to, s) || head(to, s).kind != Kind::receive || head(to, s).peer != stage(rank))
        continue;
      mismatch_ = mismatch_ || content(head(to, s)) != content(action);
      finish(to, s);
      finish(rank, stream);
      return true;
    }
    return false;
  }

  bool receive(std::size_t rank, std::size_t stream) {
    if (sending_ == Sending::rendezvous) return false;  // the sender does it
    auto& messages = on_the_way_[{other(rank, head(rank, stream).peer), rank}];
    if (messages.empty()) return false;
    mismatch_ = mismatch_ || messages.front() != content(head(rank, stream));
    messages.pop_front();
    finish(rank, stream);
    return true;
  }

  static bool is_of_all(const Action& action) {
    return action.kind == Kind::clip || action.kind == Kind::reduce_sums;
  }

  /// Whether two ranks are of one group of a span.
  bool are_together(std::size_t a, std::size_t b, const Span& span) const {
    const Grid& grid = plans_[a]->grid;
    for (Axis axis : {Axis::tensor, Axis::shard, Axis::replicate, Axis::pipeline}) {
      const int mine = grid.coordinate(static_cast<int>(a), axis);
      const int theirs = grid.coordinate(static_cast<int>(b), axis);
      if (axis != span.axis && mine != theirs) return false;
      if (axis == span.axis &&
          (mine % span.stride != theirs % span.stride ||
           mine / (span.stride * span.ranks) != theirs / (span.stride * span.ranks)))
        return false;
    }
    return true;
  }

  bool meet(std::size_t rank, std::size_t stream) {
    const Action& action = head(rank, stream);
    std::vector<std::size_t> members;
    for (std::size_t r = 0; r < plans_.size(); ++r)
      if (is_of_all(action) || are_together(rank, r, action.span)) members.push_back(r);
    for (std::size_t r : members) {
      if (!is_ready(r, stream) || head(r, stream).span != action.span ||
          is_of_all(head(r, stream)) != is_of_all(action) ||
          !(is_of_all(head(r, stream)) || communicates(head(r, stream).kind)))
        return false;
    }
    for (std::size_t r : members) {
      const Action& its = head(r, stream);
      mismatch_ = mismatch_ || its.kind != action.kind || its.elements != action.elements ||
                  its.element_bytes != action.element_bytes || its.unit != action.unit ||
                  its.exchange != action.exchange || its.micro_batch != action.micro_batch ||
                  !(its.flats == action.flats);
    }
    for (std::size_t r : members) finish(r, stream);
    return true;
  }

  bool left_on_the_way() const {
    return std::any_of(on_the_way_.begin(), on_the_way_.end(),
                       [](const auto& messages) { return !messages.second.empty(); });
  }

  const std::vector<const StepPlan*> plans_;
  const Sending sending_;
  Random& random_;
  std::vector<std::array<std::deque<std::size_t>, streams>> queues_;  // of each rank
  std::vector<std::vector<bool>> done_;
  std::map<std::pair<std::size_t, std::size_t>, std::deque<Message>> on_the_way_;
  bool mismatch_ = false;
};

}  // namespace ostrakon::tests
