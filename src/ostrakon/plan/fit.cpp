// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/plan/work.hpp>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace ostrakon::plan {
namespace {

/// What is known of a candidate before a step of it is planned. `plan` is any of its policy, but to
/// decode.
class Bounds {
 public:
  Bounds(const ModelDescription& model, const Policy& policy, const StepPlan& plan)
      : model_(model), policy_(policy), plan_(plan), units_(static_cast<int>(model.units.size())) {
    const int every = policy.activation_checkpointing.every;
    int before = 0;
    for (const UnitDescription& unit : model.units) {
      checkpointed_.push_back(every > 0 && unit.recomputes && before % every == 0);
      before += unit.recomputes;
    }
    while (first_trained_ < units_ && plan.padded_elements[first_trained_] == 0) ++first_trained_;
    reach_ = prefetch_depth();
  }

  /// Of a rank's step, but for updates. The last unit has no forward.
  double flops() const {
    double flops = -model_.units.back().forward_flops;
    for (int u = 0; u < units_; ++u) {
      flops += unit(u).forward_flops;
      if (u < first_trained_) continue;
      flops += unit(u).backward_flops;
      if (checkpointed_[u]) flops += unit(u).recompute_flops;
    }
    return flops * static_cast<double>(plan_.micro_batches);
  }

  /// At least so many bytes are copied: what is gathered, summed gradients, updates, activations.
  std::int64_t copied_bytes() const {
    std::int64_t bytes = 0;
    for (int u = 0; u < units_; ++u) {
      if (parameters_are_on_host())
        bytes += gathers_at_least(u) * plan_.buffers[computed_with(u)].bytes;
      const std::int64_t updated = plan_.elements(u, plan_.optimized);
      if (plan_.updates == Space::host) {
        bytes += gradients(u, Part::rank);
        if (!parameters_are_on_host()) bytes += updated * model_.element_bytes;
      } else if (parameters_are_on_host()) {
        bytes += 2 * updated * model_.master_bytes;
      }
      if (waits_on_host(u)) bytes += 2 * plan_.micro_batches * bytes_away(u);
    }
    return bytes;
  }

  /// A plan of collectives that are in every step, each as one over all that it is about in the
  /// step: no more is sent in them than in the step.
  StepPlan collectives() const {
    StepPlan least;
    least.ranks = plan_.ranks;
    least.group_ranks = plan_.group_ranks;
    const auto add = [&](Group group, int u, Segment segment, std::int64_t times,
                         std::int64_t element_bytes) {
      Action action;
      action.kind = Kind::gather;
      action.group = group;
      action.group_ranks = group == Group::shard ? plan_.group_ranks : plan_.replicas();
      const Part whole = group == Group::shard ? Part::whole : Part::group;
      action.elements = times * plan_.elements(u, whole, segment);
      action.element_bytes = element_bytes;
      if (action.group_ranks > 1 && action.elements > 0) least.actions.push_back(action);
    };
    const bool is_full = policy_.sharding == Sharding::full;
    const std::int64_t computed_bytes =
        plan_.working.empty() ? model_.master_bytes : model_.element_bytes;
    const auto times = [&](bool each) { return each ? plan_.micro_batches : 1; };
    for (int u = 0; u < units_; ++u) {
      if (is_full) add(Group::shard, u, Segment::both, gathers_at_least(u), model_.element_bytes);
      const auto of_trained = [&](Group group, std::int64_t often, std::int64_t element_bytes) {
        add(group, u, Segment::trained, often, element_bytes);
      };
      of_trained(Group::shard, times(plan_.accumulation != Accumulation::reduce_last),
                 policy_.reduce == Number::fp32 ? model_.master_bytes : bytes_of(policy_.reduce));
      of_trained(Group::replicate, times(plan_.accumulation == Accumulation::reduce_each),
                 model_.master_bytes);
      // Gradients are gathered, or updates.
      of_trained(Group::replicate, 1,
                 plan_.optimized == Part::rank ? computed_bytes : model_.master_bytes);
      if (!is_full)
        of_trained(Group::shard, 1,
                   plan_.optimized == Part::whole ? model_.master_bytes : computed_bytes);
    }
    return least;
  }

  /// At least so many bytes_on_host(): of updates.
  std::int64_t bytes_on_host() const {
    if (plan_.updates != Space::host) return 0;
    std::int64_t bytes = 0;
    for (int u = 0; u < units_; ++u) {
      bytes += 2 * plan_.elements(u, plan_.optimized) * model_.master_bytes;
      for (const std::vector<int>* moments : {&plan_.first_moments, &plan_.second_moments})
        if (!moments->empty() && (*moments)[u] >= 0) bytes += plan_.buffers[(*moments)[u]].bytes;
    }
    return bytes;
  }

