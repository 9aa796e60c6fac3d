// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/fit.hpp>

#include <algorithm>
#include <exception>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit_bounds.hpp>
#include <ostrakon/plan/fit_order.hpp>
#include <ostrakon/plan/levels.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/sum_order.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/plan/traffic.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace ostrakon::plan {
namespace {

/// Peak live bytes, or a little less: a lower bound of the arena.
std::int64_t most_alive(const StepPlan& plan, Space space) {
  std::vector<std::int64_t> changes(plan.actions.size() + 1, 0);
  std::int64_t live_bytes = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != space || (!buffer.persistent && buffer.first < 0)) continue;
    changes[buffer.persistent ? 0 : static_cast<std::size_t>(buffer.first)] += buffer.bytes;
    if (!buffer.persistent) changes[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  std::int64_t most = 0;
  for (std::int64_t change : changes) most = std::max(most, live_bytes += change);
  return most;
}

/// The persistent state that candidates are planned with, which is the same for many of them.
class StateOfCandidate {
 public:
  explicit StateOfCandidate(int ranks) : ranks_(ranks) {}

  /// Plans it, unless it is that of the candidate before. Throws Error where it can't be planned.
  void plan_for(const Candidate& candidate) {
    const Policy& policy = candidate.policy;
    const Key key = {candidate.model,
                     policy.sharding,
                     policy.shard_group,
                     policy.shard_optimizer_over,
                     accumulation_of(policy, one_level(ranks_, policy)),
                     policy.reduce,
                     policy.offload,
                     policy.moments.count,
                     policy.moments.dtype,
                     policy.checkpoint_staging,
                     policy.leaves,
                     policy.sum_grain,
                     make_grid(*candidate.model, ranks_, policy).node};
    if (!plan_.actions.empty() && key_ == key) return;
    plan_.actions.clear();
    plan_ = plan_of_state(*candidate.model, ranks_, policy);
    key_ = key;
    memory_ = plan_memory(plan_);
    host_bytes_ = plan_memory(plan_, Space::host).arena_bytes;
  }

  const StepPlan& plan() const { return plan_; }
  const MemoryPlan& memory() const { return memory_; }  ///< of the device
  std::int64_t host_bytes() const { return host_bytes_; }

 private:
  using Key = std::tuple<const ModelDescription*, Sharding, int, OptimizerGroup, Accumulation,
                         DType, Offload, int, DType, bool, std::int64_t, std::int64_t, int>;

  const int ranks_;
  StepPlan plan_;
  Key key_{};
  MemoryPlan memory_;
  std::int64_t host_bytes_ = 0;
};

class Search {
 public:
  Search(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node, const Room& room,
         const Rates& rates, std::size_t most)
      : candidates_(candidates),
        ranks_(ranks),
        ranks_per_node_(ranks_per_node),
        room_(room),
        rates_(rates),
        most_(most),
        known_(candidates.size()),
        state_(ranks) {}

  Fits run() {
    find_bounds();
    const std::vector<Family> families = find_families();
    // What is found later may make several lines needless: then once more, for a longer list.
    for (limit_ = most_;; limit_ = 2 * limit_ + 4) {
      skips_ = false;
      chosen_.clear();
      found_.best.clear();
      for (const Family& family : families) {
        if (is_too_slow(family.least_seconds)) break;
        choose(family);
      }
      if (!skips_ || found_.best.size() >= most_) break;
    }
    found_.best.resize(std::min(found_.best.size(), most_));
    for (const Known& known : known_) ++count_of(known.state);
    if (found_.best.empty()) find_smallest();
    return std::move(found_);
  }

 private:
  enum class State { open, too_large, impossible, unneeded, planned };

  /// Of the candidates that are left open the least times are too long.
  std::int64_t& count_of(State state) {
    return state == State::too_large    ? found_.too_large
           : state == State::impossible ? found_.impossible
           : state == State::unneeded   ? found_.unneeded
           : state == State::planned    ? found_.planned
                                        : found_.too_slow;
  }

  /// What a candidate takes at least.
  struct Least {
    std::int64_t device_bytes = 0;
    std::int64_t host_bytes = 0;
    double seconds = 0.0;
  };

  /// What is known of a candidate.
  struct Known {
    State state = State::open;
    Least least;
    bool is_laid_out = false;  // then it is known whether it fits
    std::optional<Fit> fit;    // its figures, where it is known to fit
  };

  struct Family {
    std::vector<int> members;
    double least_seconds = 0.0;
  };

  /// What a rank does in a step, but for the order of it.
  struct Totals {
    double flops = 0.0;
    std::int64_t bytes_inside_nodes = 0, bytes_across_nodes = 0, bytes_copied = 0,
                 bytes_on_host = 0;
  };

