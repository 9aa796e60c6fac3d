// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/machine_costs.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/report/report_text.hpp>
#include <tuple>

namespace ostrakon::simulate {
namespace {

using plan::Action;
using plan::Axis;
using plan::Kind;
using plan::Processing;
using plan::Resource;
using plan::ResourceSeconds;
using plan::Role;
using plan::StepPlan;

/// Bytes that an action reads and writes on the device, besides phases of units and bytes sent by
/// collectives: each array once for reading and once for writing.
double processed_bytes(const StepPlan& plan, const Action& action) {
  const auto elements = static_cast<double>(action.elements);
  const auto master = static_cast<double>(plan.layouts.masters.element_bytes);
  const auto computed = static_cast<double>(plan.layouts.gathered.element_bytes);
  switch (plan::traits(action.kind).processing) {
    case Processing::none:
      return 0.0;
    case Processing::norms:
      return elements * master;
    case Processing::digests:
      if (action.buffer(Role::parameter_gradients) >= 0) return elements * master;
      return elements * (action.buffer(Role::shard) >= 0
                             ? static_cast<double>(plan.layouts.compute.element_bytes)
                             : computed);
    case Processing::converts: {  // a rank's part of what is gathered, or all that is to be reduced
      const double parts = action.converts ? std::max(1, action.span.ranks) : 1.0;
      const bool converts = action.converts || action.buffer(Role::packed) >= 0;
      return converts ? elements / parts * (master + static_cast<double>(action.element_bytes))
                      : 0.0;
    }
    case Processing::dequantizes:
      return static_cast<double>(plan.buffers[action.buffer(Role::source)].bytes) +
             elements * computed;
    case Processing::keeps:
      return 2.0 * elements * computed;
    case Processing::rows:
    case Processing::updates: {
      double bytes = 0.0;
      for (const plan::Use& use : action.uses) {
        const double times = use.access == plan::Access::read_write ? 2.0 : 1.0;
        if (use.role == Role::first_moment || use.role == Role::second_moment)
          bytes += times * static_cast<double>(plan.buffers[use.buffer].bytes);
        else
          bytes += times * elements * (use.role == Role::parameters ? computed : master);
      }
      return bytes;
    }
  }
  return 0.0;
}

/// Whether an action sums gradients by an all-to-all, and adds them up itself.
bool is_ordered_sum(const StepPlan& plan, const Action& action) {
  return action.kind == Kind::reduce_scatter && plan.layouts.summation == plan::Summation::ordered;
}

bool has_experts(const StepPlan& plan, const Action& action) {
  return action.unit >= 0 && plan.units[static_cast<std::size_t>(action.unit)].capacity.rows > 0;
}

/// Bytes of each element of a collective as the stack sends it.
std::int64_t sent_element_bytes(const Stack& stack, const StepPlan& plan, const Action& action) {
  constexpr std::int64_t fp32_bytes = 4;
  // What is quantized is sent as bytes.
  if (action.kind == Kind::gather && stack.autocast && action.element_bytes > 1)
    return std::max(fp32_bytes, plan.layouts.gathered.element_bytes);
  const bool sums = action.kind == Kind::reduce_scatter || action.kind == Kind::gather_gradients;
  if (sums && stack.sum_bits > 0.0)
    return std::min(action.element_bytes, static_cast<std::int64_t>(stack.sum_bits) / 8);
  return action.element_bytes;
}

/// Returns the rates for a dtype. Throws Error where the machine has none.
const ComputeRates& rates_of(const Machine& machine, std::int64_t element_bytes) {
  const ComputeRates* rates = machine.rates(element_bytes);
  require(rates != nullptr, machine.name, ": has no rates of ", 8 * element_bytes,
          " bits, in which this deck computes");
  return *rates;
}

/// Returns the time of the kernels of a phase.
double kernel_seconds(const Machine& machine, const ComputeRates& rates, const KernelRates& kernels,
                      double flops, const plan::KernelWork& work, bool goes_backward) {
  const Stack& stack = machine.stack;
  const auto times = [&](double longer) { return goes_backward && longer > 0.0 ? longer : 1.0; };
  double seconds =
      times(kernels.backward_products) * (kernels.products(flops, work) / rates.products +
                                          machine.bits8.seconds(work, kernels.product_width)) +
      times(kernels.backward_attention) * kernels.attention(work) /
          (rates.attention_or_products() * stack.attention_rate) +
      work.products * (kernels.product_seconds + stack.launch_seconds);
  if (work.row_bytes > 0.0)
    seconds +=
        times(kernels.backward_rows) * stack.row_traffic * work.row_bytes /
            kernels.row_bytes_per_second +
        stack.row_kernels * work.row_kernels * (kernels.row_kernel_seconds + stack.launch_seconds);
  if (kernels.activations_per_second > 0.0)
    seconds += work.activations / kernels.activations_per_second;
  return seconds;
}

}  // namespace

MachineCosts::Stage MachineCosts::known_of(const StepPlan& plan) {
  Stage known;
  known.global_sum = plan::global_sum_kind(plan);
  known.is_summed_again.assign(plan.actions.size(), false);
  std::map<std::tuple<int, Axis, int, int>, std::size_t> last;  // sum of each unit and span
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    std::vector<plan::Span>& all = known.all_reduced;
    if (action.kind == Kind::gather_gradients &&
        std::find(all.begin(), all.end(), action.span) == all.end())
      all.push_back(action.span);
    if (action.kind != Kind::reduce_scatter) continue;
    const auto [place, is_first] = last.emplace(
        std::tuple(action.unit, action.span.axis, action.span.ranks, action.span.stride), a);
    if (!is_first) known.is_summed_again[place->second] = true;
    place->second = a;
  }
  return known;
}

