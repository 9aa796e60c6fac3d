// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <sstream>
#include <tuple>

#include "other_programs.hpp"
#include "published_rows.hpp"

namespace ostrakon::published {

using plan::Action;
using plan::KernelWork;
using plan::Kind;
using plan::Resource;
using plan::ResourceSeconds;
using simulate::GroupShape;
using simulate::Machine;

/// An update moves so many times the bytes that it has to read and write: optimizers have several
/// kernels.
constexpr double update_passes = 1.5;
/// The time of each step of a ring of keys and values besides its messages.
constexpr double context_step_seconds = 20e-6;
/// The share of a ring's bandwidth that a double tree reaches.
constexpr double tree_bandwidth = 0.85;

/// The plans of a row with some number of micro-batches. Actions that take equally long are a
/// class, so that costs are computed once for each.
class PlannedRow::Step {
 public:
  Step(const PublishedRow& row, int micro_batches, bool merges)
      : row_(row), program_(program_of(row.stack)), micro_batches_(micro_batches) {
    const TheirModel model = describe_model(row, merges);
    extras_ = model.extras;
    const plan::Policy policy = policy_of(row, micro_batches, model.description);
    stages_ =
        plan::build_stage_plans(model.description, plan::make_chunks(model.description, policy),
                                row.ranks / row.pipeline, policy, plan::Purpose::train);
    for (plan::StepPlan& stage : stages_) {
      if (!program_.overlaps_reductions) reduce_at_end(stage);
      pointers_.push_back(&stage);
    }
    costs_ = std::make_unique<simulate::MachineCosts>(pointers_, any_machine(),
                                                      std::min(row.ranks_per_node, row.ranks),
                                                      simulate::Streams::concurrent);
    classify();
  }

  int micro_batches() const { return micro_batches_; }
  std::size_t actions() const {
    std::size_t sum = 0;
    for (const plan::StepPlan& stage : stages_) sum += stage.actions.size();
    return sum;
  }

  double seconds(const Machine& machine, const Stack& stack) const {
    const Played played(*this, machine, stack);
    return plan::simulate_times(pointers_, played).front().seconds + machine.step_seconds;
  }

  std::string explain(const Machine& machine, const Stack& stack) const {
    const Played played(*this, machine, stack);
    const std::vector<plan::Timing> timings = plan::simulate_times(pointers_, played);
    std::stringstream text;
    for (std::size_t s = 0; s < stages_.size(); s += std::max<std::size_t>(1, stages_.size() - 1)) {
      std::map<std::string, std::array<double, 2>> parts;
      for (std::size_t a = 0; a < stages_[s].actions.size(); ++a) {
        auto& part = parts[std::string(name(stages_[s].actions[a].kind)) + " " +
                           name(stages_[s].actions[a].stream)];
        part[0] += timings[s].ends[a] - timings[s].begins[a];
        part[1] += 1.0;
      }
      const plan::Timing& timing = timings[s];
      text << "  stage " << s << ": " << timing.seconds << " s, computing " << timing.computing
           << ", exposed " << timing.exposed_communication << ", waiting " << timing.waiting
           << "\n";
      if (s == 0)
        for (const plan::Exchange& exchange : extras_[1][forward_pass].exchanges)
          text << "    merged exchange of " << exchange.elements << " x " << exchange.element_bytes
               << " bytes over " << exchange.span.ranks << " along " << name(exchange.span.axis)
               << "\n";
      for (const auto& [what, part] : parts)
        text << "    " << what << ": " << part[0] << " s, " << part[1] << "\n";
    }
    return text.str();
  }

 private:
  class Played : public plan::Costs {
   public:
    Played(const Step& step, const Machine& machine, const Stack& stack)
        : step_(step), slowdown_(machine.slowdown), seconds_(step.class_seconds(machine, stack)) {}
    ResourceSeconds seconds(int stage, const Action& action) const override {
      const auto s = static_cast<std::size_t>(stage);
      const auto a = static_cast<std::size_t>(&action - step_.stages_[s].actions.data());
      return seconds_[static_cast<std::size_t>(step_.classes_[s][a])];
    }
    double slowdown() const override { return slowdown_; }

   private:
    const Step& step_;
    double slowdown_;
    std::vector<ResourceSeconds> seconds_;
  };

