// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/machine_costs.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/report/report_text.hpp>

namespace ostrakon::simulate {
namespace {

using plan::Action;
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
    case Processing::converts: {  // a rank's part of what is gathered, or all that is to be reduced
      const double parts = action.converts ? std::max(1, action.span.ranks) : 1.0;
      const bool converts = action.converts || action.buffer(Role::packed) >= 0;
      return converts ? elements / parts * (master + static_cast<double>(action.element_bytes))
                      : 0.0;
    }
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

/// Returns the rates for a dtype. Throws Error where the machine has none.
const ComputeRates& rates_of(const Machine& machine, std::int64_t element_bytes) {
  const ComputeRates* rates = machine.rates(element_bytes);
  require(rates != nullptr, machine.name, ": has no rates of ", 8 * element_bytes,
          " bits, in which this deck computes");
  return *rates;
}

/// Returns the time of the kernels of a phase.
double kernel_seconds(const ComputeRates& rates, const KernelRates& kernels, double flops,
                      const plan::KernelWork& work, bool goes_backward) {
  const auto times = [&](double longer) { return goes_backward && longer > 0.0 ? longer : 1.0; };
  double seconds =
      times(kernels.backward_products) * kernels.products(flops, work) / rates.products +
      times(kernels.backward_attention) * kernels.attention(work) / rates.attention_or_products() +
      work.products * kernels.product_seconds;
  if (work.row_bytes > 0.0)
    seconds += times(kernels.backward_rows) * work.row_bytes / kernels.row_bytes_per_second +
               work.row_kernels * kernels.row_kernel_seconds;
  if (kernels.activations_per_second > 0.0)
    seconds += work.activations / kernels.activations_per_second;
  return seconds;
}

}  // namespace

MachineCosts::MachineCosts(const std::vector<const StepPlan*>& stages, const Machine& machine,
                           int ranks_per_node, Streams streams)
    : stages_(stages), streams_(streams) {
  const int ranks = stages.front()->grid.ranks();
  ranks_per_node_ = ranks_per_node > 0 ? std::min(ranks_per_node, ranks) : ranks;
  for (const StepPlan* plan : stages) {
    links_.emplace_back(*plan, ranks_per_node_);
    meetings_.push_back(plan::meeting_of(*plan));
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
  double seconds =
      kernel_seconds(rates, kernels, action.flops, action.work, action.kind == Kind::backward);
  const double bytes = processed_bytes(plan, action);
  if (bytes > 0.0) {
    const auto or_else = [](double rate, double other) { return rate > 0.0 ? rate : other; };
    const Processing processing = plan::traits(action.kind).processing;
    double rate = machine_.kernels.row_bytes_per_second;
    if (processing == Processing::updates) rate = machine_.update_rate();
    if (processing == Processing::norms) rate = or_else(machine_.norm_bytes_per_second, rate);
    if (processing == Processing::converts)
      rate = or_else(machine_.convert_bytes_per_second, machine_.update_rate());
    seconds += bytes / rate + machine_.kernels.row_kernel_seconds;
  }
  return seconds;
}

ResourceSeconds MachineCosts::seconds(int stage, const Action& action) const {
  const StepPlan& plan = *stages_[static_cast<std::size_t>(stage)];
  const plan::Links& links = links_[static_cast<std::size_t>(stage)];
  if (machine_.plain_rates) return plan::seconds_at(*machine_.plain_rates, plan, links, action);
  ResourceSeconds all;
  if (action.empty_if_even) return all;
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
    add(message_seconds(machine_, leaves,
                        static_cast<double>(action.elements * action.element_bytes)),
        leaves);
  } else if (const auto bytes = static_cast<double>(array_bytes(action)); bytes > 0.0) {
    const GroupShape shape = group(stage, action);
    const bool sums = action.kind == Kind::reduce_scatter;
    const bool is_ordered = sums && plan.layouts.summation == plan::Summation::ordered;
    const bool to_all = is_ordered || (action.kind == Kind::exchange &&
                                       action.exchange != plan::ExchangeKind::gather);
    add(to_all ? exchange_seconds(machine_, shape, bytes) : ring_seconds(machine_, shape, bytes),
        shape.spans_nodes());
    if (is_ordered)
      on_core(Resource::device, bytes * (1.0 + 1.0 / shape.ranks) / machine_.update_rate() +
                                    machine_.kernels.row_kernel_seconds);
  }
  if (machine_.added_seconds_per_byte > 0.0)
    all[Resource::latency] +=
        machine_.added_seconds_per_byte * static_cast<double>(plan.bytes_sent(action));
  if (action.kind == meetings_[static_cast<std::size_t>(stage)])
    all[Resource::latency] += sum_seconds(machine_, {plan.grid.ranks(), ranks_per_node_});
  return all;
}

Machine machine_with(const plan::Rates& rates) {
  Machine machine;
  machine.name = plan::rates_text(rates, true, true);
  machine.plain_rates = rates;
  machine.fp32.products = machine.bits16.products = machine.fp64.products = rates.flops;
  machine.kernels.row_bytes_per_second = std::numeric_limits<double>::infinity();
  machine.inside_nodes.bytes_per_second = rates.bytes_inside_nodes;
  machine.across_nodes.bytes_per_second = rates.bytes_across_nodes;
  machine.host_bytes_per_second = rates.bytes_on_host;
  machine.upload_bytes_per_second = machine.download_bytes_per_second = rates.bytes_copied;
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
  bound.flops = std::max(in_either_pass(rates.products, kernels.backward_products),
                         in_either_pass(rates.attention_or_products(), kernels.backward_attention) *
                             (1.0 + kernels.attention_width / 128.0));
  // An all-to-all sends inside and across nodes at once, while these rates are applied one after
  // the other.
  bound.bytes_inside_nodes = of_network(machine.inside_nodes);
  if (machine.across_nodes.exchange_rate() > 0.0)
    bound.bytes_inside_nodes += of_network(machine.across_nodes) * std::max(1, ranks_per_node);
  // A ring leaves a node once, through the links of all of its ranks.
  bound.bytes_across_nodes = of_network(machine.across_nodes) * std::max(1, ranks_per_node);
  bound.bytes_copied =
      or_none(std::max(machine.upload_bytes_per_second, machine.download_bytes_per_second));
  bound.bytes_on_host = or_none(machine.host_bytes_per_second);
  return bound;
}

plan::ModelDescription with_kernel_times(plan::ModelDescription model, const Machine& machine,
                                         const plan::Rates& rates) {
  const ComputeRates& of_dtype = rates_of(machine, model.element_bytes);
  const KernelRates kernels = of_dtype.kernels.or_else(machine.kernels);
  const auto set = [&](double& flops, const plan::KernelWork& work, bool goes_backward) {
    flops = kernel_seconds(of_dtype, kernels, flops, work, goes_backward) * rates.flops;
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
