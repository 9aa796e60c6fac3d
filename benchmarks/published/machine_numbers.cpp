// SPDX-License-Identifier: Apache-2.0
#include "machine_numbers.hpp"

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <set>

#include "machine_tables.hpp"

namespace ostrakon::published {
namespace {

using simulate::Machine;

/// A number of stacks: of a key of machines/stacks/*.yaml, the same for those that are named.
struct StackNumber {
  const char* name;
  const char* key;
  double prior, deviation;
  std::vector<std::string> stacks;
};
const std::vector<StackNumber>& stack_numbers() {
  static const std::vector<StackNumber> all = {
      {"llm-foundry.rows", "row_traffic", 1.5, 0.35, {"llm-foundry"}},
      {"eager.rows", "row_traffic", 2.5, 0.35, {"pytorch-eager", "internevo"}},
      {"compiled.rows",
       "row_traffic",
       1.0,
       0.35,
       {"pytorch-compiled", "pytorch-async-tp", "maxtext"}},
      {"megatron-2022.rows", "row_traffic", 1.2, 0.35, {"megatron-2022", "megatron-2022-blocking"}},
      {"megatron-core.rows",
       "row_traffic",
       1.0,
       0.35,
       {"megatron-core", "megatron-core-deterministic"}},
      {"llm-foundry.attention", "attention_rate", 0.6, 0.3, {"llm-foundry"}},
      {"megatron-core.attention", "attention_rate", 1.5, 0.2, {"megatron-core", "maxtext"}},
      {"deterministic.attention", "attention_rate", 0.6, 0.3, {"megatron-core-deterministic"}},
      {"megatron-core.exposed", "exchange_exposed", 0.5, 0.4, {"megatron-core"}},
      {"async-tp.exposed", "exchange_exposed", 0.6, 0.3, {"pytorch-async-tp"}},
      {"megatron-core.expert_rows", "expert_row_traffic", 1.5, 0.7, {"megatron-core"}},
      {"blocking.launch", "launch_microseconds", 60.0, 0.6, {"megatron-2022-blocking"}}};
  return all;
}
bool is_of(const StackNumber& number, const std::string& stack) {
  return std::find(number.stacks.begin(), number.stacks.end(), stack) != number.stacks.end();
}

double at(const Numbers& numbers, const std::string& name) {
  const auto found = numbers.find(name);
  require(found != numbers.end(), "no number ", name);
  return found->second;
}
/// Returns, for what no row tells, the prior, or the number of another.
double or_else(const Numbers& numbers, const std::string& name, double prior) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? prior : found->second;
}

}  // namespace

const std::vector<FittedNumber>& fitted_numbers() {
  static const std::vector<FittedNumber> all = [] {
    std::vector<FittedNumber> list;
    std::set<std::string> kinds, used;
    for (const Site& one : all_sites())
      if (one.has_rows()) used.insert(one.chip);
    for (const Chip& one : all_chips()) {
      if (used.count(one.name) == 0) continue;
      list.push_back({std::string("chip.") + one.name + ".products", one.products_prior,
                      one.products_deviation});
      if (!kinds.insert(one.kind).second) continue;
      const std::string kind = std::string("kind.") + one.kind;
      list.push_back({kind + ".product_width", 280.0, 0.5});
      list.push_back({kind + ".attention", kind == "kind.A100" ? 0.70 : 0.48, 0.15});
      list.push_back({kind + ".memory", 0.85, 0.12});
    }
    for (const Site& one : all_sites()) {
      if (!one.has_rows()) continue;
      const std::string name = std::string("site.") + one.name;
      list.push_back({name + ".inside", one.inside, 0.12});
      list.push_back({name + ".across", one.across, 0.2});
      list.push_back({name + ".slowdown", 0.15, 0.5});
      list.push_back({name + ".jitter", 0.004, 0.7});
    }
    list.push_back({"all.attention_width", 32.0, 0.5});
    list.push_back({"all.backward_products", 1.05, 0.04});
    list.push_back({"all.backward_attention", 1.3, 0.12});
    for (const StackNumber& one : stack_numbers())
      list.push_back({std::string("stack.") + one.name, one.prior, one.deviation});
    return list;
  }();
  return all;
}

const std::vector<ErrorClass>& error_classes() {
  static const std::vector<ErrorClass> all = {{"any_step", &Machine::any_step},
                                              {"tensor_step", &Machine::tensor_step},
                                              {"pipeline_step", &Machine::pipeline_step},
                                              {"full_memory_step", &Machine::full_memory_step}};
  return all;
}

const ErrorClass& error_class_of(const PlannedRow& row) {
  const Chip& made = chip(site(row.row().machine).chip);
  const double memory = static_cast<double>(std::int64_t{made.gibibytes} << 30);
  const bool is_full = static_cast<double>(row.arena_bytes()) >= simulate::nearly_full * memory;
  return error_classes()[row.has_stages() ? 2 : row.has_tensor_ranks() ? 1 : is_full ? 3 : 0];
}

Numbers priors() {
  Numbers numbers;
  for (const FittedNumber& one : fitted_numbers()) numbers[one.name] = one.prior;
  return numbers;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const Site& one : all_sites()) names.emplace_back(one.name);
  return names;
}

const std::vector<std::string>& stack_names() {
  static const std::vector<std::string> all = [] {
    std::set<std::string> names;
    for (const StackNumber& one : stack_numbers())
      names.insert(one.stacks.begin(), one.stacks.end());
    return std::vector<std::string>(names.begin(), names.end());
  }();
  return all;
}

