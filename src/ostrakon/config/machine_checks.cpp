// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/machine_checks.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>

namespace ostrakon::config {
namespace {

using machine_units::giga;
using machine_units::gigabit;
using machine_units::micro;
using machine_units::percent;
using machine_units::tera;
using simulate::ComputeRates;
using simulate::KernelRates;
using simulate::Machine;
using simulate::Network;

std::string given_as(const std::string& key, double value, double unit) {
  return text(key, " = ", print("%.6g", value / unit));
}

struct OfDType {
  const char* section;
  const ComputeRates* rates;
};
std::vector<OfDType> dtypes_of(const Machine& machine) {
  return {{"fp32", &machine.fp32}, {"bits16", &machine.bits16}, {"fp64", &machine.fp64}};
}

struct OfNetwork {
  const char* section;
  const Network* network;
};
std::vector<OfNetwork> networks_of(const Machine& machine) {
  return {{"inside_nodes", &machine.inside_nodes}, {"across_nodes", &machine.across_nodes}};
}

std::string key_of(const char* section, const char* key) { return text(section, ".", key); }

}  // namespace

void check_limits(const Machine& machine, const std::string& name) {
  // Limits have a unit of their own, as lines are sold in bits.
  const auto check = [&](const std::string& key, double rate, double unit, const std::string& limit,
                         double most, double unit_of_limit) {
    require(!(most > 0.0) || rate <= most, name, ": ", given_as(key, rate, unit),
            ": expected at most ", print("%.6g", most / unit), ", as ",
            given_as(limit, most, unit_of_limit));
  };
  for (const auto& [section, rates] : dtypes_of(machine)) {
    const std::string peak = key_of(section, "peak_teraflops");
    check(key_of(section, "product_teraflops"), rates->products, tera, peak, rates->peak, tera);
    check(key_of(section, "attention_teraflops"), rates->attention, tera, peak, rates->peak, tera);
  }
  check("bits8.product_teraflops", machine.bits8.products, tera, "bits8.peak_teraflops",
        machine.bits8.peak, tera);
  for (const auto& [section, network] : networks_of(machine)) {
    const std::string line = key_of(section, "line_gigabits_per_second");
    check(key_of(section, "gigabytes_per_second"), network->bytes_per_second, giga, line,
          network->line_bytes_per_second, gigabit);
    check(key_of(section, "all_to_all_gigabytes_per_second"), network->exchange_bytes_per_second,
          giga, line, network->line_bytes_per_second, gigabit);
  }
  const auto check_memory = [&](const std::string& key, double rate) {
    check(key, rate, giga, "machine.memory_gigabytes_per_second", machine.memory_bytes_per_second,
          giga);
  };
  check_memory("kernels.row_gigabytes_per_second", machine.kernels.row_bytes_per_second);
  check_memory("kernels.update_gigabytes_per_second", machine.update_bytes_per_second);
  check_memory("kernels.convert_gigabytes_per_second", machine.convert_bytes_per_second);
  check_memory("kernels.norm_gigabytes_per_second", machine.norm_bytes_per_second);
  for (const auto& [section, rates] : dtypes_of(machine))
    check_memory(key_of(section, "row_gigabytes_per_second"), rates->kernels.row_bytes_per_second);
}

std::vector<std::string> keys_without_effect(const Machine& machine) {
  std::vector<std::string> found;
  const auto tell = [&](bool is_idle, const std::string& key, double value, double unit,
                        const std::string& why) {
    if (is_idle && value > 0.0) found.push_back(given_as(key, value, unit) + " " + why);
  };
  const bool has_devices = machine.cores_per_node == 0;
  tell(machine.attention_by_products, "machine.attention_by_products", 1.0, 1.0,
       "changes what memory attention takes, and no time: attention_teraflops has to be that of "
       "attention by products");
  tell(!machine.has_protocols, "machine.ll128_between_nodes", machine.ll128_between_nodes, 1.0,
       "has no effect without machine.nccl_protocols = 1");
  tell(has_devices, "kernels.threads_percent", machine.thread_slowdown, percent,
       "has no effect on devices: expected machine.cores_per_node above 0");
  for (const auto& [section, rates] : dtypes_of(machine)) {
    const std::string why =
        text("has no effect without ", section, ".product_teraflops, by which a dtype is there");
    const KernelRates& kernels = rates->kernels;
    const bool is_idle = rates->products == 0.0;
    tell(is_idle, key_of(section, "peak_teraflops"), rates->peak, tera, why);
    tell(is_idle, key_of(section, "attention_teraflops"), rates->attention, tera, why);
    tell(is_idle, key_of(section, "product_width"), kernels.product_width, 1.0, why);
    tell(is_idle, key_of(section, "attention_width"), kernels.attention_width, 1.0, why);
    tell(is_idle, key_of(section, "backward_products"), kernels.backward_products, 1.0, why);
    tell(is_idle, key_of(section, "backward_attention"), kernels.backward_attention, 1.0, why);
    tell(is_idle, key_of(section, "backward_rows"), kernels.backward_rows, 1.0, why);
    tell(is_idle, key_of(section, "product_microseconds"), kernels.product_seconds, micro, why);
    tell(is_idle, key_of(section, "row_gigabytes_per_second"), kernels.row_bytes_per_second, giga,
         why);
    tell(is_idle, key_of(section, "row_kernel_microseconds"), kernels.row_kernel_seconds, micro,
         why);
    tell(is_idle, key_of(section, "activation_gigaelements_per_second"),
         kernels.activations_per_second, giga, why);
  }
  const bool has_8_bits = machine.bits8.products > 0.0;
  const std::string without_8_bits = "has no effect without bits8.product_teraflops";
  tell(!has_8_bits, "bits8.peak_teraflops", machine.bits8.peak, tera, without_8_bits);
  tell(!has_8_bits, "bits8.product_width", machine.bits8.product_width, 1.0, without_8_bits);
  for (const auto& [section, network] : networks_of(machine))
    tell(network->bytes_per_second == 0.0, key_of(section, "all_to_all_gigabytes_per_second"),
         network->exchange_bytes_per_second, giga,
         text("has no effect without ", section,
              ".gigabytes_per_second, by which a network is "
              "there"));
  tell(true, "inside_nodes.inside_step_microseconds", machine.inside_nodes.inside_step_seconds,
       micro, "has no effect: steps inside nodes take inside_nodes.step_microseconds");
  tell(machine.ranks_per_node == 1, "across_nodes.inside_step_microseconds",
       machine.across_nodes.inside_step_seconds, micro,
       "has no effect with machine.ranks_per_node = 1");
  return found;
}

std::vector<std::string> keys_above_peak(const Machine& machine, std::int64_t element_bytes) {
  const ComputeRates& rates = *machine.rates(element_bytes);
  const std::string section = element_bytes == 2 ? "bits16" : element_bytes == 4 ? "fp32" : "fp64";
  const KernelRates kernels = rates.kernels.or_else(machine.kernels);
  const auto key = [&](double own, const char* name) {
    return text(own > 0.0 ? section : "kernels", ".", name);
  };
  std::vector<std::string> found;
  if (rates.peak == 0.0)
    found.push_back(section + ".peak_teraflops is not given, so that product_teraflops counts");
  const double rate = machine.stack.attention_rate, peak = rates.peak_or_products(),
               attention = rates.attention_or_products() * rate;
  if (attention > peak)
    found.push_back(rate > 1.0
                        ? given_as("stack.attention_rate", rate, 1.0) + " makes attention faster"
                        : given_as(section + ".attention_teraflops", attention, tera) + " is more");
  if (kernels.backward_products > 0.0 && rates.products > peak * kernels.backward_products)
    found.push_back(given_as(key(rates.kernels.backward_products, "backward_products"),
                             kernels.backward_products, 1.0) +
                    " makes products of backward faster");
  if (kernels.backward_attention > 0.0 && attention > peak * kernels.backward_attention)
    found.push_back(given_as(key(rates.kernels.backward_attention, "backward_attention"),
                             kernels.backward_attention, 1.0) +
                    " makes attention of backward faster");
  if (attention * (1.0 + kernels.attention_width / 128.0) > peak)
    found.push_back(given_as(key(rates.kernels.attention_width, "attention_width"),
                             kernels.attention_width, 1.0) +
                    " makes attention with wide heads faster");
  if (machine.bits8.products > peak)
    found.push_back(given_as("bits8.product_teraflops", machine.bits8.products, tera) +
                    " is of products in 8 bits, which MFU compares with the peak of more");
  return found;
}

}  // namespace ostrakon::config
