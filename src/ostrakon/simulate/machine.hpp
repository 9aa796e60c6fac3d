// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostrakon/plan/ir/kernel_work.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/simulate/stack.hpp>
#include <string>

namespace ostrakon::simulate {

/// Times of kernels besides the rates of products and attention. In the rates of a dtype, 0 stands
/// for the value of Machine::kernels.
struct KernelRates {
  /// Width at which a product takes twice as long as at the full rate: that of its weight's
  /// narrower side.
  double product_width = 0.0;
  double attention_width = 0.0;  ///< as product_width, for heads; rates are for heads of width 128
  /// Time of backward relative to forward, per operation of a product or of attention, or per byte
  /// of a kernel without products: 1.1 is 10 % longer; 0: equal.
  double backward_products = 0.0, backward_attention = 0.0, backward_rows = 0.0;
  double product_seconds = 0.0;  ///< time of a matrix product besides its operations
  double row_bytes_per_second =
      0.0;  ///< rate of kernels without products, which are limited by memory
  double row_kernel_seconds = 0.0;      ///< time of each of them besides its bytes
  double activations_per_second = 0.0;  ///< elements of activation functions, besides their bytes;
                                        ///< 0: no time

  /// Operations that take as long at the full rate as a phase's products that are not in 8 bits, or
  /// its attention, take.
  double products(double flops, const plan::KernelWork& work) const {
    return flops - work.attention_flops - work.flops_in_8_bits +
           product_width * work.products_by_width;
  }
  double attention(const plan::KernelWork& work) const {
    return (work.attention_flops + attention_width * work.attention_by_width) /
           (1.0 + attention_width / 128.0);
  }

  /// Returns these rates, with those of `others` in place of 0.
  KernelRates or_else(const KernelRates& others) const {
    KernelRates all = *this;
    for (double KernelRates::*number :
         {&KernelRates::product_width, &KernelRates::attention_width,
          &KernelRates::backward_products, &KernelRates::backward_attention,
          &KernelRates::backward_rows, &KernelRates::product_seconds,
          &KernelRates::row_bytes_per_second, &KernelRates::row_kernel_seconds,
          &KernelRates::activations_per_second})
      if (all.*number == 0.0) all.*number = others.*number;
    return all;
  }
};

/// How fast a rank computes in a dtype, in floating-point operations per second.
struct ComputeRates {
  double peak = 0.0;      ///< stated by the manufacturer, for MFU; 0: `products`
  double products = 0.0;  ///< rate of large matrix products; 0: rates of this dtype are not known
  double attention =
      0.0;  ///< rate of attention, of whose operations the causal half counts; 0: as products
  KernelRates kernels;  ///< values for this dtype alone

  double peak_or_products() const { return peak > 0.0 ? peak : products; }
  double attention_or_products() const { return attention > 0.0 ? attention : products; }
};

/// How fast a rank computes products whose operands have 8 bits.
struct ProductRates {
  double peak = 0.0;           ///< stated by the manufacturer; 0: not known
  double products = 0.0;       ///< as ComputeRates::products; 0: not known
  double product_width = 0.0;  ///< as KernelRates::product_width; 0: that of the dtype of `gather`

  /// The time of a phase's products in 8 bits. `width`: of the dtype of `gather`.
  double seconds(const plan::KernelWork& work, double width) const {
    const double by_width = product_width > 0.0 ? product_width : width;
    return work.flops_in_8_bits > 0.0
               ? (work.flops_in_8_bits + by_width * work.in_8_bits_by_width) / products
               : 0.0;
  }
};

/// A network between ranks: inside a node, or across nodes. Collectives are rings if a library
/// makes them (see collectives.hpp).
struct Network {
  double bytes_per_second = 0.0;           ///< bandwidth per rank in a large ring
  double exchange_bytes_per_second = 0.0;  ///< bandwidth per rank in an all-to-all; 0: as in a ring
  double base_seconds = 0.0;               ///< time of each collective or message
  double step_seconds = 0.0;               ///< time of each step of a ring
  /// Across nodes: time of each step inside a node of a ring that leaves it; 0: as inside nodes.
  double inside_step_seconds = 0.0;
  double message_seconds = 0.0;  ///< time of each message of an all-to-all
  /// What a rank's part of the lines carries, which no rate exceeds; 0: not known.
  double line_bytes_per_second = 0.0;