  static Machine any_machine() {
    Machine machine;
    machine.bits16.products = machine.kernels.row_bytes_per_second = 1.0;
    machine.inside_nodes.bytes_per_second = machine.across_nodes.bytes_per_second = 1.0;
    return machine;
  }

  /// Gradients are reduced when all micro-batches are computed.
  static void reduce_at_end(plan::StepPlan& stage) {
    int last = -1;
    for (std::size_t a = 0; a < stage.actions.size(); ++a)
      if (stage.actions[a].kind == Kind::backward) last = static_cast<int>(a);
    for (Action& action : stage.actions)
      if (action.kind == Kind::reduce_scatter || action.kind == Kind::gather_gradients) {
        action.waits.push_back(last);
        break;  // the others are behind it on their stream
      }
  }

  struct Class {
    int stage = 0, action = 0, pass = 0;
    int unit = -1;                 ///< of the model
    bool is_last_of_unit = false;  ///< no more gradients of the unit are summed over its ranks
  };

  void classify() {
    std::map<std::vector<double>, int> known;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const plan::StepPlan& stage = stages_[s];
      std::vector<int>& classes = classes_.emplace_back();
      std::map<std::pair<int, int>, int> passes;  // of unit and micro-batch, so far
      std::map<std::tuple<int, int, int>, std::size_t> last_sums;  // of unit and span
      const auto sum_of = [](const Action& action) {
        return std::tuple(action.unit, static_cast<int>(action.span.axis), action.span.ranks);
      };
      for (std::size_t a = 0; a < stage.actions.size(); ++a)
        if (stage.actions[a].kind == Kind::reduce_scatter) last_sums[sum_of(stage.actions[a])] = a;
      for (std::size_t a = 0; a < stage.actions.size(); ++a) {
        const Action& action = stage.actions[a];
        Class found;
        found.stage = static_cast<int>(s);
        found.action = static_cast<int>(a);
        if (action.unit >= 0) {
          found.unit = stage.units[static_cast<std::size_t>(action.unit)].number;
          if (found.unit < 0) found.unit = action.unit;
          int& pass = passes[{action.unit, action.micro_batch}];
          if (action.kind == Kind::recompute) pass = recompute_pass;
          if (action.kind == Kind::backward) pass = backward_pass;
          found.pass = pass;
        }
        found.is_last_of_unit =
            action.kind == Kind::reduce_scatter && last_sums.at(sum_of(action)) == a;
        const KernelWork& work = action.work;
        std::vector<double> key = {static_cast<double>(action.kind),
                                   static_cast<double>(action.stream),
                                   static_cast<double>(action.exchange),
                                   static_cast<double>(action.span.axis),
                                   static_cast<double>(action.span.ranks),
                                   static_cast<double>(action.span.stride),
                                   static_cast<double>(action.elements),
                                   static_cast<double>(action.element_bytes),
                                   action.flops,
                                   work.products,
                                   work.products_by_width,
                                   work.attention_flops,
                                   work.row_bytes,
                                   work.row_kernels,
                                   work.activations,
                                   static_cast<double>(action.phase),
                                   static_cast<double>(found.pass),
                                   static_cast<double>(kind_of_unit(found.unit)),
                                   static_cast<double>(found.is_last_of_unit),
                                   static_cast<double>(action.empty_if_even)};
        if (action.kind == Kind::send) key.push_back(static_cast<double>(s) + 1000.0 * action.peer);
        if (action.kind == Kind::optimize) key.push_back(static_cast<double>(found.unit));
        const auto [place, is_new] = known.emplace(key, static_cast<int>(list_.size()));
        if (is_new) list_.push_back(found);
        classes.push_back(place->second);
      }
    }
  }

  /// 0: the first of the model, 1: its last, 2: those between, 3: those with experts; -1: none.
  int kind_of_unit(int unit) const {
    if (unit < 0) return -1;
    if (unit == 0 || unit + 1 == static_cast<int>(extras_.size())) return unit == 0 ? 0 : 1;
    return row_.experts > 0 ? 2 + unit % 2 : 2;
  }

