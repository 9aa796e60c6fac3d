// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/timing/timing.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

namespace ostrakon::plan {
namespace {

/// An action in the plans of all stages.
struct Place {
  int stage = -1;
  int action = -1;
};

/// Returns, for each action of each stage, the other end of its message; none for other actions.
std::vector<std::vector<Place>> match_messages(const std::vector<const StepPlan*>& stages) {
  std::map<std::pair<int, int>, std::vector<int>> sends;  // keyed by sender and receiver
  std::vector<std::vector<Place>> partners;
  for (const StepPlan* plan : stages) {
    partners.emplace_back(plan->actions.size());
    for (std::size_t a = 0; a < plan->actions.size(); ++a)
      if (plan->actions[a].kind == Kind::send)
        sends[{plan->stage, plan->actions[a].peer}].push_back(static_cast<int>(a));
  }
  std::map<std::pair<int, int>, std::size_t> received;
  for (const StepPlan* plan : stages)
    for (std::size_t a = 0; a < plan->actions.size(); ++a) {
      const Action& action = plan->actions[a];
      if (action.kind != Kind::receive) continue;
      const std::pair<int, int> ends{action.peer, plan->stage};
      const int send = sends[ends].at(received[ends]++);
      partners[static_cast<std::size_t>(plan->stage)][a] = {action.peer, send};
      partners[static_cast<std::size_t>(action.peer)][static_cast<std::size_t>(send)] = {
          plan->stage, static_cast<int>(a)};
    }
  return partners;
}

}  // namespace

Kind global_sum_kind(const StepPlan& plan) {
  const bool is_apart =
      std::any_of(plan.actions.begin(), plan.actions.end(),
                  [](const Action& action) { return action.kind == Kind::reduce_sums; });
  return is_apart ? Kind::reduce_sums : Kind::clip;
}

namespace {

/// A tournament tree of times: finds the first one again whenever some have changed.
class Times {
 public:
  static constexpr double never = std::numeric_limits<double>::infinity();

  explicit Times(std::size_t count) {
    while (leaves_ < count) leaves_ *= 2;
    first_.assign(2 * leaves_, 0);
    times_.assign(leaves_, never);
    for (std::size_t i = 0; i < leaves_; ++i) first_[leaves_ + i] = i;
    for (std::size_t node = leaves_; --node > 0;) first_[node] = first_[2 * node];
  }

  double operator[](std::size_t index) const { return times_[index]; }
  /// Returns the index of the first time; of equal times the lowest index.
  std::size_t first() const { return first_[1]; }

  void set(std::size_t index, double time) {
    times_[index] = time;
    for (std::size_t node = (leaves_ + index) / 2; node > 0; node /= 2) {
      const std::size_t one = first_[2 * node], other = first_[2 * node + 1];
      first_[node] = times_[other] < times_[one] ? other : one;
    }
  }

 private:
  std::size_t leaves_ = 1;
  std::vector<std::size_t> first_;  // index of the first leaf below each node; node 1 is the root
  std::vector<double> times_;
};

class Simulation {
 public:
  Simulation(const std::vector<const StepPlan*>& stages, const Costs& costs)
      : costs_(costs),
        is_inline_(costs.is_inline()),
        partners_(match_messages(stages)),
        events_(stages.size()) {
    for (const StepPlan* plan : stages) {
      StageRun& stage = stages_.emplace_back();
      stage.plan = plan;
      stage.global_sum = global_sum_kind(*plan);
      stage.has_ended.assign(plan->actions.size(), false);
      for (std::size_t a = 0; a < plan->actions.size(); ++a)
        lane_of(stage, static_cast<int>(a)).queue.push_back(static_cast<int>(a));
      stage.timing.begins.assign(plan->actions.size(), 0.0);
      stage.timing.ends.assign(plan->actions.size(), 0.0);
      std::vector<int>& peers = peers_.emplace_back();
      for (const Place& there : partners_[static_cast<std::size_t>(plan->stage)])
        if (there.stage >= 0 && std::find(peers.begin(), peers.end(), there.stage) == peers.end())
          peers.push_back(there.stage);
    }
    may_begin_.assign(stages.size(), true);
  }

  std::vector<Timing> run() {
    for (begin_all(); StageRun* next = next_stage(); begin_all()) advance(*next);
    std::vector<Timing> timings;
    for (StageRun& stage : stages_) {
      for (const Lane& lane : stage.lanes)
        if (lane.next < lane.queue.size())
          throw std::logic_error(
              "the plan is wrong: " +
              stage.plan->describe(
                  stage.plan->actions[static_cast<std::size_t>(lane.queue[lane.next])]) +
              " waits for what does not come before it");
      settle(stage);
      stage.timing.seconds = now_;
      timings.push_back(std::move(stage.timing));
    }
    return timings;
  }

