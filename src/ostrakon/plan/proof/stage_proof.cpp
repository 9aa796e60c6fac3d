// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/proof/stage_proof.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/proof/communication_check.hpp>
#include <ostrakon/plan/proof/contents_check.hpp>
#include <ostrakon/plan/proof/exchange_check.hpp>
#include <ostrakon/plan/proof/happens_before.hpp>
#include <ostrakon/plan/proof/matches.hpp>
#include <ostrakon/plan/proof/sums_check.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::plan {
namespace {

/// Checks that quantized buffers have sizes, which sizes of messages are compared with, and are
/// written in each step.
void check_quantized(const RankClasses& classes, int c) {
  const StepPlan& plan = classes.plan(c);
  for (const Buffer& buffer : plan.buffers) {
    if (!buffer.quantized) continue;
    bool has_sizes = true;
    for (int flat = buffer.flats.first; flat < buffer.flats.end; ++flat)
      has_sizes = has_sizes && !plan.flats[flat].quantized.empty();
    if (buffer.persistent || !has_sizes)
      refuse_ranks(classes.describe(c) + "'s plan, '" + buffer.name +
                   (has_sizes ? "' is quantized and kept between steps"
                              : "' is quantized, of parameters that are not gathered so"));
  }
}

/// Checks the properties that each action shows by itself.
void check_actions(const RankClasses& classes, int c) {
  const StepPlan& plan = classes.plan(c);
  const int actions = static_cast<int>(plan.actions.size());
  for (int a = 0; a < actions; ++a) {
    for (int wait : plan.actions[a].waits)
      if (wait < 0 || wait >= actions)
        refuse_ranks(describe(classes, {c, a}) + " waits for an action that is not there");
    const std::string wrong = wrong_communication(plan, plan.actions[a]);
    if (!wrong.empty()) refuse_ranks(describe(classes, {c, a}) + ", " + wrong);
  }
}

/// Checks the properties that the actions of a plan show in sequence.
void check_step(const RankClasses& classes, int c) {
  const StepPlan& plan = classes.plan(c);
  ContentsCheck contents(plan);
  SumsCheck sums(plan);
  ExchangeCheck exchanges(plan);
  const auto check_plan = [&](const std::string& wrong) {
    if (!wrong.empty()) refuse_ranks(classes.describe(c) + "'s plan, " + wrong);
  };
  check_plan(contents.wrong_begin());
  for (int a = 0; a < static_cast<int>(plan.actions.size()); ++a) {
    std::string wrong = contents.wrong(plan.actions[a]);
    if (wrong.empty()) wrong = sums.wrong(plan.actions[a]);
    if (wrong.empty()) wrong = exchanges.wrong(plan.actions[a]);
    if (!wrong.empty()) refuse_ranks(describe(classes, {c, a}) + ", " + wrong);
  }
  check_plan(contents.wrong_end());
  check_plan(exchanges.wrong_end());
}

/// Whether an action depends on the result of `clip`.
bool follows_clip(const StepPlan& plan, const Action& action) {
  const bool is_careful = !plan.layouts.updates_early && action.buffer(Role::replaced) < 0;
  return action.kind == Kind::verify ||
         (action.kind == Kind::receive && action.buffer(Role::shard) >= 0) ||
         (is_update(action.kind) && is_careful);
}

/// Checks that actions which depend on the result of `clip` wait for it: it is in no buffer, so
/// prove_memory does not see who reads it.
void check_verdict(const RankClasses& classes, int c) {
  const StepPlan& plan = classes.plan(c);
  const HappensBefore order(plan);
  const auto is_clip = [](const Action& action) { return action.kind == Kind::clip; };
  const auto clip = std::find_if(plan.actions.begin(), plan.actions.end(), is_clip);
  if (clip == plan.actions.end()) return;
  const auto first = static_cast<int>(clip - plan.actions.begin());
  for (int a = first + 1; a < static_cast<int>(plan.actions.size()); ++a)
    if (follows_clip(plan, plan.actions[a]) && !order.before(first, a))
      refuse_ranks(describe(classes, {c, a}) + " does not wait for the step's sums");
}

/// Whether all waits are for earlier actions.
bool is_in_plan_order(const RankClasses& classes) {
  for (int c = 0; c < classes.count(); ++c) {
    const std::vector<Action>& actions = classes.plan(c).actions;
    for (std::size_t a = 0; a < actions.size(); ++a)
      for (int wait : actions[a].waits)
        if (wait >= static_cast<int>(a)) return false;
  }
  return true;
}

/// Runs the plans of all classes: each stream in its order, all waits kept, matches at the same
/// time. One order proves all, since an action that could run is never stopped by others.
class Run {
 public:
  Run(const RankClasses& classes, std::vector<Match> matches)
      : classes_(classes), matches_(std::move(matches)), arrived_(matches_.size(), 0) {
    for (int c = 0; c < classes_.count(); ++c) {
      const std::vector<Action>& actions = plan(c).actions;
      match_.emplace_back(actions.size(), -1);
      ended_.emplace_back(actions.size(), false);
      waiting_.emplace_back(actions.size(), 0);
      queues_.emplace_back();
      for (std::size_t a = 0; a < actions.size(); ++a)
        queues_.back()[static_cast<std::size_t>(actions[a].stream)].actions.push_back(
            static_cast<int>(a));
    }
    for (std::size_t m = 0; m < matches_.size(); ++m)
      for (ActionOfClass place : matches_[m])
        match_[place.of_class][place.action] = static_cast<int>(m);
  }

