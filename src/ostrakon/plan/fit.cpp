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
#include <ostrakon/plan/fit_least.hpp>
#include <ostrakon/plan/fit_order.hpp>
#include <ostrakon/plan/fit_stages.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/stages.hpp>
#include <ostrakon/plan/timing.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::plan {
namespace {

bool has_room(const Fit& fit, const Room& room) {
  return fit.arena_bytes <= room.device_bytes && fit.host_arena_bytes <= room.host_bytes;
}

class Search {
 public:
  Search(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node, const Room& room,
         const Rates& rates, const StepTimes& times, std::size_t most)
      : candidates_(candidates),
        ranks_(ranks),
        ranks_per_node_(ranks_per_node),
        room_(room),
        times_(times),
        most_(most),
        known_(candidates.size()),
        least_(ranks, ranks_per_node, rates) {}

  Fits run() {
    find_bounds();
    const std::vector<Family> families = find_families();
    // What is found later may make several lines needless: then once more, for a longer list.
    std::vector<const Family*> left;
    for (limit_ = most_;; limit_ = 2 * limit_ + 4) {
      skips_ = false;
      chosen_.clear();
      found_.best.clear();
      left.clear();
      for (const Family& family : families) {
        if (is_too_slow(family.least_seconds)) break;
        if (!choose(family)) left.push_back(&family);
      }
      choose_again(left);
      if (!skips_ || found_.best.size() >= most_) break;
    }
    for (const Family* family : left)
      for (int c : family->members)
        if (known_[at(c)].state == State::open) known_[at(c)].state = State::needless;
    found_.best.resize(std::min(found_.best.size(), most_));
    for (const Known& known : known_) ++count_of(known.state);
    if (found_.best.empty()) find_smallest();
    return std::move(found_);
  }

 private:
  enum class State { open, too_large, impossible, unneeded, needless, planned };

  /// Candidates that are left open have least times that are too long.
  std::int64_t& count_of(State state) {
    return state == State::too_large    ? found_.too_large
           : state == State::impossible ? found_.impossible
           : state == State::unneeded   ? found_.unneeded
           : state == State::needless   ? found_.needless
           : state == State::planned    ? found_.planned
                                        : found_.too_slow;
  }

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
      if (!can([&] { least = least_.of(candidates_[c]); })) {
        known_[c].state = State::impossible;
      } else if (least.device_bytes > room_.device_bytes || least.host_bytes > room_.host_bytes) {
        known_[c].state = State::too_large;
      }
    }
  }

  /// Finds the families of candidates that may fit, in the order of the least time.
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

  /// Plans a candidate, but for what it can't be listed with. Its figures where it fits.
  std::optional<Fit> plan_one(int c, const std::optional<Fit>& best_of_family) {
    Known& known = known_[at(c)];
    if (known.state == State::planned && known.is_laid_out) return known.fit;
    known.state = State::impossible;
    can([&] {
      const CandidateStages stages(candidates_[at(c)], ranks_);
      const std::vector<Timing> timings = times_(stages.plans());
      const double seconds = timings.front().seconds;
      known.state = State::planned;
      if (is_too_slow(seconds)) return;
      if (best_of_family && !is_faster(seconds, *best_of_family)) return;
      known.is_laid_out = true;
      if (stages.most_alive(Space::device) > room_.device_bytes ||
          stages.most_alive(Space::host) > room_.host_bytes)
        return;
      Fit figures = stages.count(ranks_per_node_, timings);
      figures.candidate = c;
      if (has_room(figures, room_)) known.fit = figures;
    });
    return known.fit;
  }

  /// Lists one of a family, if any fits. False where it is left open, as none of those that it may
  /// be is worth a line.
  bool choose(const Family& family) {
    std::optional<Fit> best;
    for (std::size_t i = 0; i < family.members.size(); ++i) {
      if (can_be_left(family, i, best)) return false;
      const int c = family.members[i];
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
    return true;
  }

  /// What made families needless may have become so itself.
  void choose_again(std::vector<const Family*>& left) {
    for (bool any = true; any;) {
      any = false;
      std::vector<const Family*> still;
      for (const Family* family : left) {
        if (choose(*family))
          any = true;
        else
          still.push_back(family);
      }
      left = std::move(still);
    }
  }

  /// Pipelines, and experts over ranks: of these it is worth a while to do without.
  static bool has_long_plans(const Policy& policy) {
    return policy.stages > 1 || policy.expert_ranks > 1;
  }

  /// Whether there is a row before `fit` that leaves it without a reason to be listed.
  bool has_better(const Fit& fit) const {
    return std::any_of(found_.best.begin(), found_.best.end(), [&](const Fit& row) {
      return is_better(row, fit) && is_needless(fit, row);
    });
  }

  /// Whether that is so for whatever would be chosen of a family: `best` of those before its member
  /// `next`, or one of the others, by their bounds. It takes time that is well spent only where
  /// plans take more, those of pipelines and of experts over ranks.
  bool can_be_left(const Family& family, std::size_t next, const std::optional<Fit>& best) const {
    if (found_.best.empty() || (best && !has_better(*best))) return false;
    for (std::size_t i = next; i < family.members.size(); ++i) {
      const int c = family.members[i];
      const Known& known = known_[at(c)];
      const Policy& policy = candidates_[at(c)].policy;
      if (!has_long_plans(policy)) return false;
      if (known.state == State::impossible) continue;
      if (best && !is_faster(known.least.seconds, *best)) continue;
      Fit least;
      least.candidate = c;
      least.seconds = known.least.seconds;
      least.arena_bytes = known.least.device_bytes;
      least.host_arena_bytes = known.least.host_bytes;
      least.bits_of_one_rank = known.least.bits_of_one_rank;
      if (!has_better(least)) return false;
    }
    return true;
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
    int tries_left = most_tries_for_smallest;
    for (int c : order) {
      if (known_[at(c)].state == State::impossible) continue;
      const Least& least = known_[at(c)].least;
      if (smallest.candidate >= 0 && least.device_bytes >= smallest.arena_bytes) break;
      any = any || least.host_bytes > room_.host_bytes;
      if (least.host_bytes > room_.host_bytes) continue;
      if (has_long_plans(candidates_[at(c)].policy) && tries_left-- == 0) {
        found_.is_smallest_of_all = false;
        break;
      }
      can([&] {
        const CandidateStages stages(candidates_[at(c)], ranks_);
        if (smallest.candidate >= 0 && stages.most_alive(Space::device) >= smallest.arena_bytes)
          return;
        Fit fit = stages.count(ranks_per_node_, times_(stages.plans()));
        fit.candidate = c;
        any = true;
        if (fit.host_arena_bytes > room_.host_bytes) return;
        if (smallest.candidate < 0 || fit.arena_bytes < smallest.arena_bytes) smallest = fit;
      });
    }
    if (!any && error_) std::rethrow_exception(error_);
    if (!any) throw std::logic_error("there are no settings to choose from");
  }

  static constexpr int most_tries_for_smallest = 200;  // where each takes a while

  const std::vector<Candidate>& candidates_;
  const int ranks_, ranks_per_node_;
  const Room room_;
  const StepTimes& times_;
  const std::size_t most_;
  std::vector<Known> known_;  // of each candidate
  std::size_t limit_ = 0;     // length of the list
  bool skips_ = false;        // whether anything was skipped as too slow
  std::vector<Fit> chosen_;   // one of each family, in the order of the list
  std::exception_ptr error_;  // the first
  LeastFinder least_;
  Fits found_;
};