  std::vector<ResourceSeconds> class_seconds(const Machine& machine, const Stack& stack) const {
    Machine theirs = machine;
    theirs.kernels.row_bytes_per_second /= stack.rows;
    theirs.convert_bytes_per_second = 1e300;  // their casts are in what units read and write
    theirs.update_bytes_per_second = machine.kernels.row_bytes_per_second / update_passes;
    theirs.bits16.attention = machine.bits16.attention_or_products() * stack.attention;
    costs_->set_machine(theirs);
    std::vector<ResourceSeconds> all;
    for (const Class& of : list_) all.push_back(seconds_of(of, machine, theirs, stack));
    return all;
  }

  ResourceSeconds seconds_of(const Class& of, const Machine& machine, const Machine& theirs,
                             const Stack& stack) const {
    const plan::StepPlan& plan = stages_[static_cast<std::size_t>(of.stage)];
    Action action = plan.actions[static_cast<std::size_t>(of.action)];
    ResourceSeconds none;
    switch (action.kind) {
      case Kind::forward:
      case Kind::recompute:
      case Kind::backward: {
        if (row_.experts > 0 && kind_of_unit(of.unit) >= 2)
          action.work.row_bytes *= stack.expert_rows;
        ResourceSeconds taken = costs_->seconds(of.stage, action);
        if (action.phase > 0) return taken;
        const Extra& extra =
            extras_[static_cast<std::size_t>(of.unit)][static_cast<std::size_t>(of.pass)];
        taken[Resource::device] += extra.plain_bytes / machine.kernels.row_bytes_per_second;
        for (const plan::Exchange& exchange : extra.exchanges) {
          Action as_action;
          as_action.kind = Kind::exchange;
          as_action.exchange = exchange.kind;
          as_action.span = exchange.span;
          as_action.elements = exchange.elements;
          as_action.element_bytes = exchange.element_bytes;
          as_action.empty_if_even = exchange.empty_if_even;
          as_action.unit = action.unit;
          const ResourceSeconds one = exchange_seconds(of, as_action, stack);
          for (const Resource resource :
               {Resource::latency, Resource::inside_nodes, Resource::across_nodes})
            taken[resource] += one[resource];
        }
        return taken;
      }
      case Kind::exchange:
        return exchange_seconds(of, action, stack);
      case Kind::gather:
        if (row_.autocast) action.element_bytes = 4;
        return costs_->seconds(of.stage, action);
      case Kind::accumulate: {
        ResourceSeconds taken = costs_->seconds(of.stage, action);
        taken[Resource::device] = static_cast<double>(action.elements) * row_.accumulate_bytes /
                                  machine.kernels.row_bytes_per_second;
        return taken;
      }
      case Kind::gather_gradients:
        return none;  // with the sum
      case Kind::reduce_scatter: {
        if (row_.sharding != "full" && row_.sharding != "keep" && !of.is_last_of_unit) return none;
        action.element_bytes = row_.reduce_bytes;  // ours are fp32 over replicas
        ResourceSeconds taken = costs_->seconds(of.stage, action);
        if (row_.sharding == "none" || action.span.axis == plan::Axis::replicate) {
          at_most_tree(of, action, theirs, &taken);
          for (const Resource resource :
               {Resource::latency, Resource::inside_nodes, Resource::across_nodes})
            taken[resource] *= 2.0;
        }
        return taken;
      }
      case Kind::gather_updates: {
        ResourceSeconds taken = costs_->seconds(of.stage, action);
        const double blocks = static_cast<double>(row_.layers) / row_.pipeline;
        const double calls = std::max(
            1.0, std::min(program_.calls_of_block * blocks, static_cast<double>(row_.shard_ranks)) /
                     blocks);
        if (program_.calls_of_block > 1) taken[Resource::latency] *= calls;
        if (program_.hides_updates)  // but not that they slow down what hides them
          for (const Resource resource :
               {Resource::latency, Resource::inside_nodes, Resource::across_nodes})
            taken[resource] *= machine.slowdown / (1.0 + machine.slowdown);
        return taken;
      }
      case Kind::send: {
        ResourceSeconds taken = costs_->seconds(of.stage, action);
        if (!program_.blocking_sends) return taken;
        // On the device, which does nothing else then.
        none[Resource::device] = taken[Resource::latency] + taken[Resource::inside_nodes] +
                                 taken[Resource::across_nodes];
        return none;
      }
      default:
        return costs_->seconds(of.stage, action);
    }
  }