  /// Throws std::logic_error where not all actions come to run.
  void run() {
    for (int c = 0; c < classes_.count(); ++c)
      for (int s = 0; s < streams; ++s) ready_.emplace_back(c, s);
    while (!ready_.empty()) {
      const QueueOf queue = ready_.back();
      ready_.pop_back();
      look_at(queue);
    }
    for (int c = 0; c < classes_.count(); ++c)
      for (const Queue& queue : queues_[c])
        if (queue.next < queue.actions.size()) refuse_circle({c, queue.actions[queue.next]});
  }

 private:
  const StepPlan& plan(int of_class) const { return classes_.plan(of_class); }
  const Action& at(ActionOfClass place) const { return plan(place.of_class).actions[place.action]; }
  std::string described(ActionOfClass place) const { return describe(classes_, place); }

  /// A stream of a class.
  struct Queue {
    std::vector<int> actions;
    std::size_t next = 0;  ///< the first action that has not ended
  };
  using QueueOf = std::pair<int, int>;  // class, stream

  /// Advances a stream as far as possible. Its first action is checked again when the one that it
  /// waits for has ended.
  void look_at(QueueOf which) {
    const auto [c, s] = which;
    Queue& queue = queues_[c][s];
    while (queue.next < queue.actions.size()) {
      const int a = queue.actions[queue.next];
      for (int wait : plan(c).actions[a].waits)
        if (!ended_[c][wait]) {
          waiting_[c][wait] |= 1u << s;
          return;
        }
      const int match = match_[c][a];
      if (match < 0) {
        end({c, a});
        continue;
      }
      if (++arrived_[match] < matches_[match].size()) return;
      for (ActionOfClass place : matches_[match]) {
        end(place);
        ready_.emplace_back(place.of_class, static_cast<int>(at(place).stream));
      }
      return;
    }
  }

  void end(ActionOfClass place) {
    const auto [c, a] = place;
    ++queues_[c][static_cast<std::size_t>(at(place).stream)].next;
    ended_[c][a] = true;
    for (int stream = 0; stream < streams; ++stream)
      if ((waiting_[c][a] >> stream & 1u) != 0) ready_.emplace_back(c, stream);
  }