 private:
  /// A stream: actions that run one after the other.
  struct Lane {
    std::vector<int> queue;
    std::size_t next = 0;  ///< index in the queue: running or to be run
    bool is_running = false;
    int blocked_by = -1;       ///< an action that the next one waits for: the last one seen
    int resource = resources;  ///< used by the running action; `resources`: none, it is a receive
    double left = 0.0;         ///< seconds of it that are left, if used alone
    bool sends = false;        ///< whether the running action communicates
    ResourceSeconds work;      ///< time that the running action takes
  };
  struct StageRun {
    const StepPlan* plan = nullptr;
    std::array<Lane, streams> lanes;
    std::vector<bool> has_ended;
    Kind global_sum = Kind::clip;  ///< adds up sums over the ranks of all stages
    bool begins_sums = false;      ///< whether all stages are at the step's sums
    Timing timing;
    // Nothing changes in a stage between its own events, so each stage has a time of its own.
    double settled = 0.0;      ///< time of `left` of its lanes and of its timing
    bool has_changed = false;  ///< whether its event has to be found again
  };

  Lane& lane_of(StageRun& stage, int action) const {
    const Stream stream = action_of(stage, action).stream;
    return stage.lanes[static_cast<std::size_t>(order_of(stream, is_inline_))];
  }
  static const Action& action_of(const StageRun& stage, int action) {
    return stage.plan->actions[static_cast<std::size_t>(action)];
  }
  Place partner(int stage, int action) const {
    return partners_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(action)];
  }
  StageRun& stage(int index) { return stages_[static_cast<std::size_t>(index)]; }
  std::size_t index_of(const StageRun& stage) const {
    return static_cast<std::size_t>(&stage - stages_.data());
  }
  std::vector<char>::iterator find_from(std::vector<char>::iterator begin) {
    return std::find(begin, may_begin_.end(), char{true});
  }

  /// Whether a lane's next action can begin as far as its own stage is concerned: its stream is
  /// free and its waits have ended.
  static bool is_ready(const StageRun& stage, Lane& lane) {
    if (lane.is_running || lane.next == lane.queue.size()) return false;
    const auto has_ended = [&](int action) {
      return stage.has_ended.at(static_cast<std::size_t>(action));
    };
    // The action that blocks the lane must have ended.
    if (lane.blocked_by >= 0 && !has_ended(lane.blocked_by)) return false;
    for (const int other : action_of(stage, lane.queue[lane.next]).waits)
      if (!has_ended(other)) {
        lane.blocked_by = other;
        return false;
      }
    return true;
  }

  /// Whether the next action of a lane can begin, together with its partners on other stages. A
  /// receive begins with its send.
  bool can_begin(int index, Lane& lane) {
    StageRun& own = stage(index);
    if (!is_ready(own, lane)) return false;
    const int action = lane.queue[lane.next];
    const Kind kind = action_of(own, action).kind;
    if (kind == Kind::receive) return false;
    if (kind == own.global_sum && !own.begins_sums && stages_.size() > 1) {
      for (StageRun& other : stages_) {
        Lane& clipping = other.lanes[static_cast<std::size_t>(
            is_inline_ ? Stream::compute : action_of(own, action).stream)];
        if (!is_ready(other, clipping) ||
            action_of(other, clipping.queue[clipping.next]).kind != own.global_sum)
          return false;
      }
      for (StageRun& other : stages_) other.begins_sums = true;
      std::fill(may_begin_.begin(), may_begin_.end(), char{true});
    }
    if (kind != Kind::send) return true;
    const Place there = partner(index, action);
    if (there.stage < 0) throw std::logic_error("the plan is wrong: nobody receives a message");
    StageRun& other = stage(there.stage);
    Lane& receiving = lane_of(other, there.action);
    return is_ready(other, receiving) && receiving.queue[receiving.next] == there.action;
  }

  /// Begins all actions that can. An action that takes no time ends at once, and may let others
  /// begin.
  void begin_all() {
    for (bool again = true; again;) {
      again = false;
      for (auto next = find_from(may_begin_.begin()); next != may_begin_.end();
           next = find_from(next + 1)) {
        *next = false;
        const auto s = static_cast<int>(next - may_begin_.begin());
        for (Lane& lane : stage(s).lanes)
          while (can_begin(s, lane)) {
            begin(s, lane);
            again = true;
          }
      }
    }
  }

