// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/simulate/prediction.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace ostrakon::simulate {
namespace {

using plan::Action;
using plan::StepPlan;
using plan::Timing;

/// Returns "backward(block.*)": the kind of an action, and its units.
std::string kind_and_units(const StepPlan& plan, const Action& action) {
  std::string name = plan::name(action.kind);
  if (action.unit < 0) return name;
  std::string unit = plan.units[static_cast<std::size_t>(action.unit)].name;
  const std::size_t dot = unit.find('.');
  if (dot != std::string::npos) unit = unit.substr(0, dot) + ".*";
  return name + "(" + unit + ")";
}

/// Finds the critical path, from the action that ends last back to one that begins with the step:
/// each action begins when the one before it on the path ends.
std::vector<CriticalPart> find_critical(const StepPlan& plan, const Timing& timing,
                                        bool is_inline) {
  std::vector<int> before(plan.actions.size(), -1);  // previous action on its stream
  std::array<int, plan::streams> last;
  last.fill(-1);
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    int& of_stream =
        last[static_cast<std::size_t>(plan::order_of(plan.actions[a].stream, is_inline))];
    before[a] = of_stream;
    of_stream = static_cast<int>(a);
  }
  std::map<std::string, CriticalPart> parts;
  const auto end = [&](int a) { return timing.ends[static_cast<std::size_t>(a)]; };
  const auto add = [&](const std::string& name, double seconds) {
    CriticalPart& part = parts[name];
    part.action = name;
    part.seconds += seconds;
    ++part.actions;
  };
  int at = static_cast<int>(std::max_element(timing.ends.begin(), timing.ends.end()) -
                            timing.ends.begin());
  while (at >= 0) {
    const Action& action = plan.actions[static_cast<std::size_t>(at)];
    const double begin = timing.begins[static_cast<std::size_t>(at)];
    if (end(at) > begin) add(kind_and_units(plan, action), end(at) - begin);
    int next = before[static_cast<std::size_t>(at)];
    for (const int other : action.waits)
      if (next < 0 || end(other) > end(next)) next = other;
    const double ready = next < 0 ? 0.0 : end(next);
    if (begin > ready) add("waiting for other stages", begin - ready);
    at = next;
  }
  std::vector<CriticalPart> sorted;
  for (auto& [name, part] : parts) sorted.push_back(std::move(part));
  std::stable_sort(sorted.begin(), sorted.end(), [](const CriticalPart& a, const CriticalPart& b) {
    return a.seconds > b.seconds;
  });
  return sorted;
}

/// Returns by how much the slowest of several ranks is expected to be slower than their mean.
double slowest_of(int ranks, double deviation) {
  return ranks > 1 ? deviation * std::sqrt(2.0 * std::log(static_cast<double>(ranks))) : 0.0;
}

std::array<KernelRates*, 4> kernels_of(Machine& machine) {
  return {&machine.kernels, &machine.fp32.kernels, &machine.bits16.kernels, &machine.fp64.kernels};
}

/// Returns 0 up to 8 ranks, then 1 more for each doubling: as the expected maximum of as many waits
/// with exponential tails, and as published steps grow (docs/simulation.md).
double growth_of_jitter(int ranks) { return std::log2(std::max(1.0, ranks / 8.0)); }

}  // namespace

double added_by_variation(const Machine& machine, int ranks) {
  return slowest_of(ranks, machine.rank_deviation) + machine.jitter * growth_of_jitter(ranks);
}

ModelError model_error(const std::vector<const StepPlan*>& stages, const Machine& machine,
                       std::int64_t arena_bytes) {
  ModelError all = machine.any_step;
  const auto with = [&](const ModelError& more) {
    all = {std::max(all.faster, more.faster), std::max(all.slower, more.slower)};
  };
  if (stages.front()->grid.tensor() > 1) with(machine.tensor_step);
  if (stages.size() > 1) with(machine.pipeline_step);
  if (machine.memory_bytes > 0 &&
      static_cast<double>(arena_bytes) >= nearly_full * static_cast<double>(machine.memory_bytes))
    with(machine.full_memory_step);
  return all;
}