  /// Follows waits from an action that has not ended until they form a cycle.
  [[noreturn]] void refuse_circle(ActionOfClass from) const {
    std::vector<ActionOfClass> path;
    std::vector<std::string> because;
    const auto find = [&](ActionOfClass place) {
      return std::find(path.begin(), path.end(), place);
    };
    while (find(from) == path.end()) {
      path.push_back(from);
      const auto [next, reason] = follow(from);
      because.emplace_back(reason);
      from = next;
    }
    std::string circle = described(from);
    const auto first = static_cast<std::size_t>(find(from) - path.begin());
    for (std::size_t k = first; k < path.size(); ++k)
      circle += text(k > first ? ", which " : " ", because[k], " ",
                     described(k + 1 < path.size() ? path[k + 1] : from));
    refuse_ranks("they stop each other: " + circle);
  }

  /// Returns an action that another one waits for, and why; neither has ended.
  std::pair<ActionOfClass, const char*> follow(ActionOfClass place) const {
    const auto [c, a] = place;
    const Queue& queue = queues_[c][static_cast<std::size_t>(at(place).stream)];
    if (queue.actions[queue.next] != a) return {{c, queue.actions[queue.next]}, "comes after"};
    for (int wait : at(place).waits)
      if (!ended_[c][wait]) return {{c, wait}, "waits for"};
    for (ActionOfClass other : matches_[match_[c][a]])
      if (other.of_class != c && !is_there(other)) return {other, "matches"};
    throw std::logic_error("an action that could run has not");
  }

  /// Whether nothing keeps an action from running with its partners.
  bool is_there(ActionOfClass place) const {
    const auto [c, a] = place;
    const Queue& queue = queues_[c][static_cast<std::size_t>(at(place).stream)];
    const auto& waits = at(place).waits;
    return queue.actions[queue.next] == a &&
           std::all_of(waits.begin(), waits.end(),
                       [&, c = c](int wait) { return ended_[c][wait]; });
  }

  const RankClasses& classes_;
  const std::vector<Match> matches_;
  std::vector<std::size_t> arrived_;  // per match: how many of its actions have arrived
  // The members below have an element for each class:
  std::vector<std::vector<int>> match_;  // per action: its match, or -1
  std::vector<std::array<Queue, streams>> queues_;
  std::vector<std::vector<bool>> ended_;             // per action
  std::vector<std::vector<std::uint16_t>> waiting_;  // per action: a bit for each stream that waits
                                                     // for it
  static_assert(streams <= 16);
  std::vector<QueueOf> ready_;  // streams to be checked again
};

}  // namespace

void prove_ranks(const std::vector<const StepPlan*>& plans) {
  const RankClasses classes(plans);
  for (int c = 0; c < classes.count(); ++c) {
    check_quantized(classes, c);
    check_actions(classes, c);
  }
  std::vector<Match> matches = find_matches(classes);
  // Differences between ranks' plans are reported first, as they say more than their consequences.
  for (int c = 0; c < classes.count(); ++c) check_step(classes, c);
  const bool is_in_order = is_in_plan_order(classes);
  for (int c = 0; c < classes.count() && is_in_order; ++c) check_verdict(classes, c);
  // Without matches between classes, each can run in plan order.
  if (matches.empty() && is_in_order) return;
  Run(classes, std::move(matches)).run();
}

void prove_stages(const std::vector<const StepPlan*>& stages) {
  std::vector<const StepPlan*> plans;
  for (const StepPlan* stage : stages)
    plans.insert(plans.end(), static_cast<std::size_t>(stage->grid.ranks_of_stage()), stage);
  prove_ranks(plans);
}

void prove_stages(const std::vector<StepPlan>& stages) {
  std::vector<const StepPlan*> pointers;
  for (const StepPlan& stage : stages) pointers.push_back(&stage);
  prove_stages(pointers);
}

}  // namespace ostrakon::plan
