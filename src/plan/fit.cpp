// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <exception>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/plan/memory_plan.hpp>
#include <ostrakon/plan/reduction_tree.hpp>
#include <ostrakon/plan/report.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <stdexcept>
#include <tuple>

namespace ostrakon::plan {
namespace {

/// Whether each unit's saved activations are computed again.
std::vector<bool> find_checkpointed(const ModelDescription& model, const Policy& policy) {
  const int every = policy.activation_checkpointing.every;
  std::vector<bool> checkpointed;
  int before = 0;
  for (const UnitDescription& unit : model.units) {
    checkpointed.push_back(every > 0 && unit.recomputes && before % every == 0);
    before += unit.recomputes;
  }
  return checkpointed;
}

/// Of a rank's step. The last unit has no forward.
double count_flops(const ModelDescription& model, int ranks, const Policy& policy) {
  const std::vector<bool> checkpointed = find_checkpointed(model, policy);
  double flops = -model.units.back().forward_flops;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const UnitDescription& unit = model.units[u];
    flops += unit.forward_flops + unit.backward_flops;
    if (checkpointed[u]) flops += unit.recompute_flops;
  }
  return flops * static_cast<double>(policy.leaves / ranks);
}

/// How many sums over earlier micro-batches wait for the last one: the siblings of all nodes from
/// its leaf to the root. Where it is not known which is the last, no more than there are.
std::int64_t count_sums_before(std::int64_t micro_batches, LeafOrder order) {
  if (order == LeafOrder::shuffled) return micro_batches > 1 ? 1 : 0;
  std::int64_t count = 0;
  TreeNode node{order == LeafOrder::ascending ? micro_batches - 1 : 0, 1};
  for (; node.leaves < micro_batches; ++count) node = parent_and_sibling(node, micro_batches).first;
  return count;
}

/// Bytes that are alive, beside those that live from step to step, at one backward or another of
/// the last micro-batch. `plan` is any of this policy.
std::int64_t least_transient_bytes(const ModelDescription& model, const Policy& policy,
                                   const StepPlan& plan) {
  const int units = static_cast<int>(model.units.size());
  const std::vector<bool> checkpointed = find_checkpointed(model, policy);
  const bool gathers = policy.sharding == Sharding::full &&
                       (plan.group_ranks > 1 || model.element_bytes != model.master_bytes);
  const auto gradients = [&](int u, Part part) {
    return plan.elements(u, part) * model.master_bytes;
  };
  const auto gathered = [&](int u) {
    return gathers ? plan.elements(u, Part::whole) * model.element_bytes : 0;
  };
  // Of each sum over earlier micro-batches.
  const Part summed = plan.accumulation == Accumulation::reduce_last  ? Part::whole
                      : plan.accumulation == Accumulation::shard_each ? Part::group
                                                                      : Part::rank;
  const std::int64_t sums_before = count_sums_before(plan.micro_batches, policy.leaf_order);
  const auto sum_before = [&](int u) { return sums_before * gradients(u, summed); };
  // What forward left for the backward of this unit and those before it; their sums; and the
  // reduced gradients of those after it.
  std::int64_t left = model.batch_bytes + model.gradient_bytes, sums = 0, reduced = 0;
  for (int u = 0; u < units; ++u) reduced += gradients(u, Part::rank);

  const int lender = model.units.back().lender;
  std::int64_t most = 0;
  for (int u = 0; u < units; ++u) {
    const UnitDescription& unit = model.units[u];
    sums += sum_before(u);
    reduced -= gradients(u, Part::rank);
    std::int64_t alive = left + sums + reduced + unit.saved_bytes + unit.backward_workspace_bytes +
                         gradients(u, Part::whole);
    if (unit.backward_reads_parameters) alive += gathered(u);
    if (lender >= 0 && lender < u) alive += gradients(lender, Part::whole);
    if (u == units - 1) alive += unit.output_bytes + (lender >= 0 ? gathered(lender) : 0);
    most = std::max(most, alive);
    left += unit.output_bytes + (checkpointed[u] ? 0 : unit.saved_bytes);
  }
  return most;
}

bool is_better(const Fit& a, const Fit& b) {
  return std::tie(a.seconds, a.arena_bytes, a.candidate) <
         std::tie(b.seconds, b.arena_bytes, b.candidate);
}

class Search {
 public:
  Search(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
         std::int64_t bytes, const Rates& rates, std::size_t most)
      : candidates_(candidates),
        ranks_(ranks),
        ranks_per_node_(ranks_per_node),
        bytes_(bytes),
        rates_(rates),
        most_(most),
        states_(candidates.size(), State::unknown),
        figures_(candidates.size()) {}