Prediction predict(const std::vector<const StepPlan*>& stages, const Machine& machine,
                   int ranks_per_node, Streams streams, double model_flops,
                   std::int64_t arena_bytes) {
  const MachineCosts costs(stages, machine, ranks_per_node, streams);
  Prediction found;
  found.timings = plan::simulate_times(stages, costs);
  const auto busiest =
      std::max_element(found.timings.begin(), found.timings.end(),
                       [](const Timing& a, const Timing& b) { return a.computing < b.computing; });
  found.busiest = static_cast<int>(busiest - found.timings.begin());
  const Timing& timing = *busiest;
  const StepPlan& plan = *stages[static_cast<std::size_t>(found.busiest)];
  const int ranks = plan.grid.ranks();

  const double simulated = timing.seconds + machine.step_seconds;
  const double later = added_by_variation(machine, ranks);
  found.step_seconds = simulated * (1.0 + later);
  found.by_runs = std::hypot(2.0 * machine.run_deviation, later);
  found.by_model = model_error(stages, machine, arena_bytes);
  // No run is faster than one without variation between its ranks.
  found.fastest = std::max(
      {0.0, simulated * (1.0 - std::hypot(2.0 * machine.run_deviation, found.by_model.faster)),
       found.step_seconds * (1.0 - std::hypot(found.by_runs, found.by_model.faster))});
  found.slowest = found.step_seconds * (1.0 + std::hypot(found.by_runs, found.by_model.slower));

  const double peak = machine.rates(plan.layouts.gathered.element_bytes)->peak_or_products();
  found.mfu = model_flops / (found.step_seconds * peak * ranks);
  Factors& factors = found.factors;
  // The factors are the stage's: its operations, and its share of those that count for MFU.
  double all_flops = 0.0;
  for (const StepPlan* stage : stages) all_flops += stage->flops();
  const double ranks_of_stage = plan.grid.ranks_of_stage();
  factors.recomputation = model_flops / (all_flops * ranks_of_stage);
  const double own_flops = std::max(plan.flops(), 1e-300);
  factors.balance = all_flops / static_cast<double>(stages.size()) / own_flops;
  factors.kernels = own_flops / peak / std::max(timing.computing, 1e-300);
  double so_far = timing.computing;
  const auto with = [&](double seconds) {
    const double before = so_far;
    so_far += seconds;
    return so_far > 0.0 ? before / so_far : 1.0;
  };
  factors.communication = with(timing.exposed_communication);
  factors.copies = with(timing.exposed_copies);
  factors.host = with(timing.exposed_host + machine.step_seconds);
  factors.bubbles = with(timing.waiting);
  factors.variation = 1.0 / (1.0 + later);

  found.critical = find_critical(plan, timing, streams == Streams::one_after_the_other);
  return found;
}

double seconds_if_equally_fast(const std::vector<const StepPlan*>& stages, const Machine& machine,
                               int ranks_per_node, Streams streams) {
  const MachineCosts costs(stages, machine, ranks_per_node, streams);
  return plan::simulate_times(stages, costs).front().seconds + machine.step_seconds;
}

std::vector<Improvement> find_improvements(const std::vector<const StepPlan*>& stages,
                                           const Machine& machine, int ranks_per_node,
                                           Streams streams) {
  using Change = std::pair<const char*, std::function<void(Machine&)>>;
  const auto faster = [](simulate::Network& network) {
    network.bytes_per_second *= 2.0;
    network.exchange_bytes_per_second *= 2.0;
  };
  const auto sooner = [](simulate::Network& network) {
    for (double* seconds : {&network.base_seconds, &network.step_seconds,
                            &network.inside_step_seconds, &network.message_seconds})
      *seconds *= 0.5;
  };
  const std::vector<Change> changes = {
      {"twice the rate of matrix products",
       [](Machine& m) {
         for (ComputeRates* rates : {&m.fp32, &m.bits16, &m.fp64}) {
           rates->attention = rates->attention_or_products();
           rates->products *= 2.0;
         }
         m.bits8.products *= 2.0;
       }},
      {"twice the rate of attention",
       [](Machine& m) {
         for (ComputeRates* rates : {&m.fp32, &m.bits16, &m.fp64})
           rates->attention = 2.0 * rates->attention_or_products();
       }},
      {"twice the bandwidth of memory",
       [](Machine& m) {
         for (KernelRates* rates : kernels_of(m)) rates->row_bytes_per_second *= 2.0;
         m.update_bytes_per_second *= 2.0;
         m.convert_bytes_per_second *= 2.0;
         m.norm_bytes_per_second *= 2.0;
       }},
      {"activation functions twice as fast",
       [](Machine& m) {
         for (KernelRates* rates : kernels_of(m)) rates->activations_per_second *= 2.0;
       }},
      {"half the time to start kernels",
       [](Machine& m) {
         for (KernelRates* rates : kernels_of(m)) {
           rates->product_seconds *= 0.5;
           rates->row_kernel_seconds *= 0.5;
         }
         m.stack.launch_seconds *= 0.5;
       }},
      {"twice the bandwidth inside nodes", [&](Machine& m) { faster(m.inside_nodes); }},
      {"twice the bandwidth across nodes", [&](Machine& m) { faster(m.across_nodes); }},
      {"half the latency of collectives",
       [&](Machine& m) {
         sooner(m.inside_nodes);
         sooner(m.across_nodes);
       }},
      {"computing not slowed by collectives", [](Machine& m) { m.slowdown = 0.0; }},
      {"twice the bandwidth between host and device",
       [](Machine& m) {
         m.upload_bytes_per_second *= 2.0;
         m.download_bytes_per_second *= 2.0;
       }},
      {"a host twice as fast", [](Machine& m) { m.host_bytes_per_second *= 2.0; }},
      {"ranks that are all equally fast", [](Machine& m) { m.rank_deviation = m.jitter = 0.0; }}};
  MachineCosts costs(stages, machine, ranks_per_node, streams);
  const int ranks = stages.front()->grid.ranks();
  const auto seconds_on = [&](const Machine& one) {
    costs.set_machine(one);
    const double simulated = plan::simulate_times(stages, costs).front().seconds + one.step_seconds;
    return simulated * (1.0 + added_by_variation(one, ranks));
  };
  const double now = seconds_on(machine);
  std::vector<Improvement> found;
  for (const auto& [what, change] : changes) {
    Machine better = machine;
    change(better);
    const double then = seconds_on(better);
    if (then < 0.995 * now) found.push_back({what, then});
  }
  std::stable_sort(found.begin(), found.end(), [](const Improvement& a, const Improvement& b) {
    return a.step_seconds < b.step_seconds;
  });
  return found;
}

}  // namespace ostrakon::simulate