MachineCosts::MachineCosts(const std::vector<const StepPlan*>& stages, const Machine& machine,
                           int ranks_per_node, Streams streams)
    : stages_(stages), streams_(streams) {
  const int ranks = stages.front()->grid.ranks();
  ranks_per_node_ = ranks_per_node > 0 ? std::min(ranks_per_node, ranks) : ranks;
  for (const StepPlan* plan : stages) {
    links_.emplace_back(*plan, ranks_per_node_);
    known_.push_back(known_of(*plan));
  }
  set_machine(machine);
}

void MachineCosts::set_machine(const Machine& machine) {
  machine_ = machine;
  for (const StepPlan* plan : stages_) rates_of(machine_, plan->layouts.gathered.element_bytes);
  oversubscribed_ = 1.0;
  shares_core_ = false;
  if (machine_.cores_per_node > 0) {
    const double cores = machine_.cores_per_node;
    oversubscribed_ = std::max(1.0, ranks_per_node_ / cores);
    shares_core_ = 2 * ranks_per_node_ > machine_.cores_per_node;
  }
  check_networks();
}

void MachineCosts::check_networks() const {
  const bool has_inside = machine_.inside_nodes.bytes_per_second > 0.0;
  const bool has_across = machine_.across_nodes.bytes_per_second > 0.0;
  if (has_inside && has_across) return;
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (const Action& action : stages_[s]->actions) {
      if (!has_inside && links_[s].bytes_inside_nodes(action) > 0)
        throw Error(text(machine_.name, ": inside_nodes has no gigabytes_per_second, and ",
                         stages_[s]->describe(action), " sends inside a node"));
      if (!has_across && links_[s].bytes_across_nodes(action) > 0)
        throw Error(text(machine_.name, ": across_nodes has no gigabytes_per_second, and ",
                         stages_[s]->describe(action), " sends across nodes"));
    }
}

GroupShape MachineCosts::group(int stage, const Action& action) const {
  const plan::Links& links = links_[static_cast<std::size_t>(stage)];
  const int ranks = action.span.ranks;
  return {ranks, ranks - links.partners_across_nodes(action)};
}