  /// After a change in a stage, its own actions may begin, and sends to it.
  void let_begin(StageRun& changed) {
    const std::size_t index = index_of(changed);
    may_begin_[index] = true;
    for (const int peer : peers_[index]) {
      const StageRun& other = stage(peer);
      const Lane& sending = other.lanes[static_cast<std::size_t>(Stream::send)];
      if (!sending.is_running && sending.next < sending.queue.size() &&
          action_of(other, sending.queue[sending.next]).peer == changed.plan->stage)
        may_begin_[static_cast<std::size_t>(peer)] = true;
    }
  }

  void begin(int index, Lane& lane) {
    StageRun& own = stage(index);
    const int action = lane.queue[lane.next];
    settle(own);
    own.timing.begins[static_cast<std::size_t>(action)] = now_;
    lane.work = costs_.seconds(index, action_of(own, action));
    lane.is_running = true;
    const Kind kind = action_of(own, action).kind;
    lane.sends = communicates(kind) || kind == Kind::send;
    if (const Place there = partner(index, action); there.stage >= 0) {
      StageRun& other = stage(there.stage);
      Lane& receiving = lane_of(other, there.action);
      other.timing.begins[static_cast<std::size_t>(there.action)] = now_;
      receiving.is_running = true;
      receiving.resource = resources;
    }
    use_from(index, lane, 0);
  }

  /// Continues with the first resource from `resource` on that the running action uses, or ends the
  /// action.
  void use_from(int index, Lane& lane, int resource) {
    while (resource < resources && !(lane.work[static_cast<Resource>(resource)] > 0.0)) ++resource;
    if (resource < resources) {
      lane.resource = resource;
      lane.left = lane.work[static_cast<Resource>(resource)];
      note_change(stage(index));
      return;
    }
    const Place there = partner(index, lane.queue[lane.next]);
    end(stage(index), lane);
    if (there.stage >= 0) end(stage(there.stage), lane_of(stage(there.stage), there.action));
  }

  void end(StageRun& stage, Lane& lane) {
    settle(stage);
    const auto action = static_cast<std::size_t>(lane.queue[lane.next++]);
    // The plans of all stages are larger than caches: without the prefetch, long pipelines take a
    // tenth longer.
    if (lane.next < lane.queue.size()) {
      const Action& next = action_of(stage, lane.queue[lane.next]);
      __builtin_prefetch(&next.waits);
      __builtin_prefetch(&next.kind);
      __builtin_prefetch(&next.work);
    }
    stage.timing.ends[action] = now_;
    stage.has_ended[action] = true;
    lane.is_running = false;
    note_change(stage);
    let_begin(stage);
  }

  static bool uses_something(const Lane& lane) {
    return lane.is_running && lane.resource < resources;
  }
  /// Counts, for each resource, the actions of a stage that use it.
  class Users {
   public:
    explicit Users(const StageRun& stage) {
      for (const Lane& lane : stage.lanes) {
        if (!uses_something(lane)) continue;
        ++counts_[static_cast<std::size_t>(lane.resource)];
        const auto resource = static_cast<Resource>(lane.resource);
        communicates_ = communicates_ || lane.sends || resource == Resource::latency;
        computes_ = computes_ || (!lane.sends && resource == Resource::device);
      }
    }

    bool computes() const { return computes_; }
    bool is_communicating() const { return communicates_; }
    bool any(Resource resource) const { return of(resource) > 0; }
    /// Returns how many times as long as alone an action takes that uses this lane's resource.
    double factor(const Lane& lane, double slowdown) const {
      const auto resource = static_cast<Resource>(lane.resource);
      if (resource == Resource::latency) return 1.0;
      const bool is_slowed = resource == Resource::device && communicates_ && !lane.sends;
      return of(resource) * (is_slowed ? 1.0 + slowdown : 1.0);
    }

   private:
    int of(Resource resource) const { return counts_[static_cast<std::size_t>(resource)]; }

    std::array<int, resources> counts_{};
    bool computes_ = false, communicates_ = false;
  };

  void note_change(StageRun& stage) {
    if (!stage.has_changed) changed_.push_back(&stage);
    stage.has_changed = true;
  }

  /// Returns the stage with the first event; null: nothing runs.
  StageRun* next_stage() {
    for (StageRun* stage : changed_) find_event(*stage);
    changed_.clear();
    const std::size_t first = events_.first();
    return events_[first] == Times::never ? nullptr : &stages_[first];
  }

