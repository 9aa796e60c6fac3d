// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/plan/kernel_work.hpp>
#include <string>

namespace ostrakon::simulate {

/// What kernels take, besides the rates of products and attention. In a dtype's own rates 0 is "as
/// Machine::kernels".
struct KernelRates {
  /// A product whose weight has a side of that width takes twice as long as at the full rate.
  double product_width = 0.0;
  double attention_width = 0.0;  ///< the same of heads, where the rate is that of heads of 128
  /// How long in backward an operation of a product, or of attention, or a byte of a kernel without
  /// products takes, relative to forward: 1.1 is 10 % longer; 0: as long.
  double backward_products = 0.0, backward_attention = 0.0, backward_rows = 0.0;
  double product_seconds = 0.0;         ///< of a matrix product besides its operations
  double row_bytes_per_second = 0.0;    ///< of kernels without products, which memory limits
  double row_kernel_seconds = 0.0;      ///< of each of them besides
  double activations_per_second = 0.0;  ///< elements besides their bytes; 0: in no time

  /// Operations that a phase's products, and its attention, take as long as at their full rates.
  double products(double flops, const plan::KernelWork& work) const {
    return flops - work.attention_flops + product_width * work.products_by_width;
  }
  double attention(const plan::KernelWork& work) const {
    return (work.attention_flops + attention_width * work.attention_by_width) /
           (1.0 + attention_width / 128.0);
  }

  /// With `others` where these are 0.
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
  double peak = 0.0;       ///< what the maker states, for MFU; 0: `products`
  double products = 0.0;   ///< in large matrix products; 0: the dtype is not known
  double attention = 0.0;  ///< in attention, whose causal half counts; 0: as products
  KernelRates kernels;     ///< of its own

  double peak_or_products() const { return peak > 0.0 ? peak : products; }
  double attention_or_products() const { return attention > 0.0 ? attention : products; }
};

/// A network between ranks: inside a node, or across nodes. Collectives are rings where a library
/// makes them (see collectives.hpp).
struct Network {
  double bytes_per_second = 0.0;           ///< that a rank sends in a large ring
  double exchange_bytes_per_second = 0.0;  ///< in an all-to-all; 0: as in a ring
  double base_seconds = 0.0;               ///< of each collective or message
  double step_seconds = 0.0;               ///< of each step of a ring
  /// Across nodes: of each step inside a node of a ring that leaves it; 0: as inside nodes.
  double inside_step_seconds = 0.0;
  double message_seconds = 0.0;  ///< of each message of an all-to-all

  double exchange_rate() const {
    return exchange_bytes_per_second > 0.0 ? exchange_bytes_per_second : bytes_per_second;
  }
};

/// What step times depend on: the numbers of a machine file (config/machine_file.hpp), in SI units.
struct Machine {
  std::string name;

  int ranks_per_node = 0;  ///< devices of a node, with a rank each; 0: any number
  int cores_per_node = 0;  ///< cores that the ranks of a node share; 0: ranks have devices
  /// On devices: whether attention goes through matrix products, not on chip, which takes memory.
  bool attention_by_products = false;
  std::int64_t memory_bytes = 0;  ///< of a rank's device; 0: not known

  ComputeRates fp32, bits16, fp64;  ///< bits16: bf16 and fp16
  KernelRates kernels;
  double update_bytes_per_second = 0.0;   ///< of the optimizer, and of sums; 0: as kernels
  double norm_bytes_per_second = 0.0;     ///< of sums of squares; 0: as kernels
  double convert_bytes_per_second = 0.0;  ///< between dtypes; 0: as updates
  double slowdown = 0.0;  ///< of computing while a collective runs: 0.1 takes 10 % longer
  /// How much slower a rank computes where streams have threads that share its core.
  double thread_slowdown = 0.0;

  Network inside_nodes, across_nodes;
  /// Whether rings have NCCL's protocols for small messages, LL and LL128, besides what the
  /// networks say (see collectives.hpp), and whether LL128 crosses nodes.
  bool has_protocols = false;
  bool ll128_between_nodes = false;

  double host_bytes_per_second = 0.0;  ///< of updates and sums on the host, each byte once
  double upload_bytes_per_second = 0.0;
  double download_bytes_per_second = 0.0;
  double step_seconds = 0.0;  ///< of each step besides: reading a batch, starting, printing

  /// Relative deviation of a rank's time for a step. All wait for the slowest.
  double rank_deviation = 0.0;
  /// By how much longer a step takes on 16 ranks than on 8; what it adds grows with the root of the
  /// ranks. What many ranks have in common: switches, other jobs, storage.
  double jitter = 0.0;
  /// How runs deviate from each other: other nodes, another day.
  double run_deviation = 0.0;

  /// What a benchmark adds to collectives for each byte that a rank sends. Not in machine files.
  double added_seconds_per_byte = 0.0;

  double update_rate() const {
    return update_bytes_per_second > 0.0 ? update_bytes_per_second : kernels.row_bytes_per_second;
  }

  /// The rates for elements of that many bytes; null where the machine's are not known.
  const ComputeRates* rates(std::int64_t element_bytes) const {
    const ComputeRates& rates = element_bytes == 2 ? bits16 : element_bytes == 4 ? fp32 : fp64;
    return rates.products > 0.0 ? &rates : nullptr;
  }
};

}  // namespace ostrakon::simulate