double MachineCosts::compute_seconds(const StepPlan& plan, const Action& action) const {
  const ComputeRates& rates = rates_of(machine_, plan.layouts.gathered.element_bytes);
  const KernelRates kernels = rates.kernels.or_else(machine_.kernels);
  const Stack& stack = machine_.stack;
  plan::KernelWork work = action.work;
  if (stack.expert_row_traffic != 1.0 && has_experts(plan, action))
    work.row_bytes *= stack.expert_row_traffic;
  double seconds =
      kernel_seconds(machine_, rates, kernels, action.flops, work, action.kind == Kind::backward);
  if (plan::is_phase(action.kind)) seconds += cast_seconds(plan, action);
  const double bytes = processed_bytes(plan, action);
  if (bytes > 0.0 && !(action.kind == Kind::gather && stack.autocast)) {
    const auto or_else = [](double rate, double other) { return rate > 0.0 ? rate : other; };
    const Processing processing = plan::traits(action.kind).processing;
    double rate = machine_.kernels.row_bytes_per_second, traffic = 1.0;
    if (processing == Processing::updates) {
      rate = machine_.update_rate();
      traffic = action.kind == Kind::accumulate ? stack.accumulate_traffic : stack.update_traffic;
    }
    if (processing == Processing::norms) rate = or_else(machine_.norm_bytes_per_second, rate);
    if (processing == Processing::converts || processing == Processing::dequantizes) {
      rate = or_else(machine_.convert_bytes_per_second, machine_.update_rate());
      traffic = stack.convert_traffic;
    }
    if (traffic > 0.0)
      seconds +=
          traffic * bytes / rate + machine_.kernels.row_kernel_seconds + stack.launch_seconds;
  }
  return seconds;
}

/// Parameters of a unit that were gathered in fp32 are read so, and written and read in 16 bits; in
/// backward their gradients, too. With several phases the first one does it.
double MachineCosts::cast_seconds(const StepPlan& plan, const Action& action) const {
  const bool casts = machine_.stack.autocast && plan.layouts.gathered.element_bytes == 2;
  if (!casts || action.phase > 0 || action.unit < 0) return 0.0;
  constexpr double bytes_of_cast = 4.0 + 2.0;
  const auto elements =
      static_cast<double>(plan.units[static_cast<std::size_t>(action.unit)].parameter_elements);
  return (action.kind == Kind::backward ? 2.0 : 1.0) * bytes_of_cast * elements /
         machine_.kernels.row_bytes_per_second;
}

/// Returns whether the stack makes no such collective.
bool MachineCosts::is_omitted(int stage, const Action& action) const {
  if (action.empty_if_even) return true;
  if (!machine_.stack.reduces_once || action.kind != Kind::reduce_scatter) return false;
  const auto s = static_cast<std::size_t>(stage);
  const auto a = static_cast<std::size_t>(&action - stages_[s]->actions.data());
  return known_[s].is_summed_again.at(a);
}

