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
#include <set>
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
        states_(candidates.size(), State::open),
        figures_(candidates.size()) {}

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
    for (State state : states_) ++count_of(state);
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
      Least least;
      if (!can([&] { least = find_least(candidates_[c]); })) {
        states_[c] = State::impossible;
      } else if (least.device_bytes > room_.device_bytes || least.host_bytes > room_.host_bytes) {
        states_[c] = State::too_large;
      }
      least_.push_back(least);
    }
  }

  /// Of candidates that may fit, in the order of the least time.
  std::vector<Family> find_families() const {
    std::vector<Family> families;
    std::map<int, std::size_t> index;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      if (states_[c] != State::open) continue;
      const int name = candidates_[c].family;
      const auto [found, is_new] = index.emplace(name, families.size());
      if (is_new || name < 0) {
        found->second = families.size();
        families.push_back({{}, std::numeric_limits<double>::infinity()});
      }
      Family& family = families[found->second];
      family.members.push_back(static_cast<int>(c));
      family.least_seconds = std::min(family.least_seconds, least_[c].seconds);
    }
    std::stable_sort(families.begin(), families.end(), [](const Family& a, const Family& b) {
      return a.least_seconds < b.least_seconds;
    });
    return families;
  }

  /// The plan of persistent state, which is the same for many candidates.
  const StepPlan& plan_of_state(const Candidate& candidate) {
    const Policy& policy = candidate.policy;
    const StateKey key = {candidate.model,
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
    if (state_plan_.actions.empty() || state_key_ != key) {
      state_plan_.actions.clear();
      state_plan_ = plan::plan_of_state(*candidate.model, ranks_, policy);
      state_key_ = key;
      state_memory_ = plan_memory(state_plan_);
      host_state_bytes_ = plan_memory(state_plan_, Space::host).arena_bytes;
    }
    return state_plan_;
  }

  Least find_least(const Candidate& candidate) {
    const StepPlan& plan = plan_of_state(candidate);
    const Bounds bounds(*candidate.model, candidate.policy, plan);
    Least least;
    least.device_bytes = least_arena_bytes(bounds, state_memory_);
    least.host_bytes = host_state_bytes_;
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
    plan_of_state(candidates_[at(c)]);
    fit.arena_bytes = state_memory_.arena_bytes;
    fit.host_arena_bytes = host_state_bytes_;
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
    State& state = states_[at(c)];
    std::optional<Fit>& known = figures_[at(c)];
    if (state == State::planned && is_laid_out_.count(c) > 0) return known;
    state = State::impossible;
    can([&] {
      const StepPlan plan = build(c, Purpose::train);
      Fit figures = count(c, plan);
      state = State::planned;
      if (is_too_slow(figures.seconds)) return;
      if (best_of_family && !is_faster(figures.seconds, *best_of_family)) return;
      is_laid_out_.insert(c);
      if (most_alive(plan, Space::device) > room_.device_bytes ||
          most_alive(plan, Space::host) > room_.host_bytes)
        return;
      lay_out(c, plan, figures);
      if (has_room(figures)) known = figures;
    });
    return known;
  }

  void choose(const Family& family) {
    std::optional<Fit> best;
    for (int c : family.members) {
      State& state = states_[at(c)];
      const double least = least_[at(c)].seconds;
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
      return least_[at(a)].device_bytes < least_[at(b)].device_bytes;
    });
    for (int c : order) {
      const Least& least = least_[at(c)];
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

  using StateKey = std::tuple<const ModelDescription*, Sharding, int, OptimizerGroup, Accumulation,
                              DType, Offload, int, DType, bool, std::int64_t, std::int64_t, int>;

  const std::vector<Candidate>& candidates_;
  const int ranks_, ranks_per_node_;
  const Room room_;
  const Rates rates_;
  const std::size_t most_;
  std::vector<State> states_;                // of each candidate, as the next
  std::vector<std::optional<Fit>> figures_;  // where it is known to fit
  std::set<int> is_laid_out_;                // those of which it is known whether they fit
  std::size_t limit_ = 0;                    // length of the list
  bool skips_ = false;                       // whether anything was skipped as too slow
  std::vector<Least> least_;
  std::vector<Fit> chosen_;   // one of each family, in the order of the list
  std::exception_ptr error_;  // the first
  StepPlan state_plan_;       // of the last candidate that was asked for
  StateKey state_key_{};
  MemoryPlan state_memory_;
  std::int64_t host_state_bytes_ = 0;
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