/// Where a schedule takes the memory of another, that one: to plan what is deferred in it takes
/// many times as long, and every candidate has that before it.
Candidate in_order_of_memory(const Candidate& candidate) {
  const ScheduleKind of_memory = schedule_of_memory(candidate.policy);
  if (of_memory == candidate.policy.schedule) return candidate;
  Candidate other = candidate;
  try {
    other.policy.chunk_units.clear();
    for (const UnitRange& chunk : make_chunks(*candidate.model, candidate.policy))
      other.policy.chunk_units.push_back(chunk.end - chunk.first);
  } catch (const Error&) {
    return candidate;  // the search says why
  }
  other.policy.schedule = of_memory;
  return other;
}

}  // namespace

std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy) {
  const StepPlan plan = plan_of_state(model, ranks, policy);
  return least_arena_bytes(Bounds(model, policy, plan), plan_memory(plan));
}

Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               const Room& room, const Rates& rates, std::size_t most, StepTimes times) {
  if (!times)
    times = [&](const std::vector<const StepPlan*>& plans) {
      return estimate_times(plans, ranks_per_node, rates);
    };
  std::vector<Candidate> searched = candidates;
  for (Candidate& candidate : searched) candidate = in_order_of_memory(candidate);
  Fits found = Search(searched, ranks, ranks_per_node, room, rates, times, most).run();
  const auto complete = [&](Fit& fit) {
    const Candidate& candidate = candidates[static_cast<std::size_t>(fit.candidate)];
    if (candidate.policy.schedule ==
        searched[static_cast<std::size_t>(fit.candidate)].policy.schedule)
      return;
    const CandidateStages stages(candidate, ranks);
    Fit own = stages.count(ranks_per_node, times(stages.plans()));
    own.candidate = fit.candidate;
    fit = own;
  };
  for (Fit& fit : found.best) complete(fit);
  if (found.smallest.candidate >= 0) complete(found.smallest);
  // What waits for deferred gradients may wait on the host.
  found.best.erase(std::remove_if(found.best.begin(), found.best.end(),
                                  [&](const Fit& fit) { return !has_room(fit, room); }),
                   found.best.end());
  std::stable_sort(found.best.begin(), found.best.end(), is_better);
  return found;
}

}  // namespace ostrakon::plan