  Fits run() {
    find_bounds();
    for (int c : ordered_by(least_seconds_)) {
      if (is_full() && least_seconds_[at(c)] > found_.best.back().seconds) break;
      if (!fits(c) || has_rather(c)) continue;
      list(figures_[at(c)]);
    }
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

  template <class T>
  std::vector<int> ordered_by(const std::vector<T>& values) const {
    std::vector<int> order(candidates_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return values[at(a)] < values[at(b)]; });
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
      const ModelDescription& model = *candidates_[c].model;
      const Policy& policy = candidates_[c].policy;
      // The operations as they are added in a plan may be rounded otherwise.
      least_seconds_.push_back((1.0 - 1e-9) * count_flops(model, ranks_, policy) / rates_.flops);
      std::int64_t least = 0;
      if (!can([&] { least = least_arena_bytes(model, ranks_, policy); })) states_[c] = State::out;
      if (least > bytes_) {
        states_[c] = State::out;
        ++found_.too_large;
      }
      least_bytes_.push_back(least);
    }
  }

  StepPlan build(int c, Purpose purpose) const {
    const Candidate& candidate = candidates_[at(c)];
    return build_step_plan(*candidate.model, ranks_, candidate.policy, purpose);
  }

  /// All figures but the arena.
  Fit count(int c, const StepPlan& plan) const {
    const Report report = make_report(plan, MemoryPlan{}, MemoryPlan{}, ranks_per_node_);
    Fit fit;
    fit.candidate = c;
    fit.flops = plan.flops();
    fit.bytes_inside_nodes = report.bytes_inside_nodes;
    fit.bytes_across_nodes = report.bytes_across_nodes;
    fit.seconds = fit.flops / rates_.flops +
                  static_cast<double>(fit.bytes_inside_nodes) / rates_.bytes_inside_nodes +
                  static_cast<double>(fit.bytes_across_nodes) / rates_.bytes_across_nodes;
    return fit;
  }

  /// Of all plans of a run.
  std::int64_t arena_bytes(int c, const StepPlan& training) const {
    std::int64_t bytes = plan_memory(training).arena_bytes;
    for (Purpose purpose : {Purpose::evaluate, Purpose::export_parameters})
      bytes = std::max(bytes, plan_memory(build(c, purpose)).arena_bytes);
    return bytes;
  }

  bool fits(int c) {
    State& state = states_[at(c)];
    if (state != State::unknown) return state == State::fits;
    state = State::out;
    can([&] {
      const StepPlan plan = build(c, Purpose::train);
      ++found_.planned;
      Fit fit = count(c, plan);
      if (is_full() && fit.seconds > found_.best.back().seconds) return;
      fit.arena_bytes = arena_bytes(c, plan);
      if (fit.arena_bytes > bytes_) return;
      figures_[at(c)] = fit;
      state = State::fits;
    });
    return state == State::fits;
  }

  bool has_rather(int c) {
    for (int other = candidates_[at(c)].rather; other >= 0; other = candidates_[at(other)].rather)
      if (fits(other) && figures_[at(other)].seconds <= figures_[at(c)].seconds) return true;
    return false;
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
    for (int c : ordered_by(least_bytes_)) {
      if (smallest.candidate >= 0 && least_bytes_[at(c)] >= smallest.arena_bytes) break;
      can([&] {
        const StepPlan plan = build(c, Purpose::train);
        const std::int64_t bytes = arena_bytes(c, plan);
        ++found_.planned;
        if (smallest.candidate >= 0 && bytes >= smallest.arena_bytes) return;
        smallest = count(c, plan);
        smallest.arena_bytes = bytes;
      });
    }
    if (smallest.candidate < 0 && error_) std::rethrow_exception(error_);
    if (smallest.candidate < 0) throw std::logic_error("there are no settings to choose from");
  }

  const std::vector<Candidate>& candidates_;
  const int ranks_, ranks_per_node_;
  const std::int64_t bytes_;
  const Rates rates_;
  const std::size_t most_;
  std::vector<State> states_;  // of each candidate, as all of these
  std::vector<Fit> figures_;
  std::vector<double> least_seconds_;
  std::vector<std::int64_t> least_bytes_;
  std::exception_ptr error_;  // the first
  Fits found_;
};

}  // namespace

std::int64_t least_arena_bytes(const ModelDescription& model, int ranks, const Policy& policy) {
  const StepPlan plan = build_step_plan(model, ranks, policy, Purpose::export_parameters);
  const MemoryPlan memory = plan_memory(plan);
  return std::max(memory.arena_bytes,
                  memory.persistent_bytes + least_transient_bytes(model, policy, plan));
}

Fits find_fits(const std::vector<Candidate>& candidates, int ranks, int ranks_per_node,
               std::int64_t bytes, const Rates& rates, std::size_t most) {
  return Search(candidates, ranks, ranks_per_node, bytes, rates, most).run();
}

}  // namespace ostrakon::plan