  /// Bytes of device memory that are alive, beside those that live from step to step, at one
  /// backward or another of the last micro-batch, or while matrices are updated.
  std::int64_t transient_bytes() const {
    // What forward left for the backward of this unit and those before it, and what stays gathered
    // for it; their sums; and the reduced gradients of those after it.
    std::int64_t left = model_.batch_bytes + model_.gradient_bytes, sums = 0, reduced = 0;
    for (int u = 0; u < units_; ++u) reduced += summed(u, Part::rank);
    const int lender = model_.units.back().lender;
    std::int64_t most = 0;
    for (int u = 0; u < units_; ++u) {
      sums += sums_before() * summed(u, summed_part());
      reduced -= summed(u, Part::rank);
      if (!plan_.whole_matrices[u].empty())
        most = std::max(
            most, reduced + gradients(u, Part::whole) + unit(u).orthogonalize_workspace_bytes);
      if (u < first_trained_) continue;
      const bool is_last = u == units_ - 1;
      std::int64_t alive = left + sums + reduced + input_bytes(u) + unit(u).saved_bytes +
                           unit(u).backward_workspace_bytes + gradients(u, Part::whole) +
                           in_flight(u);
      // It is on its way back.
      if (u > first_trained_ && waits_on_host(u - 1)) alive += bytes_away(u - 1);
      alive += gathered_for_backward(u);
      if (prefetches() && u > first_trained_) alive += gathered_for_backward(u - 1);
      if (lender >= 0 && lender < u && model_.units.back().lender_gradients)
        alive += gradients(lender, Part::whole);
      if (is_last) alive += unit(u).output_bytes + (lender >= 0 ? gathered(lender) : 0);
      most = std::max(most, alive);
      if (!waits_on_host(u)) left += bytes_away(u);
      if (stays_gathered()) left += gathered_for_backward(u);
    }
    return most;
  }

 private:
  const UnitDescription& unit(int index) const { return model_.units[index]; }
  bool parameters_are_on_host() const {
    return plan_.buffers[computed_with(0)].space == Space::host;
  }
  /// What is gathered, or computed with where every rank has the whole.
  int computed_with(int u) const {
    return plan_.working.empty() ? plan_.parameters[u] : plan_.working[u];
  }
  /// In a step, where a unit's parameters are gathered at all.
  std::int64_t gathers_at_least(int u) const {
    // What is needed again within so many visits may be there still.
    const int reach = reach_ + 1;
    const std::int64_t forward = u > reach ? plan_.micro_batches : 1;
    const Reshard::Kind reshard = policy_.reshard_after_forward.kind;
    const bool again =
        policy_.units.empty() && (reshard == Reshard::always || reshard == Reshard::automatic) &&
        u >= first_trained_ && u < units_ - 1 - reach && gathered_for_backward(u) > 0;
    return forward + (again ? plan_.micro_batches : 0);
  }
  int prefetch_depth() const {
    int most = 0;
    const auto see = [&](const std::optional<Prefetch>& prefetch) {
      if (!prefetch) return;
      most = std::max(most, prefetch->units.empty() ? prefetch->depth : units_);
    };
    see(policy_.forward_prefetch);
    see(policy_.backward_prefetch);
    for (const UnitRule& rule : policy_.units) {
      see(rule.forward_prefetch);
      see(rule.backward_prefetch);
    }
    return most;
  }

  std::int64_t gathered(int u) const {
    const bool converts = model_.element_bytes != model_.master_bytes && plan_.working.empty();
    const bool gathers = parameters_are_on_host() || (policy_.sharding == Sharding::full &&
                                                      (plan_.group_ranks > 1 || converts));
    return gathers ? plan_.elements(u, Part::whole, Segment::both) * model_.element_bytes : 0;
  }
  std::int64_t gathered_for_backward(int u) const {
    return unit(u).backward_reads_parameters && u != model_.units.back().lender ? gathered(u) : 0;
  }
  /// Whether all units' parameters stay from forward to backward.
  bool stays_gathered() const {
    return policy_.units.empty() && policy_.reshard_after_forward.kind == Reshard::never;
  }
  /// Whether those of the unit before are always gathered while one computes backward.
  bool prefetches() const {
    const Prefetch& prefetch = policy_.backward_prefetch;
    return !stays_gathered() && policy_.units.empty() &&
           policy_.in_flight_gathers == GatherLimit() && prefetch.units.empty() &&
           prefetch.depth > 0;
  }

  /// Gradients of units after `u` that are reduced, or copied, while it computes.
  std::int64_t in_flight(int u) const {
    std::int64_t bytes = 0;
    for (int v = u + 1; v <= std::min(u + policy_.in_flight_reductions, units_ - 1); ++v) {
      if (plan_.ranks == 1 && plan_.updates == Space::device) continue;
      bytes += gradients(v, Part::whole);
      const bool packs = plan_.group_ranks > 1 && policy_.reduce != Number::fp32;
      if (packs)
        bytes += 2 * plan_.elements(v, Part::whole) * bytes_of(policy_.reduce);
      else if (plan_.ranks > 1)
        bytes += gradients(v, Part::whole);
    }
    return bytes;
  }