  void find_event(StageRun& stage) {
    stage.has_changed = false;
    const Users users(stage);
    double seconds = Times::never;
    for (const Lane& lane : stage.lanes)
      if (uses_something(lane)) seconds = std::min(seconds, lane.left * factor(users, lane));
    events_.set(index_of(stage), stage.settled + seconds);
  }

  /// Advances a stage to this moment; nothing in it has changed since it was settled last.
  void settle(StageRun& stage) const {
    const double seconds = now_ - stage.settled;
    stage.settled = now_;
    if (!(seconds > 0.0)) return;
    const Users used(stage);
    Timing& timing = stage.timing;
    (used.computes()                                                ? timing.computing
     : used.is_communicating()                                      ? timing.exposed_communication
     : used.any(Resource::host)                                     ? timing.exposed_host
     : used.any(Resource::uploads) || used.any(Resource::downloads) ? timing.exposed_copies
                                                                    : timing.waiting) += seconds;
    for (Lane& lane : stage.lanes)
      if (uses_something(lane)) lane.left -= seconds / factor(used, lane);
  }

  /// Advances to the stage's event: some of its actions are done with a resource.
  void advance(StageRun& stage) {
    now_ = events_[index_of(stage)];
    const Users users(stage);
    std::array<bool, streams> is_done{};
    for (std::size_t l = 0; l < streams; ++l) {
      const Lane& lane = stage.lanes[l];
      is_done[l] = uses_something(lane) && stage.settled + lane.left * factor(users, lane) <= now_;
    }
    settle(stage);
    const auto index = static_cast<int>(index_of(stage));
    for (std::size_t l = 0; l < streams; ++l)
      if (is_done[l]) use_from(index, stage.lanes[l], stage.lanes[l].resource + 1);
  }
  double factor(const Users& users, const Lane& lane) const {
    return users.factor(lane, slowdown_);
  }

  const Costs& costs_;
  const double slowdown_ = costs_.slowdown();
  const bool is_inline_;
  const std::vector<std::vector<Place>> partners_;
  std::vector<std::vector<int>> peers_;  ///< per stage: the stages that it has messages with
  std::vector<StageRun> stages_;
  Times events_;                    ///< per stage: when its next action is done with a resource
  std::vector<StageRun*> changed_;  ///< stages whose event has to be found again
  std::vector<char> may_begin_;  ///< per stage: whether something has changed for a waiting action
  double now_ = 0.0;
};

/// Costs in proportion to the size of an action.
class RateCosts : public Costs {
 public:
  RateCosts(const std::vector<const StepPlan*>& stages, const std::vector<Links>& links,
            const Rates& rates)
      : stages_(stages), links_(links), rates_(rates) {}

  ResourceSeconds seconds(int stage, const Action& action) const override {
    const auto at = static_cast<std::size_t>(stage);
    return seconds_at(rates_, *stages_[at], links_[at], action);
  }

 private:
  const std::vector<const StepPlan*>& stages_;
  const std::vector<Links>& links_;
  const Rates& rates_;
};

}  // namespace

std::vector<Timing> simulate_times(const std::vector<const StepPlan*>& stages, const Costs& costs) {
  return Simulation(stages, costs).run();
}

ResourceSeconds seconds_at(const Rates& rates, const StepPlan& plan, const Links& links,
                           const Action& action) {
  ResourceSeconds seconds;
  if (action.empty_if_even) return seconds;
  seconds[Resource::device] = action.flops / rates.flops_per_second;
  seconds[Resource::inside_nodes] =
      static_cast<double>(links.bytes_inside_nodes(action)) / rates.inside_node_bytes_per_second;
  seconds[Resource::across_nodes] =
      static_cast<double>(links.bytes_across_nodes(action)) / rates.across_node_bytes_per_second;
  seconds[action.kind == Kind::copy_to_device ? Resource::uploads : Resource::downloads] =
      static_cast<double>(copied_bytes(action)) / rates.copy_bytes_per_second;
  seconds[Resource::host] =
      static_cast<double>(bytes_on_host(plan, action)) / rates.host_bytes_per_second;
  return seconds;
}

Timing estimate_times(const StepPlan& plan, const Links& links, const Rates& rates) {
  const std::vector<const StepPlan*> plans{&plan};
  const std::vector<Links> all{links};
  return simulate_times(plans, RateCosts(plans, all, rates)).front();
}

std::vector<Timing> estimate_times(const std::vector<const StepPlan*>& stages, int ranks_per_node,
                                   const Rates& rates) {
  std::vector<Links> links;
  for (const StepPlan* plan : stages) links.emplace_back(*plan, ranks_per_node);
  return simulate_times(stages, RateCosts(stages, links, rates));
}

}  // namespace ostrakon::plan
