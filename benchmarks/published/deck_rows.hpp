// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/simulate/machine.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <string>
#include <vector>

#include "../../apps/common/planned_step.hpp"

namespace ostrakon::published {

/// A measured step of another program: a line of the index that rows.py writes beside the decks.
struct MeasuredRow {
  std::string id, group;
  std::string machine, stack;    ///< names of files in machines and machines/stacks
  std::string deck, stack_file;  ///< paths
  int ranks = 1, ranks_per_node = 8;
  double seconds = 0.0;
};

/// Reads FOLDER/index.csv.
std::vector<MeasuredRow> read_index(const std::string& folder);

/// A row, planned once as `ostrakon-plan --time` plans it, to be simulated with many numbers.
class PlannedRow {
 public:
  explicit PlannedRow(const MeasuredRow& row);

  const MeasuredRow& row() const { return row_; }
  const simulate::Stack& stack() const { return stack_; }  ///< of its file
  bool has_tensor_ranks() const { return steps_.front().settings.tensor > 1; }
  bool has_stages() const { return steps_.front().stages.size() > 1; }
  bool has_experts() const { return steps_.front().settings.model.experts.count > 0; }
  std::int64_t arena_bytes() const { return steps_.back().arena_bytes; }

  /// Seconds of a step, variation between ranks included. A step of many micro-batches is continued
  /// in a line from two with fewer, as it grows by the same with each.
  double seconds(const simulate::Machine& machine) const;

 private:
  MeasuredRow row_;
  simulate::Stack stack_;
  std::vector<apps::PlannedStep> steps_;  ///< one, or two with other numbers of micro-batches
  std::vector<double> micro_batches_;     ///< of each, and of the row last
};

}  // namespace ostrakon::published
