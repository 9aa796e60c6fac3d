// SPDX-License-Identifier: Apache-2.0
// The text of a machine file, each number with where it is from.
#include <cstdio>
#include <sstream>

#include "machine_numbers.hpp"
#include "machine_tables.hpp"

namespace ostrakon::published {

std::string machine_text(const std::string& name, const Numbers& numbers) {
  constexpr double tera = 1e12, giga = 1e9, gigabit = giga / 8.0;
  const Site& where = site(name);
  const Chip& made = chip(where.chip);
  const simulate::Machine machine = make_machine(name, numbers);
  const bool fits = where.has_rows();
  std::string rows_of = where.rows;
  std::stringstream out;
  out << "# SPDX-License-Identifier: Apache-2.0\n# Keys: docs/machine-files.md.\n# Take it for "
      << where.take_it << ".\n";
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
  const bool fills_line =
      machine.across_nodes.bytes_per_second == machine.across_nodes.line_bytes_per_second;
  const bool is_as_h100 = std::string(where.network).find("h100") != std::string::npos;
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
  line("memory_gigabytes_per_second", made.memory_rate / giga, "data sheet");
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
  if (made.best_8_bits > 0.0) {
    out << "  bits8:\n";
    line("peak_teraflops", machine.bits8.peak / tera, "data sheet: twice that of 16 bits");
    std::snprintf(share, sizeof share, "assumed: the same share of %.5g, the best measured (MAMF)",
                  made.best_8_bits / tera);
    line("product_teraflops", machine.bits8.products / tera, share);
    line("product_width", machine.bits8.product_width,
         "assumed: twice that of 16 bits, as one H200 showed");
  }
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
  line("line_gigabits_per_second", machine.inside_nodes.line_bytes_per_second / gigabit,
       "data sheet");
  line("base_microseconds", machine.inside_nodes.base_seconds * 1e6, nccl);
  line("step_microseconds", machine.inside_nodes.step_seconds * 1e6, nccl);
  line("message_microseconds", machine.inside_nodes.message_seconds * 1e6, nccl);
  out << "  across_nodes:\n";
  line("gigabytes_per_second", machine.across_nodes.bytes_per_second / giga,
       fills_line           ? "the line, above which rows ask for more"
       : fits || is_as_h100 ? networks
                            : "assumed: 82 % of the line");
  line("line_gigabits_per_second", where.line, "a rank's part of the node's");
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
  const std::string left_out = "rows of sources that were left out of the fit";
  line("faster_percent", machine.any_step.faster * 100.0, left_out);
  line("slower_percent", machine.any_step.slower * 100.0, left_out);
  line("tensor_faster_percent", machine.tensor_step.faster * 100.0, left_out);
  line("tensor_slower_percent", machine.tensor_step.slower * 100.0, left_out);
  line("pipeline_faster_percent", machine.pipeline_step.faster * 100.0, left_out);
  line("pipeline_slower_percent", machine.pipeline_step.slower * 100.0, left_out);
  line("full_memory_faster_percent", machine.full_memory_step.faster * 100.0, left_out);
  line("full_memory_slower_percent", machine.full_memory_step.slower * 100.0, left_out);
  return out.str();
}

}  // namespace ostrakon::published