  double exchange_rate() const {
    return exchange_bytes_per_second > 0.0 ? exchange_bytes_per_second : bytes_per_second;
  }
};

/// By how much less and more than simulated 19 of 20 measured steps take at most, relative to the
/// simulated time, apart from the variation of runs.
struct ModelError {
  double faster = 0.0, slower = 0.0;
};

/// The share of a device's memory from which on allocators that others have may give up and try
/// again.
constexpr double nearly_full = 0.8;

/// The properties of a machine that step times depend on: the numbers of a machine file
/// (config/machine_file.hpp), in SI units.
struct Machine {
  std::string name;

  int ranks_per_node = 0;  ///< devices per node, with a rank each; 0: any number
  int cores_per_node = 0;  ///< cores that the ranks of a node share; 0: ranks have devices
  /// On devices: whether attention is computed by matrix products through memory, not on chip.
  bool attention_by_products = false;
  std::int64_t memory_bytes = 0;  ///< memory of a rank's device; 0: not known
  /// Bandwidth of that memory, which no rate of kernels exceeds; 0: not known.
  double memory_bytes_per_second = 0.0;

  /// Where there are any, actions take what plan::seconds_at says. Not in machine files.
  std::optional<plan::Rates> plain_rates;

  ComputeRates fp32, bits16, fp64;  ///< bits16: bf16 and fp16
  ProductRates bits8;
  KernelRates kernels;
  double update_bytes_per_second = 0.0;   ///< rate of the optimizer and of sums; 0: as kernels
  double norm_bytes_per_second = 0.0;     ///< rate of sums of squares; 0: as kernels
  double convert_bytes_per_second = 0.0;  ///< rate of conversions between dtypes; 0: as updates
  double slowdown = 0.0;  ///< slowdown of compute while a collective runs: 0.1 takes 10 % longer
  /// Slowdown of compute if streams have threads that share the rank's core.
  double thread_slowdown = 0.0;

  Network inside_nodes, across_nodes;
  /// Whether rings may use NCCL's protocols for small messages, LL and LL128, besides the networks'
  /// numbers (see collectives.hpp), and whether LL128 crosses nodes.
  bool has_protocols = false;
  bool ll128_between_nodes = false;

  double host_bytes_per_second = 0.0;  ///< rate of updates and sums on the host, each byte once
  double upload_bytes_per_second = 0.0;
  double download_bytes_per_second = 0.0;
  double step_seconds = 0.0;  ///< other time of each step: reading a batch, starting, printing

  /// Relative deviation of a rank's time for a step. All ranks wait for the slowest.
  double rank_deviation = 0.0;
  /// By how much longer a step takes on 16 ranks than on 8, and with each further doubling. It
  /// comes from shared resources: switches, other jobs, storage.
  double jitter = 0.0;
  /// Deviation between runs: other nodes, another day.
  double run_deviation = 0.0;
  /// What the simulation itself is off by: of any step, of one with tensor ranks, of one with
  /// stages, and of one whose arena takes nearly_full or more of the device's memory. The largest
  /// numbers that apply count.
  ModelError any_step, tensor_step, pipeline_step, full_memory_step;

  /// The software whose steps are simulated.
  Stack stack;

  /// Time per byte that a rank sends in collectives, added by a benchmark. Not in machine files.
  double added_seconds_per_byte = 0.0;

  double update_rate() const {
    return update_bytes_per_second > 0.0 ? update_bytes_per_second : kernels.row_bytes_per_second;
  }

  /// The rates for elements of `element_bytes`; null if the machine's are not known.
  const ComputeRates* rates(std::int64_t element_bytes) const {
    const ComputeRates& rates = element_bytes == 2 ? bits16 : element_bytes == 4 ? fp32 : fp64;
    return rates.products > 0.0 ? &rates : nullptr;
  }
};

}  // namespace ostrakon::simulate
