// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <string>
#include <vector>

namespace ostrakon::published {

/// A measured training step of another program, as its source publishes it, and what a plan of ours
/// for it has to know (rows.csv).
struct PublishedRow {
  std::string id, source, group, machine, stack, model;
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, head_width = 0, ffn_width = 0,
               vocabulary = 0;
  bool gated = false, rotary = false, tied = false;
  int experts = 0, experts_per_token = 0;
  int ranks = 1, ranks_per_node = 8;
  std::string sharding;  ///< full, keep (gathered once for forward and backward), optimizer, none
  int shard_ranks = 1, tensor = 1, pipeline = 1, chunks = 1, context = 1, expert = 1;
  std::int64_t micro_batch = 1;  ///< sequences
  int micro_batches = 1;         ///< of a rank in a step
  std::int64_t sequence = 0;     ///< tokens
  /// none, full, half (of the blocks), third, core (attention), op2 (what has no product, and every
  /// second product), mlp (the MLP's first product, attention, and what has no product).
  std::string checkpointing;
  bool autocast = false;           ///< parameters are gathered in fp32, and cast where used
  bool sequence_parallel = false;  ///< whether tensor ranks divide the rows of norms
  int reduce_bytes = 2;            ///< of an element of gradients, as it is sent
  int accumulate_bytes = 0;        ///< read and written for a gradient of a further micro-batch
  bool blocking_launches = false;  ///< the host waits for each kernel
  bool odd = false;                ///< out of line with its neighbours
  double seconds = 0.0;            ///< measured, of a step

  int data_ranks() const { return ranks / (tensor * pipeline * context); }
  int replicas() const { return data_ranks() * context / shard_ranks; }
  /// FSDP, HSDP, ZeRO-1, DDP, TP, PP, CP, EP: those that it has.
  std::vector<std::string> dimensions() const;
};
std::vector<PublishedRow> read_published_rows(const std::string& path);

/// Numbers of a software stack, the same on all machines.
struct Stack {
  double rows = 1.0;       ///< bytes of kernels without products, of those that ours read and write
  double attention = 1.0;  ///< rate, of FlashAttention 2's
  double tensor_exposed = 1.0;  ///< share of the exchanges of tensor ranks that is not hidden
  double expert_rows = 1.0;     ///< as rows, besides, in mixtures of experts
};
/// By name: stacks.csv.
std::map<std::string, Stack> read_stacks(const std::string& path);
void write_stacks(const std::map<std::string, Stack>& stacks, const std::string& path);

/// How the plan of a row is made. Both change the time to simulate it, and its time by little.
struct RowPlanning {
  /// Whether the phases of units, and the exchanges between them, are one action where the row has
  /// a pipeline or several micro-batches.
  bool merges_phases = true;
  /// Whether many micro-batches are continued in a line from fewer.
  bool continues_line = true;
};

/// The plan of a row, made once, to be simulated on many machines.
class PlannedRow {
 public:
  /// Throws Error where no plan of ours is like the row.
  explicit PlannedRow(const PublishedRow& row, const RowPlanning& planning = {});
  ~PlannedRow();
  PlannedRow(PlannedRow&&) noexcept;
  PlannedRow& operator=(PlannedRow&&) noexcept;

  const PublishedRow& row() const { return row_; }
  /// The seconds of a step on `machine`, by the program `stack`.
  double seconds(const simulate::Machine& machine, const Stack& stack) const;
  std::size_t actions() const;
  /// Each kind of action with its seconds, for people.
  std::string explain(const simulate::Machine& machine, const Stack& stack) const;

 private:
  class Step;
  PublishedRow row_;
  std::vector<std::unique_ptr<Step>> steps_;  ///< one, or two with other numbers of micro-batches
};

}  // namespace ostrakon::published