CollectiveSeconds MachineCosts::collective_seconds(int stage, const Action& action,
                                                   double bytes) const {
  const StepPlan& plan = *stages_[static_cast<std::size_t>(stage)];
  const Stack& stack = machine_.stack;
  const GroupShape shape = group(stage, action);
  const bool is_of_tensor = action.kind == Kind::exchange && action.span.axis == Axis::tensor;
  const bool is_of_context = action.kind == Kind::exchange && action.span.axis == Axis::shard &&
                             action.exchange != plan::ExchangeKind::all_to_all;
  if (is_of_context && stack.context_ring)
    return {(shape.ranks - 1) * message_seconds(machine_, shape.spans_nodes(), 0.0).latency, 0.0};
  const bool to_all =
      is_ordered_sum(plan, action) ||
      (action.kind == Kind::exchange && action.exchange != plan::ExchangeKind::gather &&
       !(is_of_tensor && stack.exchange_rings));
  CollectiveSeconds taken =
      to_all ? exchange_seconds(machine_, shape, bytes) : ring_seconds(machine_, shape, bytes);
  if (is_of_tensor) {
    taken.latency *= stack.exchange_exposed;
    taken.transfer *= stack.exchange_exposed;
  }
  const std::vector<plan::Span>& all_reduced = known_[static_cast<std::size_t>(stage)].all_reduced;
  const bool is_half_of_all_reduce =
      (action.kind == Kind::reduce_scatter || action.kind == Kind::gather_gradients) &&
      std::find(all_reduced.begin(), all_reduced.end(), action.span) != all_reduced.end();
  if (stack.all_reduce_trees && is_half_of_all_reduce && shape.spans_nodes()) {
    const CollectiveSeconds tree = half_tree_seconds(machine_, shape, bytes);
    if (tree.latency + tree.transfer < taken.latency + taken.transfer) taken = tree;
  }
  if (stack.all_reduces && is_half_of_all_reduce) {
    const double halves = action.kind == Kind::reduce_scatter ? 2.0 : 0.0;
    taken.latency *= halves;
    taken.transfer *= halves;
  }
  if (action.kind == Kind::gather_updates) {
    const auto units = static_cast<double>(std::max<std::size_t>(1, plan.units.size()));
    taken.latency *=
        std::max(1.0, std::min(stack.update_calls, static_cast<double>(shape.ranks) / units));
    // Where forward hides it, it slows forward down all the same.
    const double left = stack.hides_updates ? slowdown() / (1.0 + slowdown()) : 1.0;
    taken.latency *= left;
    taken.transfer *= left;
  }
  return taken;
}

ResourceSeconds MachineCosts::seconds(int stage, const Action& action) const {
  const StepPlan& plan = *stages_[static_cast<std::size_t>(stage)];
  const plan::Links& links = links_[static_cast<std::size_t>(stage)];
  if (machine_.plain_rates) return plan::seconds_at(*machine_.plain_rates, plan, links, action);
  ResourceSeconds all;
  if (is_omitted(stage, action)) return all;
  const auto on_core = [&](Resource resource, double seconds) {
    all[shares_core_ ? Resource::device : resource] += seconds * oversubscribed_;
  };
  if (action.stream == plan::Stream::host) {
    on_core(Resource::host,
            static_cast<double>(bytes_on_host(plan, action)) / machine_.host_bytes_per_second);
  } else {
    const bool has_threads = shares_core_ && streams_ == Streams::concurrent;
    on_core(Resource::device,
            compute_seconds(plan, action) * (has_threads ? 1.0 + machine_.thread_slowdown : 1.0));
  }
  if (const std::int64_t copied = copied_bytes(action); copied > 0) {
    const bool up = action.kind == Kind::copy_to_device;
    const double rate = up ? machine_.upload_bytes_per_second : machine_.download_bytes_per_second;
    on_core(up ? Resource::uploads : Resource::downloads, static_cast<double>(copied) / rate);
  }
  const auto add = [&](const CollectiveSeconds& taken, bool spans_nodes) {
    all[Resource::latency] += taken.latency;
    if (spans_nodes)
      all[Resource::across_nodes] += taken.transfer;
    else
      on_core(Resource::inside_nodes, taken.transfer);
  };
  if (action.kind == Kind::send) {
    const bool leaves = links.bytes_across_nodes(action) > 0;
    const CollectiveSeconds taken = message_seconds(
        machine_, leaves, static_cast<double>(action.elements * action.element_bytes));
    if (machine_.stack.blocking_messages)
      all[Resource::device] += taken.latency + taken.transfer;
    else
      add(taken, leaves);
  } else if (array_bytes(action) > 0) {
    const auto bytes = static_cast<double>(action.elements) *
                       static_cast<double>(sent_element_bytes(machine_.stack, plan, action));
    const GroupShape shape = group(stage, action);
    add(collective_seconds(stage, action, bytes), shape.spans_nodes());
    if (is_ordered_sum(plan, action))
      on_core(Resource::device, bytes * (1.0 + 1.0 / shape.ranks) / machine_.update_rate() +
                                    machine_.kernels.row_kernel_seconds);
  }
  if (machine_.added_seconds_per_byte > 0.0)
    all[Resource::latency] +=
        machine_.added_seconds_per_byte * static_cast<double>(plan.bytes_sent(action));
  if (action.kind == known_[static_cast<std::size_t>(stage)].global_sum)
    all[Resource::latency] += sum_seconds(machine_, {plan.grid.ranks(), ranks_per_node_});
  return all;
}