  std::int64_t gradients(int u, Part part) const {
    return plan_.elements(u, part) * model_.master_bytes;
  }
  /// Of gradients that wait for others: where they are updated.
  std::int64_t summed(int u, Part part) const {
    return plan_.updates == Space::device ? gradients(u, part) : 0;
  }
  Part summed_part() const {
    return plan_.accumulation == Accumulation::reduce_last  ? Part::whole
           : plan_.accumulation == Accumulation::shard_each ? Part::group
                                                            : Part::rank;
  }
  /// How many sums over earlier micro-batches wait for the last one: the siblings of all nodes from
  /// its leaf to the root. Where it is not known which is the last, no more than there are.
  std::int64_t sums_before() const {
    const std::int64_t micro_batches = plan_.micro_batches;
    if (policy_.leaf_order == LeafOrder::shuffled) return micro_batches > 1 ? 1 : 0;
    std::int64_t count = 0;
    TreeNode node{policy_.leaf_order == LeafOrder::ascending ? micro_batches - 1 : 0, 1};
    for (; node.leaves < micro_batches; ++count)
      node = parent_and_sibling(node, micro_batches).first;
    return count;
  }

  std::int64_t input_bytes(int u) const { return u > 0 ? unit(u - 1).output_bytes : 0; }
  /// Of what backward reads, that waits on the host while others are computed.
  bool waits_on_host(int u) const {
    return policy_.offload_activations && u >= first_trained_ && u < units_ - 2;
  }
  /// Bytes of what forward leaves for backward of `u`, wherever it waits.
  std::int64_t bytes_away(int u) const {
    return input_bytes(u) + (checkpointed_[u] ? 0 : unit(u).saved_bytes);
  }

  const ModelDescription& model_;
  const Policy& policy_;
  const StepPlan& plan_;
  const int units_;
  std::vector<bool> checkpointed_;  // whether a unit's saved activations are computed again
  int first_trained_ = 0;
  int reach_ = 0;  // most units that are gathered ahead
};

StepPlan plan_of_state(const ModelDescription& model, int ranks, const Policy& policy) {
  return build_step_plan(model, ranks, policy, Purpose::export_parameters);
}

std::int64_t least_arena_bytes(const Bounds& bounds, const MemoryPlan& memory) {
  return std::max(memory.arena_bytes, memory.persistent_bytes + bounds.transient_bytes());
}

/// Most bytes alive at one action, or a little less: no arena has less.
std::int64_t most_alive(const StepPlan& plan, Space space) {
  std::vector<std::int64_t> changes(plan.actions.size() + 1, 0);
  std::int64_t alive = 0;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != space || (!buffer.persistent && buffer.first < 0)) continue;
    changes[buffer.persistent ? 0 : static_cast<std::size_t>(buffer.first)] += buffer.bytes;
    if (!buffer.persistent) changes[static_cast<std::size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  std::int64_t most = 0;
  for (std::int64_t change : changes) most = std::max(most, alive += change);
  return most;
}

/// Estimates that differ by less than a thousandth mean the same: then the smaller arena is better.
constexpr double same_time = 1.001;

bool is_better(const Fit& a, const Fit& b) {
  const auto key = [](const Fit& fit) {
    const double time = fit.seconds > 0.0 ? std::floor(std::log(fit.seconds) / std::log(same_time))
                                          : -std::numeric_limits<double>::infinity();
    return std::tuple(time, fit.arena_bytes, fit.seconds, fit.candidate);
  };
  return key(a) < key(b);
}

bool is_faster(double seconds, const Fit& than) {
  return seconds < (1.0 - small_difference) * than.seconds;
}

/// Whether `fit`, which takes no less time than `other`, does not need noticeably less memory
/// either, on the device or on the host: nobody would choose it.
bool is_needless(const Fit& fit, const Fit& other) {
  const auto little = [](std::int64_t bytes) {
    return static_cast<std::int64_t>(small_difference * static_cast<double>(bytes));
  };
  return fit.arena_bytes >= other.arena_bytes - little(other.arena_bytes) &&
         fit.host_arena_bytes >=
             other.host_arena_bytes - little(other.arena_bytes + other.host_arena_bytes);
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

  /// The plan of what lives from step to step, which is the same for many candidates.
  const StepPlan& plan_of_state(const Candidate& candidate) {
    const Policy& policy = candidate.policy;
    const StateKey key = {candidate.model,           policy.sharding,
                          policy.shard_group,        policy.shard_optimizer_over,
                          accumulation_of(policy),   policy.offload,
                          policy.moments.count,      policy.moments.number,
                          policy.checkpoint_staging, policy.leaves};
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
                              Offload, int, Number, bool, std::int64_t>;

  const std::vector<Candidate>& candidates_;
  const int ranks_, ranks_per_node_;
  const Room room_;
  const Rates rates_;
  const std::size_t most_;
  std::vector<State> states_;                // of each candidate, as the next
  std::vector<std::optional<Fit>> figures_;  // where it is known to fit
  std::set<int> is_laid_out_;                // those of which it is known whether they fit
  std::size_t limit_ = 0;                    // length of the list
  bool skips_ = false;                       // whether anything was left out as too slow
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
