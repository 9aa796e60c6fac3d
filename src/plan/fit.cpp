// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/step_plan.hpp>
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

std::int64_t least_arena_bytes(const Bounds& bounds, const StepPlan& export_plan) {
  const MemoryPlan memory = plan_memory(export_plan);
  return std::max(memory.arena_bytes, memory.persistent_bytes + bounds.transient_bytes());
}

bool is_better(const Fit& a, const Fit& b) {
  return std::tie(a.seconds, a.arena_bytes, a.candidate) <
         std::tie(b.seconds, b.arena_bytes, b.candidate);
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
        states_(candidates.size(), State::unknown),
        figures_(candidates.size()) {}

  Fits run() {
    find_bounds();
    for (int c : ordered_by([](const Least& least) { return least.seconds; })) {
      if (is_full() && least_[at(c)].seconds > found_.best.back().seconds) break;
      if (is_known_to_have_rather(c) || !fits(c) || has_rather(c)) continue;
      list(figures_[at(c)]);
    }
    for (std::size_t c = 0; c < states_.size(); ++c)
      if (states_[c] == State::unknown)
        ++(is_known_to_have_rather(static_cast<int>(c)) ? found_.unneeded : found_.too_slow);
    if (found_.best.empty()) find_smallest();
    return std::move(found_);
  }

 private:
  enum class State {
    unknown,
    out,  ///< can't be planned, or does not fit, or costs more than a whole list of others
    fits
  };

  static std::size_t at(int candidate) { return static_cast<std::size_t>(candidate); }
  bool is_full() const { return found_.best.size() == most_; }

  template <class Value>
  std::vector<int> ordered_by(const Value& value) const {
    std::vector<int> order(candidates_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return value(least_[at(a)]) < value(least_[at(b)]); });
    return order;
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
        states_[c] = State::out;
        ++found_.impossible;
      }
      if (least.device_bytes > room_.device_bytes || least.host_bytes > room_.host_bytes) {
        states_[c] = State::out;
        ++found_.too_large;
      }
      least_.push_back(least);
    }
  }

  /// What a candidate takes at least.
  struct Least {
    std::int64_t device_bytes = 0;
    std::int64_t host_bytes = 0;
    double seconds = 0.0;
  };
  Least find_least(const Candidate& candidate) const {
    const StepPlan plan = plan_of_state(*candidate.model, ranks_, candidate.policy);
    const Bounds bounds(*candidate.model, candidate.policy, plan);
    Least least;
    least.device_bytes = least_arena_bytes(bounds, plan);
    least.host_bytes = plan_memory(plan, Space::host).arena_bytes;
    Fit fit;
    fit.flops = bounds.flops();
    fit.bytes_copied = bounds.copied_bytes();
    fit.bytes_on_host = bounds.bytes_on_host();
    const Report sent =
        make_report(bounds.collectives(), MemoryPlan{}, MemoryPlan{}, ranks_per_node_);
    fit.bytes_inside_nodes = sent.bytes_inside_nodes;
    fit.bytes_across_nodes = sent.bytes_across_nodes;
    // More may go across nodes in a step, and less inside of them.
    if (rates_.bytes_across_nodes > rates_.bytes_inside_nodes)
      fit.bytes_across_nodes += std::exchange(fit.bytes_inside_nodes, 0);
    // The operations as they are added in a plan may be rounded otherwise.
    least.seconds = (1.0 - 1e-9) * seconds_of(fit);
    return least;
  }

  double seconds_of(const Fit& fit) const {
    return fit.flops / rates_.flops +
           static_cast<double>(fit.bytes_inside_nodes) / rates_.bytes_inside_nodes +
           static_cast<double>(fit.bytes_across_nodes) / rates_.bytes_across_nodes +
           static_cast<double>(fit.bytes_copied) / rates_.bytes_copied +
           static_cast<double>(fit.bytes_on_host) / rates_.bytes_on_host;
  }

  StepPlan build(int c, Purpose purpose) const {
    const Candidate& candidate = candidates_[at(c)];
    return build_step_plan(*candidate.model, ranks_, candidate.policy, purpose);
  }

  /// All figures but the arenas.
  Fit count(int c, const StepPlan& plan) const {
    const Report report = make_report(plan, MemoryPlan{}, MemoryPlan{}, ranks_per_node_);
    Fit fit;
    fit.candidate = c;
    fit.flops = plan.flops();
    fit.bytes_inside_nodes = report.bytes_inside_nodes;
    fit.bytes_across_nodes = report.bytes_across_nodes;
    fit.bytes_copied = report.bytes_to_device + report.bytes_to_host;
    fit.bytes_on_host = report.bytes_on_host;
    fit.seconds = seconds_of(fit);
    return fit;
  }

  /// Of all plans of a run.
  void lay_out(int c, const StepPlan& training, Fit& fit) const {
    const auto see = [&](const StepPlan& plan) {
      fit.arena_bytes = std::max(fit.arena_bytes, plan_memory(plan).arena_bytes);
      fit.host_arena_bytes =
          std::max(fit.host_arena_bytes, plan_memory(plan, Space::host).arena_bytes);
    };
    see(training);
    for (Purpose purpose : {Purpose::evaluate, Purpose::export_parameters}) see(build(c, purpose));
  }

  bool fits(int c) {
    State& state = states_[at(c)];
    if (state != State::unknown) return state == State::fits;
    state = State::out;
    ++found_.impossible;
    can([&] {
      const StepPlan plan = build(c, Purpose::train);
      --found_.impossible;
      ++found_.planned;
      Fit fit = count(c, plan);
      if (is_full() && fit.seconds > found_.best.back().seconds) return;
      lay_out(c, plan, fit);
      if (fit.arena_bytes > room_.device_bytes || fit.host_arena_bytes > room_.host_bytes) return;
      figures_[at(c)] = fit;
      state = State::fits;
    });
    return state == State::fits;
  }

  /// Whether `is_rather` holds for one of those that are chosen instead of `c` where they can be.
  template <class IsRather>
  bool any_rather(int c, const IsRather& is_rather) const {
    for (int other = candidates_[at(c)].rather; other >= 0; other = candidates_[at(other)].rather)
      if (is_rather(other)) return true;
    return false;
  }
  /// As far as is known without planning.
  bool is_known_to_have_rather(int c) const {
    return any_rather(c, [&](int other) {
      return states_[at(other)] == State::fits &&
             figures_[at(other)].seconds <= least_[at(c)].seconds;
    });
  }
  bool has_rather(int c) {
    const double seconds = figures_[at(c)].seconds;
    return any_rather(c, [&](int other) {
      return least_[at(other)].seconds <= seconds && fits(other) &&
             figures_[at(other)].seconds <= seconds;
    });
  }

  bool is_same_step(const Fit& a, const Fit& b) const {
    return a.seconds == b.seconds && a.arena_bytes == b.arena_bytes &&
           build(a.candidate, Purpose::train).hash() == build(b.candidate, Purpose::train).hash();
  }

  void list(const Fit& fit) {
    std::vector<Fit>& best = found_.best;
    // Candidates come in their order where their operations are the same.
    if (std::any_of(best.begin(), best.end(),
                    [&](const Fit& other) { return is_same_step(fit, other); }))
      return;
    best.insert(std::upper_bound(best.begin(), best.end(), fit, is_better), fit);
    if (best.size() > most_) best.pop_back();
  }

  void find_smallest() {
    Fit& smallest = found_.smallest;
    bool any = false;  // that can be planned
    for (int c : ordered_by([](const Least& least) { return least.device_bytes; })) {
      const Least& least = least_[at(c)];
      if (smallest.candidate >= 0 && least.device_bytes >= smallest.arena_bytes) break;
      any = any || least.host_bytes > room_.host_bytes;
      if (least.host_bytes > room_.host_bytes) continue;
      can([&] {
        const StepPlan plan = build(c, Purpose::train);
        Fit fit = count(c, plan);
        lay_out(c, plan, fit);
        ++found_.planned;
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
  std::vector<State> states_;  // of each candidate, as all of these
  std::vector<Fit> figures_;
  std::vector<Least> least_;
  std::exception_ptr error_;  // the first
  Fits found_;
};

}  // namespace

std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy) {
  const StepPlan plan = plan_of_state(model, ranks, policy);
  return least_arena_bytes(Bounds(model, policy, plan), plan);
}

Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               const Room& room, const Rates& rates, std::size_t most) {
  return Search(candidates, ranks, ranks_per_node, room, rates, most).run();
}

}  // namespace ostrakon::plan