  ResourceSeconds exchange_seconds(const Class& of, const Action& action,
                                   const Stack& stack) const {
    // Norms' and biases' vectors, which others have on all tensor ranks.
    if (action.elements < 16 * row_.width) return {};
    if (action.span.axis == plan::Axis::shard && row_.context > 1 && row_.expert == 1) {
      // A ring of messages behind attention.
      ResourceSeconds hidden;
      hidden[Resource::latency] = (row_.context - 1) * context_step_seconds;
      return hidden;
    }
    Action as_ring = action;  // their sums are a library's, ours an all-to-all
    if (action.span.axis == plan::Axis::tensor) as_ring.exchange = plan::ExchangeKind::gather;
    ResourceSeconds taken = costs_->seconds(of.stage, as_ring);
    if (action.span.axis == plan::Axis::tensor)
      for (const Resource resource :
           {Resource::latency, Resource::inside_nodes, Resource::across_nodes})
        taken[resource] *= stack.tensor_exposed;
    return taken;
  }

  /// Half of an all-reduce: a double tree where that takes less than two rings.
  void at_most_tree(const Class& of, const Action& action, const Machine& theirs,
                    ResourceSeconds* taken) const {
    const GroupShape shape = costs_->group(of.stage, action);
    if (!shape.spans_nodes()) return;
    const auto bytes = static_cast<double>(plan::array_bytes(action));
    const simulate::Network &inside = theirs.inside_nodes, &across = theirs.across_nodes;
    const double links = across.bytes_per_second * shape.ranks_per_node;
    const double rate =
        tree_bandwidth *
        (shape.ranks_per_node > 1 ? std::min(links, inside.bytes_per_second) : links);
    const double latency = 0.5 * across.base_seconds +
                           (shape.ranks_per_node - 1) * inside.step_seconds +
                           std::log2(shape.nodes()) * across.step_seconds;
    const double transfer = bytes * (shape.ranks - 1) / shape.ranks / rate;
    const double ring = (*taken)[Resource::latency] + (*taken)[Resource::across_nodes];
    if (latency + transfer >= ring) return;
    (*taken)[Resource::latency] = latency;
    (*taken)[Resource::across_nodes] = transfer;
  }

  PublishedRow row_;
  Program program_;
  int micro_batches_;
  std::vector<Extras> extras_;
  std::vector<plan::StepPlan> stages_;
  std::vector<const plan::StepPlan*> pointers_;
  std::unique_ptr<simulate::MachineCosts> costs_;
  std::vector<std::vector<int>> classes_;  // of each stage and action
  std::vector<Class> list_;                // an action of each
};

PlannedRow::PlannedRow(const PublishedRow& row, const RowPlanning& planning) : row_(row) {
  const bool merges = planning.merges_phases && (row.pipeline > 1 || row.micro_batches > 2);
  std::vector<int> counts = {row.micro_batches};
  // A step of many micro-batches grows by the same with each.
  const int few = std::max(2, row.pipeline);
  if (planning.continues_line && row.micro_batches > 2 * few) counts = {few, 2 * few};
  for (const int count : counts) steps_.push_back(std::make_unique<Step>(row, count, merges));
}
PlannedRow::~PlannedRow() = default;
PlannedRow::PlannedRow(PlannedRow&&) noexcept = default;
PlannedRow& PlannedRow::operator=(PlannedRow&&) noexcept = default;

double PlannedRow::seconds(const Machine& machine, const Stack& stack) const {
  double seconds = steps_.front()->seconds(machine, stack);
  if (steps_.size() > 1) {
    const int fewer = steps_.front()->micro_batches(), more = steps_.back()->micro_batches();
    const double each = (steps_.back()->seconds(machine, stack) - seconds) / (more - fewer);
    seconds += each * (row_.micro_batches - fewer);
  }
  return seconds * (1.0 + simulate::added_by_variation(machine, row_.ranks));
}

std::size_t PlannedRow::actions() const {
  std::size_t sum = 0;
  for (const auto& step : steps_) sum += step->actions();
  return sum;
}

std::string PlannedRow::explain(const Machine& machine, const Stack& stack) const {
  return steps_.back()->explain(machine, stack);
}

}  // namespace ostrakon::published
