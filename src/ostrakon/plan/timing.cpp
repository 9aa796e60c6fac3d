// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/timing.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace ostrakon::plan {
namespace {

/// What actions take time of. Those that use the same at the same time share it.
enum Resource { device, inside_nodes, across_nodes, uploads, downloads, host };
constexpr int resources = 6;

/// Seconds of each resource that an action takes if it is alone.
using ResourceSeconds = std::array<double, resources>;

class Simulation {
 public:
  Simulation(const StepPlan& plan, const Links& links, const Rates& rates)
      : plan_(plan), links_(links), rates_(rates), has_ended_(plan.actions.size(), false) {
    for (std::size_t a = 0; a < plan.actions.size(); ++a)
      lanes_[static_cast<std::size_t>(plan.actions[a].stream)].queue.push_back(a);
    timing_.begins.assign(plan.actions.size(), 0.0);
    timing_.ends.assign(plan.actions.size(), 0.0);
  }

  Timing run() {
    for (begin_all(); is_anything_running(); begin_all()) advance();
    for (const Lane& lane : lanes_)
      if (lane.next < lane.queue.size())
        throw std::logic_error(
            "the plan is wrong: " + plan_.describe(plan_.actions[lane.queue[lane.next]]) +
            " waits for what does not come before it");
    timing_.seconds = now_;
    return std::move(timing_);
  }

 private:
  /// A stream: actions that run one after the other.
  struct Lane {
    std::vector<std::size_t> queue;
    std::size_t next = 0;  ///< of the queue: running or to be run
    bool is_running = false;
    int resource = 0;        ///< that the running action uses
    double left = 0.0;       ///< seconds of it, alone
    ResourceSeconds work{};  ///< of the running action
  };

  ResourceSeconds work_of(const Action& action) const {
    ResourceSeconds work{};
    work[device] = action.flops / rates_.flops;
    work[inside_nodes] =
        static_cast<double>(links_.bytes_inside_nodes(action)) / rates_.bytes_inside_nodes;
    work[across_nodes] =
        static_cast<double>(links_.bytes_across_nodes(action)) / rates_.bytes_across_nodes;
    work[action.kind == Kind::copy_to_device ? uploads : downloads] =
        static_cast<double>(copied_bytes(action)) / rates_.bytes_copied;
    work[host] = static_cast<double>(bytes_on_host(plan_, action)) / rates_.bytes_on_host;
    return work;
  }

  bool can_begin(const Lane& lane) const {
    if (lane.is_running || lane.next == lane.queue.size()) return false;
    const auto& waits = plan_.actions[lane.queue[lane.next]].waits;
    return std::all_of(waits.begin(), waits.end(),
                       [&](int other) { return has_ended_.at(static_cast<std::size_t>(other)); });
  }

  /// Begins all that can. What takes no time ends at once, and may let others begin.
  void begin_all() {
    for (bool again = true; again;) {
      again = false;
      for (Lane& lane : lanes_)
        while (can_begin(lane)) {
          const std::size_t action = lane.queue[lane.next];
          timing_.begins[action] = now_;
          lane.work = work_of(plan_.actions[action]);
          lane.is_running = true;
          use_from(lane, 0);
          again = true;
        }
    }
  }

  /// Continues with the first resource from `resource` on that the running action uses, or ends it.
  void use_from(Lane& lane, int resource) {
    while (resource < resources && !(lane.work[static_cast<std::size_t>(resource)] > 0.0))
      ++resource;
    if (resource < resources) {
      lane.resource = resource;
      lane.left = lane.work[static_cast<std::size_t>(resource)];
      return;
    }
    const std::size_t action = lane.queue[lane.next++];
    timing_.ends[action] = now_;
    has_ended_[action] = true;
    lane.is_running = false;
  }

  bool is_anything_running() const {
    return std::any_of(lanes_.begin(), lanes_.end(),
                       [](const Lane& lane) { return lane.is_running; });
  }

  /// To the next moment at which an action is done with a resource.
  void advance() {
    std::array<int, resources> users{};
    for (const Lane& lane : lanes_)
      if (lane.is_running) ++users[static_cast<std::size_t>(lane.resource)];
    const auto seconds_left = [&](const Lane& lane) {
      return lane.left * users[static_cast<std::size_t>(lane.resource)];
    };
    double seconds = std::numeric_limits<double>::infinity();
    for (const Lane& lane : lanes_)
      if (lane.is_running) seconds = std::min(seconds, seconds_left(lane));
    (users[device] > 0                                    ? timing_.computing
     : users[inside_nodes] > 0 || users[across_nodes] > 0 ? timing_.exposed_communication
     : users[host] > 0                                    ? timing_.exposed_host
                                                          : timing_.exposed_copies) += seconds;
    now_ += seconds;
    for (Lane& lane : lanes_) {
      if (!lane.is_running) continue;
      if (seconds_left(lane) <= seconds)
        use_from(lane, lane.resource + 1);
      else
        lane.left -= seconds / users[static_cast<std::size_t>(lane.resource)];
    }
  }

  const StepPlan& plan_;
  const Links& links_;
  const Rates& rates_;
  std::array<Lane, streams> lanes_;
  std::vector<bool> has_ended_;
  double now_ = 0.0;
  Timing timing_;
};

}  // namespace

Timing estimate_times(const StepPlan& plan, const Links& links, const Rates& rates) {
  return Simulation(plan, links, rates).run();
}

}  // namespace ostrakon::plan
