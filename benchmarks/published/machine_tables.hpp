// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace ostrakon::published {

/// What is known of a chip. Best measured rates of products (MAMF): stas00/ml-engineering,
/// compute/accelerator. All else: data sheets of the makers.
struct Chip {
  const char* name;
  const char* kind;  ///< whose numbers it shares, but for the rate of products
  const char* what;
  double peak;         ///< bf16 without sparsity
  double best;         ///< MAMF in bf16
  double best_8_bits;  ///< MAMF in fp8; 0: none
  double fp32_peak;
  double memory_rate;  ///< bytes/s
  double link_rate;    ///< bytes/s to others of a node, each way
  int gibibytes;
  double products_prior;  ///< share of `best`
  double products_deviation;
};
const Chip& chip(const std::string& name);

/// A machine: chips and networks. Rates are priors.
struct Site {
  const char* name;
  const char* chip;
  const char* what;     ///< in its name
  const char* network;  ///< where the rates of its networks are from; without rows: that inside
  double inside;        ///< bytes/s of a rank in a ring inside a node
  double across;        ///< of a node
  int ranks_per_node;
  double overhead;      ///< NCCL's netOverhead, in us
  const char* rows;     ///< by whose rows its numbers are fitted; empty: none
  double line;          ///< Gb/s across nodes, a rank's part
  const char* take_it;  ///< for what its file is

  bool has_rows() const { return rows[0] != '\0'; }
  double line_bytes_per_second() const { return line * 1e9 / 8.0; }
};
const Site& site(const std::string& name);

const std::vector<Chip>& all_chips();
const std::vector<Site>& all_sites();

}  // namespace ostrakon::published
