// SPDX-License-Identifier: Apache-2.0
#include "machine_numbers.hpp"

#include <algorithm>
#include <cstdio>
#include <ostrakon/base/error.hpp>
#include <set>
#include <sstream>

namespace ostrakon::published {
namespace {

using simulate::Machine;

constexpr double tera = 1e12, giga = 1e9;

/// What is known of a chip. Best measured rates of bf16 products (MAMF): stas00/ml-engineering,
/// compute/accelerator. All else: data sheets of the makers.
struct Chip {
  const char* name;
  const char* kind;  ///< whose numbers it shares, but for the rate of products
  const char* what;
  double peak;  ///< bf16 without sparsity
  double best;  ///< MAMF
  double fp32_peak;
  double memory_rate;  ///< bytes/s
  int gibibytes;
  double products_prior;  ///< share of `best`
  double products_deviation;
};
const Chip chips[] = {
    {"A100-40", "A100", "A100 SXM 40 GB", 312e12, 271.2e12, 19.5e12, 1.555e12, 40, 0.95, 0.05},
    {"A100-80", "A100", "A100 SXM 80 GB", 312e12, 271.2e12, 19.5e12, 2.039e12, 80, 0.95, 0.05},
    {"H100", "H100", "H100 SXM 80 GB", 989e12, 794.5e12, 67e12, 3.35e12, 80, 0.95, 0.05},
    {"H100m", "H100", "H100 SXM 80 GB", 989e12, 794.5e12, 67e12, 3.35e12, 80, 0.85, 0.1},
    {"H100-96", "H100", "H100 96 GB, 500 W", 989e12, 794.5e12, 67e12, 2.4e12, 96, 0.85, 0.1},
    {"H100-94", "H100", "H100 94 GB", 989e12, 794.5e12, 67e12, 2.4e12, 94, 0.85, 0.1},
    {"GB200", "GB200", "GB200 186 GB", 2500e12, 1822e12, 80e12, 8e12, 186, 0.95, 0.05},
    {"H200", "H100", "H200 SXM 141 GB", 989e12, 792.1e12, 67e12, 4.8e12, 141, 0.95, 0.05},
    {"B200", "GB200", "B200 SXM 180 GB", 2250e12, 1745e12, 75e12, 8e12, 180, 0.95, 0.05},
    {"MI300X", "MI300X", "MI300X 192 GB", 1307e12, 758.3e12, 163e12, 5.3e12, 192, 0.9, 0.1}};

const Chip& chip(const std::string& name) {
  for (const Chip& one : chips)
    if (one.name == name) return one;
  throw Error("no chip " + name);
}

/// A machine: chips and networks. Rates are priors.
struct Site {
  const char* name;
  const char* chip;
  const char* what;     ///< in its name
  const char* network;  ///< where its rates are from
  double inside;        ///< bytes/s of a rank in a ring inside a node
  double across;        ///< of a node
  int ranks_per_node;
  double overhead;   ///< NCCL's netOverhead, in us
  const char* rows;  ///< by whose rows its numbers are fitted; empty: none
};
const char* const stated = "what the source of the rows states";
const char* const not_stated = "what is usual for such nodes";
const Site sites[] = {
    {"a100-40gb-8x200g", "A100-40", "1600 Gb/s RoCE a node", stated, 230e9, 160e9, 8, 2,
     "MosaicML llm-foundry"},
    {"a100-80gb-8x200g", "A100-80", "1600 Gb/s RoCE a node", stated, 230e9, 160e9, 8, 2,
     "MosaicML llm-foundry"},
    {"a100-80gb-torchtitan", "A100-80", "8 x 200 Gb/s a node (torchtitan)", not_stated, 230e9,
     160e9, 8, 2, "torchtitan"},
    {"a100-80gb-efa", "A100-80", "400 Gb/s a node", stated, 230e9, 45e9, 8, 2, "fms-fsdp"},
    {"a100-80gb-internevo", "A100-80", "4 x 100 Gb/s RoCE a node", stated, 230e9, 43e9, 8, 2,
     "InternEvo"},
    {"a100-80gb-vtrain", "A100-80", "4 x 200 Gb/s InfiniBand a node", stated, 230e9, 80e9, 8, 2,
     "vTrain"},
    {"a100-80gb-jean-zay", "A100-80", "4 x 100 Gb/s Omni-Path a node, blocking launches", stated,
     230e9, 43e9, 8, 2, "BLOOM (BigScience)"},
    {"a100-80gb-selene", "A100-80", "8 x 200 Gb/s InfiniBand a node (Selene)", stated, 230e9, 160e9,
     8, 2, "Megatron-LM on Selene, and Megatron-Core's CI"},
    {"h100-mosaicml", "H100m", "8 x 400 Gb/s a node (MosaicML)", not_stated, 360e9, 320e9, 8, 1,
     "MosaicML llm-foundry"},
    {"h100-infiniband", "H100", "8 x 400 Gb/s InfiniBand a node", stated, 360e9, 330e9, 8, 1,
     "NVIDIA DGX Cloud recipes, Megatron-Bridge, Megatron-Core's CI"},
    {"h100-96gb-500w", "H100-96", "8 x 400 Gb/s a node (torchtitan)", stated, 360e9, 330e9, 8, 1,
     "torchtitan"},
    {"h100-94gb", "H100-94", "8 x 400 Gb/s a node (torchtitan)", not_stated, 360e9, 330e9, 8, 1,
     "torchtitan"},
    {"gb200", "GB200", "4 x 800 Gb/s a node", not_stated, 700e9, 330e9, 4, 1, "Megatron-Core's CI"},
    {"h200-infiniband", "H200", "8 x 400 Gb/s InfiniBand a node", "as fitted for h100-infiniband",
     360e9, 330e9, 8, 1, ""},
    {"b200-infiniband", "B200", "8 x 400 Gb/s InfiniBand a node",
     "data sheets: NVLink 5 with twice the bandwidth of H100's", 700e9, 330e9, 8, 1, ""},
    {"mi300x", "MI300X", "8 x 400 Gb/s a node",
     "data sheet: 7 links of 64 GB/s each way; 70 % of it assumed", 310e9, 330e9, 8, 1, ""}};

const Site& site(const std::string& name) {
  for (const Site& one : sites)
    if (one.name == name) return one;
  throw Error("no machine " + name);
}
bool has_rows(const Site& one) { return one.rows[0] != '\0'; }

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
    for (const Site& one : sites)
      if (has_rows(one)) used.insert(one.chip);
    for (const Chip& one : chips) {
      if (used.count(one.name) == 0) continue;
      list.push_back({std::string("chip.") + one.name + ".products", one.products_prior,
                      one.products_deviation});
      if (!kinds.insert(one.kind).second) continue;
      const std::string kind = std::string("kind.") + one.kind;
      list.push_back({kind + ".product_width", 190.0, 0.6});
      list.push_back({kind + ".attention", kind == "kind.A100" ? 0.70 : 0.48, 0.15});
      list.push_back({kind + ".memory", 0.85, 0.12});
    }
    for (const Site& one : sites) {
      if (!has_rows(one)) continue;
      const std::string name = std::string("site.") + one.name;
      list.push_back({name + ".inside", one.inside, 0.12});
      list.push_back({name + ".across", one.across, 0.2});
      list.push_back({name + ".slowdown", 0.12, 0.5});
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

Numbers priors() {
  Numbers numbers;
  for (const FittedNumber& one : fitted_numbers()) numbers[one.name] = one.prior;
  return numbers;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const Site& one : sites) names.emplace_back(one.name);
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
  machine.has_protocols = true;
  machine.bits16.peak = made.peak;
  machine.bits16.products =
      made.best *
      or_else(numbers, std::string("chip.") + made.name + ".products", made.products_prior);
  machine.bits16.attention = made.best * or_else(numbers, kind + ".attention", 0.40);
  machine.fp32.peak = made.fp32_peak;
  machine.fp32.products = 0.8 * made.fp32_peak;
  machine.kernels.product_width = or_else(numbers, kind + ".product_width", 320.0);
  machine.kernels.attention_width = at(numbers, "all.attention_width");
  machine.kernels.backward_products = at(numbers, "all.backward_products");
  machine.kernels.backward_attention = at(numbers, "all.backward_attention");
  machine.kernels.row_bytes_per_second = made.memory_rate * or_else(numbers, kind + ".memory", 0.8);
  machine.kernels.product_seconds = machine.kernels.row_kernel_seconds = 2e-6;
  const std::string own = std::string("site.") + where.name;
  const bool as_h100 = std::string(where.name) == "h200-infiniband";
  const std::string from = has_rows(where) ? own : as_h100 ? "site.h100-infiniband" : own;
  machine.slowdown = or_else(numbers, from + ".slowdown", 0.12);
  machine.jitter = or_else(numbers, from + ".jitter", 0.004);
  // Networks: NCCL's constants of Simple, src/graph/tuning.cc.
  machine.inside_nodes.bytes_per_second = or_else(numbers, from + ".inside", where.inside);
  machine.inside_nodes.base_seconds = 8.4e-6;
  machine.inside_nodes.step_seconds = 3.4e-6;
  machine.inside_nodes.message_seconds = 3.4e-6;
  machine.across_nodes.bytes_per_second =
      or_else(numbers, from + ".across", where.across) / where.ranks_per_node;
  machine.across_nodes.base_seconds = 8.4e-6;
  machine.across_nodes.step_seconds = 14e-6;
  machine.across_nodes.inside_step_seconds = std::max(3.4, 3.0 * where.overhead) * 1e-6;
  machine.across_nodes.message_seconds = 5e-6;
  machine.host_bytes_per_second = 50e9;
  machine.upload_bytes_per_second = machine.download_bytes_per_second =
      made.peak > 500e12 ? 55e9 : 25e9;
  machine.run_deviation = 0.02;
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

std::string machine_text(const std::string& name, const Numbers& numbers) {
  const Site& where = site(name);
  const Chip& made = chip(where.chip);
  const Machine machine = make_machine(name, numbers);
  const bool fits = has_rows(where);
  std::string rows_of = where.rows;
  std::stringstream out;
  out << "# SPDX-License-Identifier: Apache-2.0\n# Keys: docs/simulation.md.\n";
  if (fits)
    out << "# fitted: to measured steps of " << rows_of << " (benchmarks/published/rows.csv).\n";
  else
    out << "# No measured steps of this machine were at hand: data sheets, measured rates of "
           "products,\n# and numbers fitted to its relatives.\n";
  const bool kind_is_fitted = std::string(made.kind) != "MI300X";
  const std::string of_kind =
      kind_is_fitted ? std::string("fitted to all rows on ") + made.kind : "assumed";
  const std::string of_all = "fitted to rows on all machines";
  const std::string own = fits ? "fitted" : "assumed";
  const std::string networks =
      fits ? std::string("fitted; expected ") + where.network : where.network;
  const auto line = [&](const char* key, double value, const std::string& source) {
    char text[200];
    std::snprintf(text, sizeof text, "    %s: %.4g  # ", key, value);
    out << text << source << "\n";
  };
  out << "ostrakon:\n  machine:\n    name: \"" << machine.name << "\"\n";
  line("ranks_per_node", machine.ranks_per_node, "data sheet");
  if (std::string(made.kind) == "MI300X")
    line("attention_by_products", 1, "this program's kernels for HIP");
  line("memory_gibibytes", made.gibibytes, "data sheet");
  line("nccl_protocols", 1, "NCCL's constants");
  line("ll128_between_nodes", 0, "efficiencies of InternEvo on 8 to 1024 ranks");
  out << "  bits16:\n";
  line("peak_teraflops", made.peak / tera, "data sheet");
  char share[100];
  std::snprintf(share, sizeof share,
                "%.3f of %.4g, the best measured (MAMF, stas00/ml-engineering)",
                machine.bits16.products / made.best, made.best / tera);
  line("product_teraflops", machine.bits16.products / tera,
       (fits ? "fitted: " : "assumed: ") + std::string(share));
  line("attention_teraflops", machine.bits16.attention / tera, of_kind + ": FlashAttention 2");
  out << "  fp32:\n";
  line("peak_teraflops", made.fp32_peak / tera, "data sheet");
  line("product_teraflops", machine.fp32.products / tera, "assumed: 80 % of that");
  out << "  kernels:\n";
  line("product_width", machine.kernels.product_width, of_kind);
  line("attention_width", machine.kernels.attention_width, of_all);
  line("backward_products", machine.kernels.backward_products, of_all);
  line("backward_attention", machine.kernels.backward_attention, of_all);
  const std::string launches = "assumed";
  line("product_microseconds", machine.kernels.product_seconds * 1e6, launches);
  line("row_gigabytes_per_second", machine.kernels.row_bytes_per_second / giga,
       of_kind + ", of the data sheet's rate");
  line("row_kernel_microseconds", machine.kernels.row_kernel_seconds * 1e6, launches);
  line("slowdown_percent", machine.slowdown * 100.0, own);
  const std::string nccl = "NCCL, src/graph/tuning.cc";
  out << "  inside_nodes:\n";
  line("gigabytes_per_second", machine.inside_nodes.bytes_per_second / giga, networks);
  line("base_microseconds", machine.inside_nodes.base_seconds * 1e6, nccl);
  line("step_microseconds", machine.inside_nodes.step_seconds * 1e6, nccl);
  line("message_microseconds", machine.inside_nodes.message_seconds * 1e6, nccl);
  out << "  across_nodes:\n";
  line("gigabytes_per_second", machine.across_nodes.bytes_per_second / giga, networks);
  line("base_microseconds", machine.across_nodes.base_seconds * 1e6, nccl);
  line("step_microseconds", machine.across_nodes.step_seconds * 1e6, nccl);
  line("inside_step_microseconds", machine.across_nodes.inside_step_seconds * 1e6, nccl);
  line("message_microseconds", machine.across_nodes.message_seconds * 1e6, "assumed");
  out << "  host:\n";
  line("gigabytes_per_second", machine.host_bytes_per_second / giga, "assumed");
  line("upload_gigabytes_per_second", machine.upload_bytes_per_second / giga,
       "assumed: PCIe of its generation");
  line("download_gigabytes_per_second", machine.download_bytes_per_second / giga,
       "assumed: PCIe of its generation");
  out << "  variation:\n";
  line("jitter_percent", machine.jitter * 100.0, own);
  line("run_percent", machine.run_deviation * 100.0, "assumed");
  return out.str();
}

}  // namespace ostrakon::published