  static std::size_t at(int candidate) { return static_cast<std::size_t>(candidate); }
  /// Whether a time is too long for the list as it is.
  bool is_too_slow(double seconds) {
    const std::vector<Fit>& best = found_.best;
    const bool is =
        best.size() >= limit_ && (limit_ == 0 || seconds > same_time * best.back().seconds);
    skips_ = skips_ || is;
    return is;
  }

  /// Calls `work`; false where it throws Error.
  template <class Work>
  bool can(const Work& work) {
    try {
      work();
    } catch (const Error&) {
      if (!error_) error_ = std::current_exception();
      return false;
    }
    return true;
  }

  void find_bounds() {
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      Least& least = known_[c].least;
      if (!can([&] { least = find_least(candidates_[c]); })) {
        known_[c].state = State::impossible;
      } else if (least.device_bytes > room_.device_bytes || least.host_bytes > room_.host_bytes) {
        known_[c].state = State::too_large;
      }
    }
  }

  /// Of candidates that may fit, in the order of the least time.
  std::vector<Family> find_families() const {
    std::vector<Family> families;
    std::map<int, std::size_t> index;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      if (known_[c].state != State::open) continue;
      const int name = candidates_[c].family;
      const auto [found, is_new] = index.emplace(name, families.size());
      if (is_new || name < 0) {
        found->second = families.size();
        families.push_back({{}, std::numeric_limits<double>::infinity()});
      }
      Family& family = families[found->second];
      family.members.push_back(static_cast<int>(c));
      family.least_seconds = std::min(family.least_seconds, known_[c].least.seconds);
    }
    std::stable_sort(families.begin(), families.end(), [](const Family& a, const Family& b) {
      return a.least_seconds < b.least_seconds;
    });
    return families;
  }

  Least find_least(const Candidate& candidate) {
    state_.plan_for(candidate);
    const Bounds bounds(*candidate.model, candidate.policy, state_.plan());
    Least least;
    least.device_bytes = least_arena_bytes(bounds, state_.memory());
    least.host_bytes = state_.host_bytes();
    Totals totals;
    totals.flops = bounds.flops();
    totals.bytes_copied = bounds.copied_bytes();
    totals.bytes_on_host = bounds.bytes_on_host();
    const StepPlan collectives = bounds.collectives();
    const Links links(collectives, ranks_per_node_);
    add_sent(collectives, links, totals);
    // What is computed or sent may be added, and so rounded, in another order in a plan.
    least.seconds = (1.0 - 1e-9) * least_seconds(totals);
    return least;
  }

  static void add_sent(const StepPlan& plan, const Links& links, Totals& totals) {
    for (const Action& action : plan.actions) {
      totals.bytes_across_nodes += links.bytes_across_nodes(action);
      totals.bytes_inside_nodes += links.bytes_inside_nodes(action);
    }
  }

  /// That it takes if all of it overlaps.
  double least_seconds(const Totals& totals) const {
    const auto across = static_cast<double>(totals.bytes_across_nodes);
    // More may go across nodes in a step, and less inside of them.
    const double sent = across + static_cast<double>(totals.bytes_inside_nodes);
    return std::max({totals.flops / rates_.flops, across / rates_.bytes_across_nodes,
                     sent / (rates_.bytes_inside_nodes + rates_.bytes_across_nodes),
                     // Both ways at the same time.
                     static_cast<double>(totals.bytes_copied) / (2.0 * rates_.bytes_copied),
                     static_cast<double>(totals.bytes_on_host) / rates_.bytes_on_host});
  }

  StepPlan build(int c, Purpose purpose) const {
    const Candidate& candidate = candidates_[at(c)];
    return build_step_plan(*candidate.model, ranks_, candidate.policy, purpose);
  }

  /// All figures but the arenas.
  Fit count(int c, const StepPlan& plan) const {
    const Links links(plan, ranks_per_node_);
    Totals totals;
    add_sent(plan, links, totals);
    const Timing timing = estimate_times(plan, links, rates_);
    Fit fit;
    fit.candidate = c;
    fit.flops = plan.flops();
    fit.bytes_inside_nodes = totals.bytes_inside_nodes;
    fit.bytes_across_nodes = totals.bytes_across_nodes;
    fit.bytes_copied = plan::copied_bytes(plan, Kind::copy_to_device) +
                       plan::copied_bytes(plan, Kind::copy_to_host);
    fit.bytes_on_host = plan::bytes_on_host(plan);
    fit.seconds = timing.seconds;
    fit.exposed_communication = timing.exposed_communication;
    fit.bits_of_one_rank = plan.has_the_bits_of_one_rank();
    return fit;
  }

  /// Of all plans of a run.
  void lay_out(int c, const StepPlan& training, Fit& fit) {
    state_.plan_for(candidates_[at(c)]);
    fit.arena_bytes = state_.memory().arena_bytes;
    fit.host_arena_bytes = state_.host_bytes();
    const auto see = [&](const StepPlan& plan) {
      fit.arena_bytes = std::max(fit.arena_bytes, plan_memory(plan).arena_bytes);
      fit.host_arena_bytes =
          std::max(fit.host_arena_bytes, plan_memory(plan, Space::host).arena_bytes);
    };
    see(training);
    see(build(c, Purpose::evaluate));
  }

  bool has_room(const Fit& fit) const {
    return fit.arena_bytes <= room_.device_bytes && fit.host_arena_bytes <= room_.host_bytes;
  }

  /// Plans a candidate, but for what it can't be listed with. Its figures where it fits.
  std::optional<Fit> plan_one(int c, const std::optional<Fit>& best_of_family) {
    Known& known = known_[at(c)];
    if (known.state == State::planned && known.is_laid_out) return known.fit;
    known.state = State::impossible;
    can([&] {
      const StepPlan plan = build(c, Purpose::train);
      Fit figures = count(c, plan);
      known.state = State::planned;
      if (is_too_slow(figures.seconds)) return;
      if (best_of_family && !is_faster(figures.seconds, *best_of_family)) return;
      known.is_laid_out = true;
      if (most_alive(plan, Space::device) > room_.device_bytes ||
          most_alive(plan, Space::host) > room_.host_bytes)
        return;
      lay_out(c, plan, figures);
      if (has_room(figures)) known.fit = figures;
    });
    return known.fit;
  }

  void choose(const Family& family) {
    std::optional<Fit> best;
    for (int c : family.members) {
      State& state = known_[at(c)].state;
      const double least = known_[at(c)].least.seconds;
      if (state == State::impossible || is_too_slow(least)) continue;
      if (best && !is_faster(least, *best)) {
        if (state == State::open) state = State::unneeded;
        continue;
      }
      const std::optional<Fit> fit = plan_one(c, best);
      if (fit && (!best || is_faster(fit->seconds, *best))) best = fit;
    }
    if (best) list(*best);
  }

  void list(const Fit& fit) {
    chosen_.insert(std::upper_bound(chosen_.begin(), chosen_.end(), fit, is_better), fit);
    std::vector<Fit>& best = found_.best;
    best.clear();
    for (const Fit& next : chosen_) {
      if (best.size() == limit_) break;
      if (std::none_of(best.begin(), best.end(),
                       [&](const Fit& other) { return is_needless(next, other); }))
        best.push_back(next);
    }
  }

  void find_smallest() {
    Fit& smallest = found_.smallest;
    bool any = false;  // that can be planned
    std::vector<int> order(candidates_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return known_[at(a)].least.device_bytes < known_[at(b)].least.device_bytes;
    });
    for (int c : order) {
      const Least& least = known_[at(c)].least;
      if (smallest.candidate >= 0 && least.device_bytes >= smallest.arena_bytes) break;
      any = any || least.host_bytes > room_.host_bytes;
      if (least.host_bytes > room_.host_bytes) continue;
      can([&] {
        const StepPlan plan = build(c, Purpose::train);
        Fit fit = count(c, plan);
        lay_out(c, plan, fit);
        any = true;
        if (fit.host_arena_bytes > room_.host_bytes) return;
        if (smallest.candidate < 0 || fit.arena_bytes < smallest.arena_bytes) smallest = fit;
      });
    }
    if (!any && error_) std::rethrow_exception(error_);
    if (!any) throw std::logic_error("there are no settings to choose from");
  }

  const std::vector<Candidate>& candidates_;
  const int ranks_, ranks_per_node_;
  const Room room_;
  const Rates rates_;
  const std::size_t most_;
  std::vector<Known> known_;  // of each candidate
  std::size_t limit_ = 0;     // length of the list
  bool skips_ = false;        // whether anything was skipped as too slow
  std::vector<Fit> chosen_;   // one of each family, in the order of the list
  std::exception_ptr error_;  // the first
  StateOfCandidate state_;    // of the last candidate that was looked at
  Fits found_;
};

}  // namespace

std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy) {
  const StepPlan plan = plan_of_state(model, ranks, policy);
  return least_arena_bytes(Bounds(model, policy, plan), plan_memory(plan));
}

Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               const Room& room, const Rates& rates, std::size_t most) {
  return Search(candidates, ranks, ranks_per_node, room, rates, most).run();
}

}  // namespace ostrakon::plan