Machine machine_with(const plan::Rates& rates) {
  Machine machine;
  machine.name = plan::rates_text(rates, true, true);
  machine.plain_rates = rates;
  machine.fp32.products = machine.bits16.products = machine.fp64.products = machine.bits8.products =
      rates.flops_per_second;
  machine.kernels.row_bytes_per_second = std::numeric_limits<double>::infinity();
  machine.inside_nodes.bytes_per_second = rates.inside_node_bytes_per_second;
  machine.across_nodes.bytes_per_second = rates.across_node_bytes_per_second;
  machine.host_bytes_per_second = rates.host_bytes_per_second;
  machine.upload_bytes_per_second = machine.download_bytes_per_second = rates.copy_bytes_per_second;
  return machine;
}

plan::Rates bounding_rates(const Machine& machine, std::int64_t element_bytes, int ranks_per_node) {
  const ComputeRates& rates = rates_of(machine, element_bytes);
  // A network or copy without a rate is not used by any plan that can be simulated.
  const auto or_none = [](double rate) { return rate > 0.0 ? rate : 1e300; };
  const auto of_network = [&](const Network& network) {
    return or_none(std::max(network.bytes_per_second, network.exchange_bytes_per_second));
  };
  plan::Rates bound;
  const KernelRates kernels = rates.kernels.or_else(machine.kernels);
  const auto in_either_pass = [](double rate, double backward) {
    return backward > 0.0 ? rate / std::min(1.0, backward) : rate;
  };
  // This is the limit of attention with wide heads.
  bound.flops_per_second = std::max(
      in_either_pass(std::max(rates.products, machine.bits8.products), kernels.backward_products),
      in_either_pass(rates.attention_or_products(), kernels.backward_attention) *
          (1.0 + kernels.attention_width / 128.0));
  // An all-to-all sends inside and across nodes at once, while these rates are applied one after
  // the other.
  bound.inside_node_bytes_per_second = of_network(machine.inside_nodes);
  if (machine.across_nodes.exchange_rate() > 0.0)
    bound.inside_node_bytes_per_second +=
        of_network(machine.across_nodes) * std::max(1, ranks_per_node);
  // A ring leaves a node once, through the links of all of its ranks.
  bound.across_node_bytes_per_second =
      of_network(machine.across_nodes) * std::max(1, ranks_per_node);
  bound.copy_bytes_per_second =
      or_none(std::max(machine.upload_bytes_per_second, machine.download_bytes_per_second));
  bound.host_bytes_per_second = or_none(machine.host_bytes_per_second);
  return bound;
}

plan::ModelDescription with_kernel_times(plan::ModelDescription model, const Machine& machine,
                                         const plan::Rates& rates) {
  const ComputeRates& of_dtype = rates_of(machine, model.element_bytes);
  const KernelRates kernels = of_dtype.kernels.or_else(machine.kernels);
  const auto set = [&](double& flops, const plan::KernelWork& work, bool goes_backward) {
    flops = kernel_seconds(machine, of_dtype, kernels, flops, work, goes_backward) *
            rates.flops_per_second;
  };
  for (plan::UnitDescription& unit : model.units) {
    for (plan::Phase& phase : unit.forward) {
      set(phase.flops, phase.work, false);
      set(phase.recompute_flops, phase.recompute_work, false);
    }
    for (plan::Phases* phases : {&unit.backward, &unit.deferral.backward_at_once})
      for (plan::Phase& phase : *phases) set(phase.flops, phase.work, true);
  }
  return model;
}

}  // namespace ostrakon::simulate