Machine make_machine(const std::string& name, const Numbers& numbers) {
  const Site& where = site(name);
  const Chip& made = chip(where.chip);
  const std::string kind = std::string("kind.") + made.kind;
  Machine machine;
  machine.name = std::string(made.what) + ", " + where.what;
  machine.ranks_per_node = where.ranks_per_node;
  machine.memory_bytes = std::int64_t{made.gibibytes} << 30;
  machine.memory_bytes_per_second = made.memory_rate;
  machine.has_protocols = true;
  machine.bits16.peak = made.peak;
  machine.bits16.products =
      made.best *
      or_else(numbers, std::string("chip.") + made.name + ".products", made.products_prior);
  machine.bits16.attention = made.best * or_else(numbers, kind + ".attention", 0.40);
  // What a narrow product loses is time, which is as much: more of a faster one. On one H200
  // products in 8 bits were 1.3 times as fast as in 16 bits for a width of 768, 1.5 to 1.7 times
  // for 2048, and 1.8 to 1.9 times for 4096.
  machine.bits8.products = made.best_8_bits / made.best * machine.bits16.products;
  machine.fp32.peak = made.fp32_peak;
  machine.fp32.products = 0.8 * made.fp32_peak;
  machine.kernels.product_width = or_else(numbers, kind + ".product_width", 320.0);
  if (made.best_8_bits > 0.0) {
    machine.bits8.peak = 2.0 * made.peak;
    machine.bits8.product_width = 2.0 * machine.kernels.product_width;
  }
  machine.kernels.attention_width = at(numbers, "all.attention_width");
  machine.kernels.backward_products = at(numbers, "all.backward_products");
  machine.kernels.backward_attention = at(numbers, "all.backward_attention");
  machine.kernels.row_bytes_per_second = made.memory_rate * or_else(numbers, kind + ".memory", 0.8);
  machine.kernels.product_seconds = machine.kernels.row_kernel_seconds = 2e-6;
  const std::string own = std::string("site.") + where.name;
  const bool as_h100 = std::string(where.name) == "h200-infiniband";
  const std::string from = where.has_rows() ? own : as_h100 ? "site.h100-infiniband" : own;
  machine.slowdown = or_else(numbers, from + ".slowdown", 0.15);
  machine.jitter = or_else(numbers, from + ".jitter", 0.004);
  // Networks: NCCL's constants of Simple, src/graph/tuning.cc.
  // Rows of few shapes may ask for more than lines carry.
  const auto set_rate = [](simulate::Network& network, double rate, double line) {
    network.line_bytes_per_second = line;
    network.bytes_per_second = std::min(rate, line);
  };
  set_rate(machine.inside_nodes, or_else(numbers, from + ".inside", where.inside), made.link_rate);
  machine.inside_nodes.base_seconds = 8.4e-6;
  machine.inside_nodes.step_seconds = 3.4e-6;
  machine.inside_nodes.message_seconds = 3.4e-6;
  set_rate(machine.across_nodes,
           or_else(numbers, from + ".across", where.across) / where.ranks_per_node,
           where.line_bytes_per_second());
  machine.across_nodes.base_seconds = 8.4e-6;
  machine.across_nodes.step_seconds = 14e-6;
  machine.across_nodes.inside_step_seconds = std::max(3.4, 3.0 * where.overhead) * 1e-6;
  machine.across_nodes.message_seconds = 5e-6;
  machine.host_bytes_per_second = 50e9;
  machine.upload_bytes_per_second = machine.download_bytes_per_second =
      made.peak > 500e12 ? 55e9 : 25e9;
  machine.run_deviation = 0.02;
  for (const ErrorClass& one : error_classes()) {
    const std::string error = std::string("error.") + one.name;
    (machine.*one.error).faster = or_else(numbers, error + ".faster", 0.0);
    (machine.*one.error).slower = or_else(numbers, error + ".slower", 0.0);
  }
  return machine;
}

Numbers fitted_keys(const std::string& stack, const Numbers& numbers) {
  Numbers keys;
  for (const StackNumber& one : stack_numbers())
    if (is_of(one, stack)) keys[one.key] = at(numbers, std::string("stack.") + one.name);
  return keys;
}

simulate::Stack with_fitted(simulate::Stack stack, const std::string& name,
                            const Numbers& numbers) {
  for (const auto& [key, value] : fitted_keys(name, numbers))
    for (const simulate::StackKey& one : simulate::stack_keys())
      if (one.key == key) stack.*one.number = value * one.unit;
  return stack;
}

std::vector<std::string> numbers_of(const PlannedRow& planned) {
  const MeasuredRow& row = planned.row();
  const Site& where = site(row.machine);
  const Chip& made = chip(where.chip);
  const std::string kind = std::string("kind.") + made.kind, own = "site." + row.machine;
  std::vector<std::string> names = {std::string("chip.") + made.name + ".products",
                                    kind + ".product_width",
                                    kind + ".memory",
                                    own + ".inside",
                                    own + ".across",
                                    own + ".slowdown",
                                    own + ".jitter",
                                    "all.backward_products"};
  if (!planned.stack().attention_in_memory)
    for (const std::string& more : {std::string("all.attention_width"),
                                    std::string("all.backward_attention"), kind + ".attention"})
      names.push_back(more);
  for (const StackNumber& one : stack_numbers()) {
    const std::string key = one.key;
    const bool matters = key == "exchange_exposed"     ? planned.has_tensor_ranks()
                         : key == "expert_row_traffic" ? planned.has_experts()
                                                       : true;
    if (is_of(one, row.stack) && matters) names.push_back(std::string("stack.") + one.name);
  }
  return names;
}

}  // namespace ostrakon::published
